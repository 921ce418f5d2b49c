"""
Who we are to the API server, and how we know that it is the API server.

Problem: tokens rotate in files, plugins hand out tokens for minutes, and a client that reads them once goes deaf within
the hour; a client that reads them on every 401 runs a plugin storm. Promise: the `kubernetes` package's own loaders
read kubeconfig files, exec plugins and the service account; a file is read again every minute, a token that tells its
end is
renewed before it, and a 401 reads again once; a reload that fails keeps what still works. No file of ours outlives the
reading, however we end: what a loader writes for `ssl` lies in memory (`private_files`).

The environment's proxy variables are not trusted: a proxy meant for the way to Sprites would take the API server's
traffic as well wherever `NO_PROXY` was forgotten. A kubeconfig's own `proxy-url` is honoured.
"""

import asyncio
import binascii
import contextlib
import ipaddress
import logging
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, assert_never
from urllib.parse import urlsplit

import yaml
from kubernetes.config import ConfigException, incluster_config, kube_config

from controller.clock import Clock
from controller.errors import AgentTerminalError
from controller.kube.private_files import PrivateFiles
from controller.kube.settings import InCluster, Kubeconfig, KubeSettings

log = logging.getLogger(__name__)

_LOADING: Final = threading.Lock()
"""What the loaders write with belongs to their module: two threads would drop each other's files."""

_KUBECONFIG: Final[Any] = kube_config
_IN_CLUSTER: Final[Any] = incluster_config
"""The loaders carry no types, although their package says it does."""

_EXPIRED_SHARE: Final = 0.2
"""Of a token's life, the last part in which it is renewed at the latest."""


class CredentialsUnusable(AgentTerminalError):
    """There is nothing to log in with, or it cannot be used. The text names the file or field, never its value."""


class Renewal(StrEnum):
    """What makes the credentials change."""

    ON_REFUSAL = "OnRefusal"
    """Nothing that is known before a 401."""
    REREAD = "Reread"
    """They lie in a file that others rewrite."""
    EXPIRY = "Expiry"
    """They tell their own end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionFacts:
    """
    The raw pieces of one login, with nothing left in files. Secrets are kept out of its `repr`.

    Args:
        server: The base URL, without a slash at its end.
        ca_data: Whom we trust, in PEM; None is the system's list.
        insecure: The server's certificate is not checked.
        tls_server_name: The name in the server's certificate, where it is not the URL's.
        proxy_url: The kubeconfig's own proxy.
        scheme: `Bearer` or `Basic`; None where there is no token.
        token: What follows the scheme.
        certificate_data: The client's certificate, in PEM.
        private_key_data: Its key, in PEM.
        namespace: The namespace of the context, or of the pod.
        expiration: The end that the credentials tell.
        renewal: What makes them change.
    """

    server: str
    ca_data: bytes | None = field(default=None, repr=False)
    insecure: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = field(default=None, repr=False)
    scheme: str | None = None
    token: str | None = field(default=None, repr=False)
    certificate_data: bytes | None = field(default=None, repr=False)
    private_key_data: bytes | None = field(default=None, repr=False)
    namespace: str | None = None
    expiration: datetime | None = None
    renewal: Renewal = Renewal.ON_REFUSAL


@dataclass(frozen=True, slots=True, eq=False)
class Login:
    """What one request needs, as of one reading. Two logins are the same only if they are one."""

    facts: ConnectionFacts = field(repr=False)
    authorization: str | None = field(repr=False)
    ssl_context: ssl.SSLContext | None = field(repr=False)


def read_connection_facts(settings: KubeSettings) -> ConnectionFacts:
    """
    Read the credentials as they are now. It blocks, and may run an exec plugin: call it in a thread.

    Raises:
        CredentialsUnusable: With a sentence that names the file, the rule and the way out.
    """
    with _LOADING, _keeping_files_in_memory(), _saying_what_is_wrong():
        match settings.login:
            case InCluster():
                facts = _read_service_account(settings.login)
            case Kubeconfig():
                facts = _read_kubeconfig(settings.login)
            case _:
                assert_never(settings.login)
    _demand_usable(facts)
    return facts


def build_ssl_context(facts: ConnectionFacts) -> ssl.SSLContext | None:
    """
    Build what checks the server and presents our certificate; None for a plain HTTP server.

    The strict X.509 flag, which Python sets from 3.13 on, is taken off: cluster CAs without a key identifier are
    common, and every other Kubernetes client accepts them.

    Raises:
        CredentialsUnusable: When a certificate or key cannot be used.
    """
    if not facts.server.startswith("https:"):
        return None
    try:
        context = ssl.create_default_context(cadata=facts.ca_data.decode() if facts.ca_data else None)
    except (ssl.SSLError, UnicodeDecodeError):
        raise CredentialsUnusable("The cluster's certificate-authority is not a certificate in PEM.") from None
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if facts.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if facts.certificate_data is not None:
        _load_client_certificate(context, facts.certificate_data, facts.private_key_data)
    return context


class Credentials:
    """
    The current login, renewed when it is due. For one event loop.

    Args:
        login: The first one.
        settings: How often it is looked after.
        clock: The clocks.
        read: Reads the facts anew; it blocks.
    """

    def __init__(
        self, login: Login, *, settings: KubeSettings, clock: Clock, read: Callable[[], ConnectionFacts]
    ) -> None:
        self._login = login
        self._settings = settings
        self._clock = clock
        self._read = read
        self._lock = asyncio.Lock()
        self._due = self._plan_renewal(login.facts)
        self._not_before = timedelta(0)

    @property
    def server(self) -> str:
        """The base URL of the API server."""
        return self._login.facts.server

    @property
    def facts(self) -> ConnectionFacts:
        """The pieces of the current login."""
        return self._login.facts

    async def current(self) -> Login:
        """Give the login for the next request, renewed first if that is due; while one renews, the old one serves."""
        if self._due is not None and self._clock.monotonic() >= self._due and not self._lock.locked():
            async with self._lock:
                await self._reload()
        return self._login

    async def renew(self, refused: Login) -> Login | None:
        """
        Answer a 401: read again, unless somebody else just did.

        Returns:
            A login that differs from the refused one, or None: then the refusal stands.
        """
        async with self._lock:
            if self._login is refused and self._clock.monotonic() >= self._not_before:
                await self._reload()
            return self._login if self._login is not refused else None

    async def _reload(self) -> None:
        """Read anew. What was read before stays in use where that fails, or where it says the same."""
        self._not_before = self._clock.monotonic() + self._settings.reload_pause
        try:
            login = await _read_login(self._read, before=self._login, timeout=self._settings.login_timeout)
        except CredentialsUnusable as error:
            self._due = self._not_before
            log.warning(
                "The credentials for the Kubernetes API could not be read again; the old ones stay in use.",
                extra={"error": str(error)},
            )
            return
        self._login = login
        self._due = self._plan_renewal(login.facts)
        if self._due is not None:
            self._due = max(self._due, self._not_before)

    def _plan_renewal(self, facts: ConnectionFacts) -> timedelta | None:
        now = self._clock.monotonic()
        match facts.renewal:
            case Renewal.ON_REFUSAL:
                return None
            case Renewal.REREAD:
                return now + self._settings.token_reread
            case Renewal.EXPIRY:
                end = facts.expiration
                left = (end - self._clock.now()) if end is not None else self._settings.token_reread
                return now + left - min(self._settings.expiry_margin, max(left, timedelta(0)) * _EXPIRED_SHARE)
            case _:
                assert_never(facts.renewal)


async def load_credentials(
    settings: KubeSettings, *, clock: Clock, read: Callable[[KubeSettings], ConnectionFacts] = read_connection_facts
) -> Credentials:
    """
    Read the credentials for the first time.

    Args:
        settings: Where they are.
        clock: The clocks.
        read: Reads them; it blocks and runs in a thread.

    Raises:
        CredentialsUnusable: With a sentence for the person who starts us.
    """

    def again() -> ConnectionFacts:
        return read(settings)

    login = await _read_login(again, before=None, timeout=settings.login_timeout)
    return Credentials(login, settings=settings, clock=clock, read=again)


async def _read_login(read: Callable[[], ConnectionFacts], *, before: Login | None, timeout: timedelta) -> Login:
    """Read in a thread. The same facts give the same login; the same TLS pieces keep their context, so connections."""
    try:
        async with asyncio.timeout(timeout.total_seconds()):
            facts = await asyncio.to_thread(read)
    except TimeoutError:
        raise CredentialsUnusable(
            f"The credentials were not read within {timeout.total_seconds():g} s; look at the kubeconfig's exec plugin."
        ) from None
    if before is not None and before.facts == facts:
        return before
    if before is not None and _tls_pieces(before.facts) == _tls_pieces(facts):
        context = before.ssl_context
    else:
        context = build_ssl_context(facts)
    authorization = f"{facts.scheme} {facts.token}" if facts.token is not None else None
    return Login(facts, authorization, context)


def _tls_pieces(facts: ConnectionFacts) -> tuple[object, ...]:
    return (facts.server, facts.ca_data, facts.insecure, facts.certificate_data, facts.private_key_data)


# --- The loaders -----------------------------------------------------------------------------------------------------


def _read_service_account(login: InCluster) -> ConnectionFacts:
    loaded = SimpleNamespace(api_key={})
    _IN_CLUSTER.InClusterConfigLoader(
        token_filename=str(login.folder / "token"),
        cert_filename=str(login.folder / "ca.crt"),
        environ={_IN_CLUSTER.SERVICE_HOST_ENV_NAME: login.host, _IN_CLUSTER.SERVICE_PORT_ENV_NAME: login.port},
    ).load_and_set(loaded)
    scheme, token = _split_authorization(loaded.api_key.get("BearerToken"))
    namespace = login.folder / "namespace"
    return ConnectionFacts(
        server=loaded.host,
        ca_data=Path(loaded.ssl_ca_cert).read_bytes(),
        scheme=scheme,
        token=token,
        namespace=namespace.read_text().strip() if namespace.is_file() else None,
        renewal=Renewal.REREAD,
    )


def _read_kubeconfig(login: Kubeconfig) -> ConnectionFacts:
    merger = _KUBECONFIG.KubeConfigMerger(login.paths)
    if merger.config is None:
        raise CredentialsUnusable(
            f"No kubeconfig file at {login.paths}. Set KUBECONFIG to one, or run in a pod with a service account."
        )

    def persist() -> None:
        # A refreshed OIDC token goes back into the file, as kubectl has it; a file that cannot be written stops nobody.
        with contextlib.suppress(OSError):
            merger.save_changes()

    loader = _KUBECONFIG.KubeConfigLoader(
        config_dict=merger.config,
        active_context=login.context,
        config_base_path=None,
        config_persister=persist,
    )
    loaded = SimpleNamespace(api_key={})
    with _hushing_the_loader():
        loader.load_and_set(loaded)
    scheme, token = _split_authorization(loaded.api_key.get("BearerToken"))
    certificate = _read_if_named(getattr(loaded, "cert_file", None))
    chosen = merger.config["contexts"].get_with_name(login.context or loader.current_context["name"])["context"]
    user = _find_user(merger, chosen)
    if user is not None and "exec" in user and token is None and certificate is None:
        raise CredentialsUnusable(
            f"The exec plugin {user['exec'].safe_get('command')} of the kubeconfig's user {chosen.safe_get('user')} "
            "gave no credentials; run it by hand to see why."
        )
    expiration = getattr(loader, "expiry", None)
    return ConnectionFacts(
        server=getattr(loaded, "host", "").rstrip("/"),
        ca_data=_read_if_named(getattr(loaded, "ssl_ca_cert", None)),
        insecure=not getattr(loaded, "verify_ssl", True),
        tls_server_name=getattr(loaded, "tls_server_name", None),
        proxy_url=getattr(loaded, "proxy", None),
        scheme=scheme,
        token=token,
        certificate_data=certificate,
        private_key_data=_read_if_named(getattr(loaded, "key_file", None)),
        namespace=chosen.safe_get("namespace"),
        expiration=expiration.astimezone(UTC) if expiration is not None else None,
        renewal=_judge_renewal(user, has_end=expiration is not None),
    )


def _find_user(merger: Any, context: Any) -> Any:
    """Give the user's entry, or None where the context names none (`kubectl proxy` needs none)."""
    name = context.safe_get("user")
    if not name:
        return None
    users = merger.config.safe_get("users")
    entry = merger.config["users"].get_with_name(name, safe=True) if users else None
    if entry is None:
        raise CredentialsUnusable(f"The kubeconfig's context names the user {name}, and there is no such user in it.")
    # An entry without anything in it is an anonymous user, as kubectl has it.
    user = entry["user"] if entry.safe_get("user") else None
    if user is not None and not isinstance(user.value, dict):
        raise CredentialsUnusable(f"The kubeconfig's user {name} is not a mapping.")
    return user


def _judge_renewal(user: Any, *, has_end: bool) -> Renewal:
    if has_end:
        return Renewal.EXPIRY
    if user is not None and "tokenFile" in user and "token" not in user:
        return Renewal.REREAD
    return Renewal.ON_REFUSAL


def _split_authorization(value: str | None) -> tuple[str | None, str | None]:
    """Part the loaders' header value; they keep a file's last newline, and one of them writes the scheme small."""
    if not value:
        return None, None
    scheme, _, token = value.partition(" ")
    token = token.strip()
    return (scheme.capitalize(), token) if token else (None, None)


def _read_if_named(path: str | None) -> bytes | None:
    return Path(path).read_bytes() if path else None


@contextlib.contextmanager
def _keeping_files_in_memory() -> Iterator[None]:
    """
    Have the loader write its files where no end of ours leaves them behind; for one thread at a time.

    Observed (kubernetes 37.0.2): all that it writes, from the kubeconfig, a plugin or an OIDC provider, goes through
    one function of its module, and only some of it into the folder that one may name.
    """
    make_file = _KUBECONFIG._create_temp_file_with_content  # noqa: SLF001 - there is no public way
    with PrivateFiles() as files:

        def write(content: bytes | str, *_args: object, **_kwargs: object) -> str:
            return files.write(content.encode() if isinstance(content, str) else content)

        _KUBECONFIG._create_temp_file_with_content = write  # noqa: SLF001 - as above
        try:
            yield
        finally:
            _KUBECONFIG._create_temp_file_with_content = make_file  # noqa: SLF001 - as above


@contextlib.contextmanager
def _hushing_the_loader() -> Iterator[None]:
    """
    Let nothing be logged through the root logger meanwhile: nothing of ours is.

    Observed (kubernetes 37.0.2): the loader logs there all that a failing plugin wrote to its standard error, and the
    values of a credential that it cannot read; without a handler, as in a command for people, `logging` makes one that
    writes to the terminal (`test_what_a_plugin_wrote_is_neither_logged_nor_shown`).
    """

    def drop(_record: logging.LogRecord) -> bool:
        # One of its own for each call: several may load at once.
        return False

    root, nothing = logging.getLogger(), logging.NullHandler()
    root.addFilter(drop)
    root.addHandler(nothing)
    try:
        yield
    finally:
        root.removeHandler(nothing)
        root.removeFilter(drop)


@contextlib.contextmanager
def _saying_what_is_wrong() -> Iterator[None]:
    """Turn what the loaders raise into one sentence; a parser's text could show a piece of the file: left out."""
    try:
        yield
    except ConfigException as error:
        raise CredentialsUnusable(f"The credentials for the Kubernetes API cannot be used: {error}.") from None
    except yaml.MarkedYAMLError as error:
        line = f" (line {error.problem_mark.line + 1})" if error.problem_mark is not None else ""
        raise CredentialsUnusable(f"The kubeconfig is not YAML{line}.") from None
    except OSError as error:
        raise CredentialsUnusable(
            f"The credentials for the Kubernetes API cannot be read: {error.filename}: {error.strerror}."
        ) from None
    except (binascii.Error, UnicodeDecodeError):
        raise CredentialsUnusable("A value of the kubeconfig that ends in -data is not base64.") from None
    except (KeyError, TypeError, ValueError, AttributeError, yaml.YAMLError):
        raise CredentialsUnusable("The kubeconfig has not the form of one: clusters, contexts and users.") from None


def _demand_usable(facts: ConnectionFacts) -> None:
    """Refuse what could not work, or would send a token where anybody can read it."""
    parts = urlsplit(facts.server)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise CredentialsUnusable("The cluster's server must be a URL that begins with https://.")
    has_secret = facts.token is not None or facts.certificate_data is not None
    if parts.scheme == "http" and has_secret and not _is_loopback(parts.hostname):
        raise CredentialsUnusable("The cluster's server must be https://: a token would travel in the open.")
    if facts.token is not None and not re.fullmatch(r"[\x21-\x7e]+", facts.token):
        raise CredentialsUnusable("The token for the Kubernetes API has white space or control characters inside.")
    if facts.proxy_url is not None and urlsplit(facts.proxy_url).scheme not in {"http", "https"}:
        raise CredentialsUnusable("The cluster's proxy-url must begin with http:// or https://; SOCKS is not spoken.")
    if (facts.certificate_data is None) != (facts.private_key_data is None):
        raise CredentialsUnusable("A client certificate needs its key: set client-certificate and client-key both.")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _load_client_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes | None) -> None:
    """Hand both to `ssl`, which reads files only."""

    def refuse_password() -> str:
        raise CredentialsUnusable("The client key is encrypted; kubeconfig has no place for its password.")

    with PrivateFiles() as files:
        chain = files.write(certificate + b"\n" + (key or b""))
        try:
            context.load_cert_chain(chain, password=refuse_password)
        except ssl.SSLError:
            raise CredentialsUnusable("The client certificate and its key do not fit, or are not PEM.") from None
