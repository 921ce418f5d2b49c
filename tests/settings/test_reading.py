"""The environment: every fault at once, no secret shown, and a hint for every typo."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.engine.settings import EngineSettings
from controller.logs import LogFormat, LogLevel, LogSettings
from controller.plan.hold_settings import HoldSettings
from controller.plan.lease import LeaseTimes
from controller.settings import (
    ElectionSettings,
    OwnTokenSettings,
    SettingsFaulty,
    TokenFile,
    is_debug,
    read_cache_folder,
    read_operator_settings,
)
from controller.settings.table import VARIABLES, Reader, render_settings_help, render_settings_page
from controller.sprites.settings import SpritesSettings
from controller.sprites.token import Token
from tests.support.secrecy import Kind, secret

PLANTED = secret(Kind.SPRITES)


def prefixed(**values: str) -> dict[str, str]:
    return {f"AGENTTERMINAL_{name}": value for name, value in values.items()}


def faults_of(environ: dict[str, str]) -> dict[str, str]:
    """Every fault's sentence by the name of its variable."""
    with pytest.raises(SettingsFaulty) as caught:
        read_operator_settings(environ)
    return {fault.name.removeprefix("AGENTTERMINAL_"): str(fault) for fault in caught.value.faults}


def test_an_empty_environment_is_a_working_one() -> None:
    settings = read_operator_settings({})

    assert settings.sprites == SpritesSettings()
    assert settings.engine == EngineSettings()
    assert settings.log == LogSettings()
    assert settings.hold == HoldSettings()
    assert settings.own_token is None
    assert settings.namespaces is None
    assert (settings.metrics_address, settings.metrics_port) == ("127.0.0.1", 9464)
    assert settings.sprites_requests_per_second == 100
    assert settings.remarks == ()


def test_every_variable_is_read() -> None:
    settings = read_operator_settings(
        prefixed(
            SPRITES_URL="http://127.0.0.1:8080/",
            SPRITES_TOKEN_FILE="/run/secrets/token",
            OWN_TOKEN_NAMESPACES="team-a, team-*",
            OWN_TOKEN_SPRITES="*",
            NAMESPACES="team-a,team-b",
            METRICS_ADDRESS="::",
            METRICS_PORT="0",
            METRICS_NAMES="0",
            WORKERS="3",
            SPRITES_REQUESTS_PER_SECOND="7",
            METADATA_SECONDS="5",
            RESYNC_SECONDS="10",
            LOG_LEVEL="DEBUG",
            LOG_FORMAT="json",
            HOLD_EXPIRE_SECONDS="600",
            HOLD_REFRESH_MS="120000",
            DEBUG="1",
        )
    )

    assert settings.sprites.base_url == "http://127.0.0.1:8080"
    assert settings.own_token == OwnTokenSettings(TokenFile(Path("/run/secrets/token")), ("team-a", "team-*"), ("*",))
    assert settings.namespaces == ("team-a", "team-b")
    assert (settings.metrics_address, settings.metrics_port) == ("::", 0)
    assert settings.engine.metrics_names == 0
    assert settings.engine.workers == 3
    assert settings.engine.metadata_interval == timedelta(seconds=5)
    assert settings.engine.resync.interval == timedelta(seconds=10)
    assert settings.sprites_requests_per_second == 7
    assert settings.log == LogSettings(LogLevel.DEBUG, LogFormat.JSON)
    assert settings.hold == HoldSettings(timedelta(seconds=600), timedelta(seconds=120))


def test_without_a_word_about_it_one_of_several_is_elected_as_everywhere() -> None:
    election = ElectionSettings(None, "agentterminal-operator", LeaseTimes())

    assert read_operator_settings({}).election == election
    assert read_operator_settings(prefixed(ELECTION="1")).election == election


def test_every_variable_of_the_election_is_read() -> None:
    settings = read_operator_settings(
        prefixed(
            LEASE_NAMESPACE="team-a",
            LEASE_NAME="release.operator",
            LEASE_DURATION_SECONDS="3",
            LEASE_RENEW_SECONDS="2",
            LEASE_RETRY_SECONDS="1",
        )
    )

    times = LeaseTimes(timedelta(seconds=3), timedelta(seconds=2), timedelta(seconds=1))
    assert settings.election == ElectionSettings("team-a", "release.operator", times)
    assert settings.lease_namespace == "team-a"


def test_the_leases_of_gateways_are_found_without_an_election_too() -> None:
    assert read_operator_settings(prefixed(ELECTION="0", LEASE_NAMESPACE="team-a")).lease_namespace == "team-a"
    assert read_operator_settings({}).lease_namespace is None


def test_an_operator_that_is_alone_may_do_without_an_election() -> None:
    assert read_operator_settings(prefixed(ELECTION="0")).election is None


@pytest.mark.parametrize("is_elected", ["0", "1"])
def test_times_of_an_election_that_contradict_each_other_are_told_with_the_way_out(is_elected: str) -> None:
    assert faults_of(prefixed(ELECTION=is_elected, LEASE_RENEW_SECONDS="11", LEASE_RETRY_SECONDS="6")) == {
        "LEASE_RENEW_SECONDS": "AGENTTERMINAL_LEASE_RENEW_SECONDS is '11', but must be at least twice "
        "AGENTTERMINAL_LEASE_RETRY_SECONDS, which is 6. Set it to 12 or more, or the other lower.",
        "LEASE_DURATION_SECONDS": "AGENTTERMINAL_LEASE_DURATION_SECONDS is '15', but must be at least one and a half "
        "times AGENTTERMINAL_LEASE_RENEW_SECONDS, which is 11. Set it to 17 or more, or the other lower.",
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ELECTION", "yes"),
        ("LEASE_NAMESPACE", "Team_A"),
        ("LEASE_NAMESPACE", "a" * 64),
        ("LEASE_NAME", "-operator"),
        ("LEASE_NAME", "a" * 254),
        ("LEASE_DURATION_SECONDS", "301"),
        ("LEASE_DURATION_SECONDS", "2"),
        ("LEASE_RENEW_SECONDS", "1"),
        ("LEASE_RENEW_SECONDS", "201"),
        ("LEASE_RETRY_SECONDS", "0"),
        ("LEASE_RETRY_SECONDS", "101"),
    ],
)
def test_each_variable_of_the_election_has_its_bounds(name: str, value: str) -> None:
    assert list(faults_of(prefixed(**{name: value}))) == [name]


def test_all_faults_are_told_at_once_with_name_value_and_rule() -> None:
    faults = faults_of(
        prefixed(
            WORKERS="many",
            METRICS_PORT="65536",
            LOG_LEVEL="loud",
            NAMESPACES="Team_A",
            METRICS_ADDRESS="here",
            RESYNC_SECONDS="9",
            DEBUG="yes",
        )
    )

    assert faults == {
        "WORKERS": "AGENTTERMINAL_WORKERS is 'many', but must be a whole number from 1 to 256, without a unit. "
        "Unset it for: 16.",
        "METRICS_PORT": "AGENTTERMINAL_METRICS_PORT is '65536', but must be a whole number from 0 to 65,535, without a "
        "unit. Unset it for: 9464.",
        "LOG_LEVEL": "AGENTTERMINAL_LOG_LEVEL is 'loud', but must be one of debug, info, warning, error. "
        "Unset it for: info.",
        "NAMESPACES": "AGENTTERMINAL_NAMESPACES is 'Team_A', but must be names of namespaces (a-z, 0-9 and -), "
        "separated by commas. Unset it for: all.",
        "METRICS_ADDRESS": "AGENTTERMINAL_METRICS_ADDRESS is 'here', but must be an IP address of this machine. "
        "Unset it for: 127.0.0.1.",
        "RESYNC_SECONDS": "AGENTTERMINAL_RESYNC_SECONDS is '9', but must be a whole number from 10 to 3,600, without a "
        "unit. Unset it for: 120.",
        "DEBUG": "AGENTTERMINAL_DEBUG is 'yes', but must be 0 or 1. Unset it for: 0.",
    }


@pytest.mark.parametrize(
    "text", ["0", "257", "-1", "+1", "1.0", "1e1", "16s", "1 6", " 16", "٣", "0x10", "1_0", "9" * 30, "16\n"]
)
def test_a_number_is_digits_in_range_and_nothing_else(text: str) -> None:
    assert set(faults_of(prefixed(WORKERS=text))) == {"WORKERS"}


@pytest.mark.parametrize(
    "url",
    [
        "http://api.sprites.dev",
        "https://",
        "api.sprites.dev",
        "ftp://127.0.0.1",
        "https://h:0",
        "https://h:99999",
        "https://h/a b",
        "https://h#x",
        "http://127.0.0.1.example",
    ],
)
def test_the_token_is_sent_only_to_an_address_that_nobody_else_can_read(url: str) -> None:
    assert set(faults_of(prefixed(SPRITES_URL=url))) == {"SPRITES_URL"}


@pytest.mark.parametrize(
    "url", ["http://localhost:1", "http://[::1]:80", "https://sprites.example/base", "https://h:1"]
)
def test_an_encrypted_address_or_this_machine_will_do(url: str) -> None:
    assert read_operator_settings(prefixed(SPRITES_URL=url)).sprites.base_url == url


@pytest.mark.parametrize("names", ["a,,b", ",", "a b", "-a", "a-", "A", "a.b", "x" * 64, "a;b"])
def test_a_list_has_no_empty_or_odd_names(names: str) -> None:
    assert set(faults_of(prefixed(NAMESPACES=names))) == {"NAMESPACES"}


def test_a_list_may_have_spaces_after_its_commas() -> None:
    assert read_operator_settings(prefixed(NAMESPACES="a, b")).namespaces == ("a", "b")


@pytest.mark.parametrize(
    ("environ", "faulty"),
    [
        pytest.param(prefixed(SPRITES_TOKEN="a b"), {"SPRITES_TOKEN"}, id="white space inside"),
        pytest.param(prefixed(SPRITES_TOKEN="a", SPRITES_TOKEN_FILE="/t"), {"SPRITES_TOKEN"}, id="token and file"),
        pytest.param(prefixed(SPRITES_TOKEN_FILE="t"), {"SPRITES_TOKEN_FILE"}, id="a relative path"),
        pytest.param(
            prefixed(SPRITES_TOKEN="a", OWN_TOKEN_NAMESPACES="*"), {"OWN_TOKEN_SPRITES"}, id="namespaces alone"
        ),
        pytest.param(prefixed(SPRITES_TOKEN="a", OWN_TOKEN_SPRITES="*"), {"OWN_TOKEN_NAMESPACES"}, id="sprites alone"),
        pytest.param(
            prefixed(OWN_TOKEN_NAMESPACES="*", OWN_TOKEN_SPRITES="*"), {"SPRITES_TOKEN_FILE"}, id="whom, but no token"
        ),
        pytest.param(
            prefixed(SPRITES_TOKEN="a", OWN_TOKEN_NAMESPACES="[a]", OWN_TOKEN_SPRITES="*"),
            {"OWN_TOKEN_NAMESPACES"},
            id="a pattern beyond * and ?",
        ),
    ],
)
def test_the_own_token_has_one_source_and_says_whom_it_serves(environ: dict[str, str], faulty: set[str]) -> None:
    assert set(faults_of(environ)) == faulty


def test_the_own_token_serves_nobody_until_somebody_is_named() -> None:
    settings = read_operator_settings(prefixed(SPRITES_TOKEN=PLANTED))

    assert settings.own_token == OwnTokenSettings(Token(PLANTED), (), ())


@pytest.mark.parametrize(
    "environ",
    [
        prefixed(SPRITES_TOKEN=f"{PLANTED} x"),
        prefixed(SPRITES_TOKEN=PLANTED, SPRITES_TOKEN_FILE="/t"),
        prefixed(SPRITES_TOKEN_FILE=PLANTED),
        prefixed(SPRITES_URL=f"https://user:{PLANTED}@host"),
        prefixed(SPRITES_URL=f"http://host/?token={PLANTED}"),
        prefixed(SPRITES_TOKEN=PLANTED, WORKERS="x"),
        # A token in the wrong place.
        prefixed(SPRITES_URL=f"acme/1/{PLANTED}/{PLANTED}"),
        prefixed(LOG_LEVEL=f"eyJhbGciOiJSUzI1NiJ9.{PLANTED}"),
        prefixed(WORKERS=f"0123456789abcdef0123456789abcdef-{PLANTED}"),
    ],
)
def test_no_fault_ever_shows_a_secret(environ: dict[str, str]) -> None:
    with pytest.raises(SettingsFaulty) as caught:
        read_operator_settings(environ)

    assert PLANTED not in str(caught.value)
    assert PLANTED not in repr(caught.value.faults)


def test_no_remark_shows_a_token_in_the_wrong_place() -> None:
    settings = read_operator_settings(prefixed(HOLD_EXPIRE_SECONDS=f"acme/1/{PLANTED}/{PLANTED}"))

    assert len(settings.remarks) == 1
    assert PLANTED not in repr(settings.remarks)


def test_settings_can_be_printed_without_their_secret() -> None:
    settings = read_operator_settings(prefixed(SPRITES_TOKEN=PLANTED))

    assert PLANTED not in repr(settings)
    assert PLANTED not in str(settings)


def test_a_long_or_odd_value_is_shown_short_and_on_one_line() -> None:
    shown = faults_of(prefixed(LOG_LEVEL="loud\n\x1b[31m" + "x" * 500))["LOG_LEVEL"]

    assert len(shown) < 200
    assert shown.isprintable()


@pytest.mark.case("G7")
def test_a_hold_setting_is_never_a_fault_but_its_fall_back_is_remarked() -> None:
    settings = read_operator_settings(prefixed(HOLD_EXPIRE_SECONDS="5m", HOLD_REFRESH_MS="150001"))

    assert settings.hold == HoldSettings()
    expire, refresh = (remark.sentence for remark in settings.remarks)
    assert expire == (
        "AGENTTERMINAL_HOLD_EXPIRE_SECONDS is '5m', which is not a whole number from 1 to 3600, in ASCII digits and "
        "nothing else; 300 is used."
    )
    assert refresh == (
        "AGENTTERMINAL_HOLD_REFRESH_MS is '150001', which is not a whole number from 1 to 150000 (half the expiry), in "
        "ASCII digits and nothing else; 60000 is used."
    )


def test_an_unknown_name_is_remarked_with_the_nearest_known_one_and_without_its_value() -> None:
    settings = read_operator_settings(prefixed(WORKER="3", SPRITE_TOKEN=PLANTED, QQQ="1") | {"OTHER": "1"})

    assert [remark.sentence for remark in settings.remarks] == [
        "AGENTTERMINAL_QQQ is not a setting and is ignored. `agentterminal operator --help` lists all.",
        "AGENTTERMINAL_SPRITE_TOKEN is not a setting and is ignored. Did you mean AGENTTERMINAL_SPRITES_TOKEN?",
        "AGENTTERMINAL_WORKER is not a setting and is ignored. Did you mean AGENTTERMINAL_WORKERS?",
    ]


def test_the_links_that_kubernetes_puts_into_every_pod_are_no_typo() -> None:
    links = prefixed(
        OPERATOR_SERVICE_HOST="10.0.0.1",
        OPERATOR_SERVICE_PORT="1",
        OPERATOR_SERVICE_PORT_METRICS="1",
        OPERATOR_PORT="tcp://10.0.0.1:1",
        OPERATOR_PORT_1_TCP="tcp://10.0.0.1:1",
        OPERATOR_PORT_1_TCP_ADDR="10.0.0.1",
    )

    assert read_operator_settings(links).remarks == ()


@pytest.mark.parametrize("name", [variable.name for variable in VARIABLES])
def test_an_empty_text_counts_as_not_set(name: str) -> None:
    assert replace(read_operator_settings({name: ""}), remarks=()) == read_operator_settings({})


@given(st.dictionaries(st.sampled_from([variable.name for variable in VARIABLES]), st.text()))
def test_whatever_is_set_either_everything_is_read_or_every_fault_has_a_rule(environ: dict[str, str]) -> None:
    try:
        read_operator_settings(environ)
    except SettingsFaulty as faulty:
        for fault in faulty.faults:
            assert fault.rule.startswith("must")
            assert fault.way_out.endswith(".")


def test_the_cache_folder_is_the_named_one_else_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")

    assert read_cache_folder(prefixed(CACHE="/elsewhere")) == Path("/elsewhere")
    assert read_cache_folder({"XDG_CACHE_HOME": "/caches"}) == Path("/caches/agentterminal")
    assert read_cache_folder({"XDG_CACHE_HOME": "relative"}) == Path("/home/somebody/.cache/agentterminal")
    assert read_cache_folder({}) == Path("/home/somebody/.cache/agentterminal")


def test_a_relative_cache_folder_is_a_fault_rather_than_a_folder_in_an_unknown_place() -> None:
    with pytest.raises(SettingsFaulty, match="AGENTTERMINAL_CACHE is 'cache', but must be an absolute path"):
        read_cache_folder(prefixed(CACHE="cache"))


@pytest.mark.parametrize(("text", "debug"), [("1", True), ("0", False), ("", False), ("yes", False)])
def test_debug_is_on_only_when_it_is_clearly_asked_for(text: str, debug: bool) -> None:
    assert is_debug(prefixed(DEBUG=text)) is debug


def test_help_and_page_name_every_variable_with_its_rule_and_default() -> None:
    page, help_text = render_settings_page(), render_settings_help()

    for variable in VARIABLES:
        row = next(line for line in page.splitlines() if f"`{variable.name}`" in line and line.startswith("|"))
        assert variable.rule.sentence in row
        assert variable.default_words in row
        assert (variable.name in help_text) == (variable.reader not in (Reader.LAB, Reader.GATEWAY, Reader.ATTACH))
    assert max(len(line) for line in help_text.splitlines()) < 80
