"""Credentials as they come: kubeconfig files, plugins, certificates, a pod's service account. And as they change."""

import asyncio
import base64
import contextlib
import json
import logging
import os
import ssl
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.kube.client import KubeClient
from controller.kube.credentials import (
    ConnectionFacts,
    CredentialsUnusable,
    Renewal,
    build_ssl_context,
    load_credentials,
    read_connection_facts,
)
from controller.kube.errors import Unreachable
from controller.kube.settings import InCluster, Kubeconfig, KubeSettings
from controller.lab.certificates import Authority, Pair
from tests.kube.doubles import NOON, Facts, HandClock, Server
from tests.support.secrecy import secret

SERVER = "https://127.0.0.1:6443"
SECRET = "s3cret-value"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority(now=datetime.now(UTC))


@pytest.fixture(scope="module")
def person(authority: Authority) -> Pair:
    return authority.issue_client("somebody", "a-group")


def data(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


Write = Callable[..., KubeSettings]


@pytest.fixture
def written(tmp_path: Path) -> Write:
    """Write a kubeconfig from its user and cluster entries, and give the settings that name it."""

    def write(user: Any = None, *, cluster: Any = None, context: str | None = None, **more: Any) -> KubeSettings:
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": SERVER} | (cluster or {})}],
            "contexts": [
                {"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "team-a"}},
                {"name": "nobody", "context": {"cluster": "c"}},
            ],
            "users": [{"name": "u", "user": user or {}}],
            "current-context": "x",
        } | more
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(document))
        return KubeSettings(login=Kubeconfig(str(path), context))

    return write


PLANTED = secret()


def plugin(folder: Path, script: str) -> dict[str, Any]:
    """A real exec plugin: an executable file."""
    path = folder / "plugin"
    path.write_text("#!/bin/sh\n" + script)
    path.chmod(0o755)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path), "interactiveMode": "Never"}}


def credential(**status: str) -> str:
    answer = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    return f"cat <<'END'\n{json.dumps(answer)}\nEND\n"


# --- Reading ---------------------------------------------------------------------------------------------------------


def test_a_token_of_a_kubeconfig_stays_until_it_is_refused(written: Write) -> None:
    facts = read_connection_facts(written({"token": "abc"}))
    assert facts == ConnectionFacts(
        server=SERVER, scheme="Bearer", token="abc", namespace="team-a", renewal=Renewal.ON_REFUSAL
    )


def test_a_token_file_is_read_without_its_newline_and_read_again(written: Write, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")
    facts = read_connection_facts(written({"tokenFile": "token"}))
    assert (facts.token, facts.renewal) == ("abc", Renewal.REREAD)


def test_a_name_and_a_password_are_basic_authentication(written: Write) -> None:
    facts = read_connection_facts(written({"username": "u", "password": "p"}))
    assert (facts.scheme, facts.token) == ("Basic", base64.b64encode(b"u:p").decode())


def test_a_plugin_gives_a_token_and_its_end(written: Write, tmp_path: Path) -> None:
    script = 'test -n "$KUBERNETES_EXEC_INFO" || exit 1\n'
    facts = read_connection_facts(
        written(plugin(tmp_path, script + credential(token="abc", expirationTimestamp="2026-01-01T13:00:00+01:00")))
    )
    assert (facts.token, facts.expiration, facts.renewal) == ("abc", NOON, Renewal.EXPIRY)


def test_a_plugin_gives_a_certificate(written: Write, tmp_path: Path, person: Pair) -> None:
    facts = read_connection_facts(
        written(
            plugin(
                tmp_path,
                credential(clientCertificateData=person.certificate.decode(), clientKeyData=person.key.decode()),
            )
        )
    )
    assert facts.token is None
    assert facts.certificate_data == person.certificate
    assert facts.private_key_data == person.key
    assert build_ssl_context(facts) is not None


def test_certificates_come_from_data_and_from_files(written: Write, tmp_path: Path, person: Pair) -> None:
    (tmp_path / "cert.pem").write_bytes(person.certificate)
    (tmp_path / "key.pem").write_bytes(person.key)
    from_files = read_connection_facts(written({"client-certificate": "cert.pem", "client-key": "key.pem"}))
    from_data = read_connection_facts(
        written({"client-certificate-data": data(person.certificate), "client-key-data": data(person.key)})
    )
    assert from_files == from_data
    assert from_files.certificate_data == person.certificate


def test_the_cluster_entry_is_followed(written: Write, authority: Authority) -> None:
    facts = read_connection_facts(
        written(
            {"token": "abc"},
            cluster={
                "server": "https://rancher.example/k8s/clusters/c-1/",
                "certificate-authority-data": data(authority.certificate),
                "tls-server-name": "kubernetes",
                "proxy-url": "http://proxy.example:3128",
            },
        )
    )
    assert facts.server == "https://rancher.example/k8s/clusters/c-1"
    assert facts.ca_data == authority.certificate
    assert facts.tls_server_name == "kubernetes"
    assert facts.proxy_url == "http://proxy.example:3128"
    assert not facts.insecure


def test_a_named_context_outranks_the_current_one_and_may_have_no_user(written: Write) -> None:
    facts = read_connection_facts(
        written({"token": "abc"}, context="nobody", cluster={"server": "http://127.0.0.1:8001"})
    )
    assert (facts.server, facts.token, facts.namespace) == ("http://127.0.0.1:8001", None, None)


def test_several_files_are_one_kubeconfig(written: Write, tmp_path: Path) -> None:
    settings = written({"token": "abc"})
    assert isinstance(settings.login, Kubeconfig)
    other = tmp_path / "other"
    other.write_text(yaml.safe_dump({"contexts": [], "clusters": [], "users": []}))
    paths = os.pathsep.join([str(tmp_path / "missing"), settings.login.paths, str(other)])
    assert read_connection_facts(KubeSettings(login=Kubeconfig(paths))).token == "abc"


def test_a_pods_service_account_is_read(tmp_path: Path, authority: Authority) -> None:
    facts = read_connection_facts(service_account(tmp_path, authority, "abc\n"))
    assert facts == ConnectionFacts(
        server="https://[fd00::1]:443",
        ca_data=authority.certificate,
        scheme="Bearer",
        token="abc",
        namespace="operators",
        renewal=Renewal.REREAD,
    )


def service_account(folder: Path, authority: Authority, token: str) -> KubeSettings:
    (folder / "token").write_text(token)
    (folder / "ca.crt").write_bytes(authority.certificate)
    (folder / "namespace").write_text("operators\n")
    return KubeSettings(login=InCluster("fd00::1", "443", folder))


def test_reading_writes_no_file_so_that_no_kill_can_leave_one(
    written: Write, person: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = credential(clientCertificateData=person.certificate.decode(), clientKeyData=person.key.decode())
    by_plugin = plugin(tmp_path, certificate)
    by_data = {"client-certificate-data": data(person.certificate), "client-key-data": data(person.key)}
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "not-there"))

    for user in (by_data, by_plugin):
        facts = read_connection_facts(written(user))
        build_ssl_context(facts)

        assert facts.private_key_data == person.key


def test_two_threads_that_read_at_once_do_not_delete_each_others_files(written: Write, person: Pair) -> None:
    settings = written({"client-certificate-data": data(person.certificate), "client-key-data": data(person.key)})
    with ThreadPoolExecutor(4) as threads:
        read = list(threads.map(read_connection_facts, [settings] * 80))
    assert {facts.private_key_data for facts in read} == {person.key}


def test_secrets_are_not_in_the_repr(person: Pair) -> None:
    facts = ConnectionFacts(
        server=SERVER,
        scheme="Bearer",
        token=SECRET,
        proxy_url=f"http://u:{SECRET}@proxy.example",
        certificate_data=person.certificate,
        private_key_data=person.key,
    )
    assert SECRET not in repr(facts)
    assert "PRIVATE KEY" not in repr(facts)


# --- What cannot be used ---------------------------------------------------------------------------------------------


def refusal(settings: KubeSettings) -> str:
    with pytest.raises(CredentialsUnusable) as refused:
        build_ssl_context(read_connection_facts(settings))
    return str(refused.value)


@pytest.mark.parametrize(
    ("user", "cluster", "words"),
    [
        ({"token": SECRET}, {"server": "http://api.example"}, "must be https://"),
        ({"token": SECRET}, {"server": "api.example"}, "begins with https://"),
        ({"token": f"{SECRET} x"}, {}, "white space"),
        ({"token": f"{SECRET}\x07"}, {}, "control characters"),
        ({"token": SECRET}, {"proxy-url": "socks5://proxy.example"}, "SOCKS"),
        ({"tokenFile": "missing"}, {}, "missing"),
        ({"client-certificate": "missing", "client-key": "missing"}, {}, "does not exist"),
        ({"client-certificate-data": SECRET}, {}, "not base64"),
        ({"client-certificate-data": data(b"x")}, {}, "needs its key"),
        ({"client-certificate-data": data(b"x"), "client-key-data": data(SECRET.encode())}, {}, "not PEM"),
        ({"token": SECRET}, {"certificate-authority-data": data(b"x")}, "certificate-authority"),
        ([SECRET], {}, "not a mapping"),
    ],
)
def test_what_cannot_be_used_is_named_and_never_shown(written: Write, user: Any, cluster: Any, words: str) -> None:
    text = refusal(written(user, cluster=cluster))
    assert words in text
    assert SECRET not in text


def test_a_missing_kubeconfig_names_the_ways_out(tmp_path: Path) -> None:
    text = refusal(KubeSettings(login=Kubeconfig(str(tmp_path / "missing"))))
    assert str(tmp_path / "missing") in text
    assert "KUBECONFIG" in text


def test_a_kubeconfig_that_is_no_yaml_names_its_line_only(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(f"users:\n  - token: {SECRET}: {SECRET}\n")
    text = refusal(KubeSettings(login=Kubeconfig(str(path))))
    assert text == "The kubeconfig is not YAML (line 2)."


@pytest.mark.parametrize("content", ["", "[]", "x", "clusters: 3", "current-context: x", "contexts: {}"])
def test_a_kubeconfig_of_another_form_is_refused_in_one_sentence(tmp_path: Path, content: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(content)
    assert "\n" not in refusal(KubeSettings(login=Kubeconfig(str(path))))


def test_an_unknown_user_is_named_and_not_taken_for_nobody(written: Write) -> None:
    assert "user u," in refusal(written(users=[]))
    assert "user u," in refusal(written(users=[{"name": "other", "user": {"token": SECRET}}]))


def test_an_unknown_context_is_named(written: Write) -> None:
    assert "elsewhere" in refusal(written({"token": "abc"}, context="elsewhere"))


@pytest.mark.parametrize("script", ["exit 3\n", "echo nonsense\n", credential()])
def test_a_plugin_without_credentials_is_named(
    written: Write, tmp_path: Path, script: str, caplog: pytest.LogCaptureFixture
) -> None:
    text = refusal(written(plugin(tmp_path, script)))
    assert str(tmp_path / "plugin") in text
    assert "run it by hand" in text


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(f"echo {PLANTED} >&2; exit 3\n", id="a complaint"),
        pytest.param(f"echo {PLANTED}\n", id="no JSON"),
        pytest.param(credential(token=PLANTED, expirationTimestamp=PLANTED), id="no moment"),
    ],
)
def test_what_a_plugin_wrote_is_neither_logged_nor_shown(
    written: Write, tmp_path: Path, script: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # A command for people sets up no logging; then the first line that is logged makes a handler.
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    with contextlib.suppress(CredentialsUnusable):
        read_connection_facts(written(plugin(tmp_path, script)))

    assert capfd.readouterr() == ("", "")
    assert logging.getLogger().handlers == []
    assert logging.getLogger().filters == []


async def test_a_plugin_that_never_ends_does_not_keep_us(written: Write, tmp_path: Path) -> None:
    entry = plugin(tmp_path, f"mkfifo {tmp_path}/end; cat {tmp_path}/end; exit 1\n")
    login = written(entry).login
    settings = KubeSettings(login=login, login_timeout=timedelta(milliseconds=500))
    with pytest.raises(CredentialsUnusable, match=r"within 0\.5 s"):
        await load_credentials(settings, clock=HandClock())
    async with asyncio.timeout(10):
        # The plugin is let go, so that its thread ends with the test.
        await asyncio.to_thread(lambda: (tmp_path / "end").open("w").close())


@pytest.mark.parametrize("missing", ["token", "ca.crt"])
def test_a_pod_without_a_file_of_its_account_is_told_so(tmp_path: Path, authority: Authority, missing: str) -> None:
    settings = service_account(tmp_path, authority, "abc")
    (tmp_path / missing).unlink()
    assert "does not exist" in refusal(settings)


# --- Changing --------------------------------------------------------------------------------------------------------


async def test_a_rotated_token_file_is_seen_within_a_minute(tmp_path: Path, authority: Authority) -> None:
    clock = HandClock()
    credentials = await load_credentials(service_account(tmp_path, authority, "first"), clock=clock)
    first = await credentials.current()
    (tmp_path / "token").write_text("second")
    clock.passed += timedelta(seconds=59)
    assert (await credentials.current()) is first
    clock.passed += timedelta(seconds=1)
    second = await credentials.current()
    assert (first.authorization, second.authorization) == ("Bearer first", "Bearer second")
    assert second.ssl_context is first.ssl_context


async def test_a_token_file_that_says_the_same_gives_the_same_login(tmp_path: Path, authority: Authority) -> None:
    clock = HandClock()
    credentials = await load_credentials(service_account(tmp_path, authority, "first"), clock=clock)
    first = await credentials.current()
    clock.passed += timedelta(minutes=2)
    assert (await credentials.current()) is first


def expiring(seconds: int) -> Facts:
    return Facts(
        ConnectionFacts(
            server=SERVER,
            scheme="Bearer",
            token="first",
            expiration=NOON + timedelta(seconds=seconds),
            renewal=Renewal.EXPIRY,
        )
    )


@pytest.mark.parametrize(
    ("life", "renewed_after"),
    [pytest.param(3600, 3300, id="five minutes before"), pytest.param(100, 80, id="at 80 % of a short life")],
)
async def test_a_token_is_renewed_before_its_end(life: int, renewed_after: int) -> None:
    clock, read = HandClock(), expiring(life)
    credentials = await load_credentials(KubeSettings(), clock=clock, read=read)
    clock.passed = timedelta(seconds=renewed_after) - timedelta(microseconds=1)
    await credentials.current()
    assert read.readings == 1
    clock.passed = timedelta(seconds=renewed_after)
    read.change(token="second", expiration=NOON + timedelta(hours=9))
    assert (await credentials.current()).authorization == "Bearer second"
    assert read.readings == 2


async def test_a_token_that_comes_expired_starts_no_storm() -> None:
    clock, read = HandClock(), expiring(-60)
    credentials = await load_credentials(KubeSettings(), clock=clock, read=read)
    for _ in range(100):
        await credentials.current()
    assert read.readings == 2
    clock.passed += timedelta(seconds=10)
    await credentials.current()
    assert read.readings == 3


async def test_a_reload_that_fails_keeps_what_was_there_and_is_told(caplog: pytest.LogCaptureFixture) -> None:
    clock = HandClock()
    read = expiring(100)

    def fail_later(settings: KubeSettings) -> ConnectionFacts:
        if read.readings:
            read.readings += 1
            raise CredentialsUnusable("The plugin is gone.")
        return read(settings)

    credentials = await load_credentials(KubeSettings(), clock=clock, read=fail_later)
    first = await credentials.current()
    clock.passed = timedelta(seconds=90)
    with caplog.at_level(logging.WARNING):
        assert (await credentials.current()) is first
        assert (await credentials.current()) is first
    assert read.readings == 2
    assert [record.getMessage() for record in caplog.records] == [
        "The credentials for the Kubernetes API could not be read again; the old ones stay in use."
    ]


async def test_a_stray_401_reads_again_once_in_ten_seconds() -> None:
    clock, read = HandClock(), Facts(ConnectionFacts(server=SERVER, scheme="Bearer", token="first"))
    credentials = await load_credentials(KubeSettings(), clock=clock, read=read)
    login = await credentials.current()
    for _ in range(5):
        assert await credentials.renew(login) is None
    assert read.readings == 2
    clock.passed += timedelta(seconds=10)
    read.change(token="second")
    newer = await credentials.renew(login)
    assert newer is not None
    assert newer.authorization == "Bearer second"
    clock.passed += timedelta(seconds=10)
    assert await credentials.renew(login) is newer
    assert read.readings == 3


# --- TLS, really -----------------------------------------------------------------------------------------------------


async def test_the_server_is_checked_and_our_certificate_is_presented(authority: Authority, person: Pair) -> None:
    context = server_context(authority, "127.0.0.1")
    context.load_verify_locations(cadata=authority.certificate.decode())
    context.verify_mode = ssl.CERT_REQUIRED
    await asks(
        context,
        ca_data=authority.certificate,
        certificate_data=person.certificate,
        private_key_data=person.key,
    )


async def test_a_server_of_another_authority_is_refused(authority: Authority) -> None:
    stranger = Authority(now=datetime.now(UTC))
    with pytest.raises(Unreachable, match="certificate is not accepted"):
        await asks(server_context(authority, "127.0.0.1"), ca_data=stranger.certificate)


async def test_an_insecure_cluster_is_not_checked(authority: Authority) -> None:
    await asks(server_context(authority, "elsewhere.example"), insecure=True)


async def test_a_server_under_another_name_needs_that_name(authority: Authority) -> None:
    context = server_context(authority, "kubernetes")
    await asks(context, ca_data=authority.certificate, tls_server_name="kubernetes")
    with pytest.raises(Unreachable, match="certificate is not accepted"):
        await asks(context, ca_data=authority.certificate)


def server_context(authority: Authority, name: str) -> ssl.SSLContext:
    pair = authority.issue_server(name)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        chain = Path(folder) / "chain"
        chain.write_bytes(pair.certificate + pair.key)
        context.load_cert_chain(chain)
    return context


async def asks(context: ssl.SSLContext, **facts: Any) -> None:
    """Make one call to a TLS server with these facts."""
    server = await Server().start(context)
    settings = KubeSettings()
    known = ConnectionFacts(server=server.url, **facts)
    credentials = await load_credentials(settings, clock=HandClock(), read=lambda _settings: known)
    try:
        async with KubeClient(credentials, settings, HandClock(), lambda _report: None) as client:
            await client.get("a", "b")
    finally:
        await server.stop()
