"""What the gateway is told by its environment."""

from datetime import timedelta
from pathlib import Path

import pytest

from controller.gateway.settings import GatewaySettings, LimitSettings, TimeSettings, TlsFiles
from controller.gateway.stream import StreamSettings
from controller.logs import LogFormat, LogSettings
from controller.settings import OwnTokenSettings, SettingsFaulty, TokenFile, read_gateway_settings
from controller.settings.table import VARIABLES, Reader, render_settings_help, render_settings_page
from controller.sprites.settings import SpritesSettings

TLS = {"GATEWAY_TLS_CERT_FILE": "/tls/tls.crt", "GATEWAY_TLS_KEY_FILE": "/tls/tls.key"}


def prefixed(**values: str) -> dict[str, str]:
    return {f"AGENTTERMINAL_{name}": value for name, value in values.items()}


def faults_of(**values: str) -> dict[str, str]:
    """Every fault's sentence by the name of its variable."""
    with pytest.raises(SettingsFaulty) as caught:
        read_gateway_settings(prefixed(**values))
    return {fault.name.removeprefix("AGENTTERMINAL_"): str(fault) for fault in caught.value.faults}


def test_an_empty_environment_opens_doors_on_loopback_to_loopback_names_and_to_no_page() -> None:
    settings = read_gateway_settings({})

    assert settings.gateway == GatewaySettings()
    assert (settings.gateway.address, settings.gateway.tls, settings.gateway.origins) == ("127.0.0.1", None, ())
    assert settings.gateway.hosts == ("localhost", "127.0.0.1", "::1")
    assert (settings.sprites, settings.own_token, settings.remarks) == (SpritesSettings(), None, ())


def test_every_variable_is_read() -> None:
    settings = read_gateway_settings(
        prefixed(
            GATEWAY_ADDRESS="0.0.0.0",
            GATEWAY_PORT="0",
            GATEWAY_METRICS_ADDRESS="::",
            GATEWAY_METRICS_PORT="9000",
            **TLS,
            GATEWAY_PLAIN_ANYWHERE="1",
            GATEWAY_HOSTS="gw.example.com, 10.0.0.1, [::1], *",
            GATEWAY_ORIGINS="https://console.example.com, http://localhost:3000",
            GATEWAY_AUDIENCES="https://gw.example.com, gateway",
            GATEWAY_OWN_AUDIENCE_ONLY="1",
            GATEWAY_ADDRESS_REQUESTS_PER_SECOND="7",
            GATEWAY_PERSON_SOCKETS="8",
            GATEWAY_SOCKETS="9",
            GATEWAY_IDLE_SECONDS="600",
            SPRITES_URL="http://127.0.0.1:8080/",
            SPRITES_TOKEN_FILE="/run/secrets/token",
            OWN_TOKEN_NAMESPACES="team-a",
            OWN_TOKEN_SPRITES="*",
            LOG_FORMAT="json",
        )
    )

    assert settings.gateway == GatewaySettings(
        address="0.0.0.0",
        port=0,
        metrics_address="::",
        metrics_port=9000,
        tls=TlsFiles(Path("/tls/tls.crt"), Path("/tls/tls.key")),
        plain_anywhere=True,
        hosts=("gw.example.com", "10.0.0.1", "[::1]", "*"),
        origins=("https://console.example.com", "http://localhost:3000"),
        audiences=("https://gw.example.com", "gateway"),
        own_audience_only=True,
        limits=LimitSettings(
            address_requests_per_second=7, address_burst=21, person_sockets=8, sockets=9, connections=18
        ),
    )
    assert settings.sprites == SpritesSettings(base_url="http://127.0.0.1:8080/")
    assert settings.own_token == OwnTokenSettings(TokenFile(Path("/run/secrets/token")), ("team-a",), ("*",))
    assert settings.log == LogSettings(format=LogFormat.JSON)
    assert settings.streams == StreamSettings(idle_limit=timedelta(minutes=10))


def test_every_fault_is_told_at_once() -> None:
    faults = faults_of(
        GATEWAY_ADDRESS="everywhere",
        GATEWAY_PORT="65536",
        GATEWAY_HOSTS="gw.example.com:8443/",
        GATEWAY_ORIGINS="console.example.com",
        GATEWAY_AUDIENCES="a b",
        GATEWAY_OWN_AUDIENCE_ONLY="yes",
        GATEWAY_SOCKETS="0",
        GATEWAY_IDLE_SECONDS="59",
        GATEWAY_TLS_CERT_FILE="/tls/tls.crt",
    )

    assert set(faults) == {
        "GATEWAY_ADDRESS",
        "GATEWAY_PORT",
        "GATEWAY_HOSTS",
        "GATEWAY_ORIGINS",
        "GATEWAY_AUDIENCES",
        "GATEWAY_OWN_AUDIENCE_ONLY",
        "GATEWAY_SOCKETS",
        "GATEWAY_IDLE_SECONDS",
        "GATEWAY_TLS_KEY_FILE",
    }


@pytest.mark.parametrize(("address", "fits"), [("127.0.0.1", True), ("::1", True), ("0.0.0.0", False), ("::", False)])
def test_plain_http_on_an_address_that_others_reach_has_to_be_asked_for(address: str, fits: bool) -> None:
    if not fits:
        fault = faults_of(GATEWAY_ADDRESS=address)["GATEWAY_TLS_CERT_FILE"]
        assert "must be set where AGENTTERMINAL_GATEWAY_ADDRESS is not loopback" in fault
        with pytest.raises(ValueError, match="plain HTTP needs"):
            GatewaySettings(address=address)
    for more in ({"GATEWAY_PLAIN_ANYWHERE": "1"}, TLS, *([{}] if fits else [])):
        assert read_gateway_settings(prefixed(GATEWAY_ADDRESS=address, **more)).gateway.address == address


def test_each_process_shows_what_it_reads_and_the_page_shows_all() -> None:
    shown = render_settings_help(Reader.GATEWAY).splitlines()

    assert shown[0] == "The gateway is set by its environment:"
    for variable in VARIABLES:
        reads = variable.reader in (Reader.GATEWAY, Reader.BOTH, Reader.EVERY_COMMAND)
        assert (variable.name in shown) is reads
        assert f"| `{variable.name}` |" in render_settings_page()
    assert {"AGENTTERMINAL_GATEWAY_PORT", "AGENTTERMINAL_SPRITES_URL", "AGENTTERMINAL_DEBUG"} <= set(shown)
    assert "AGENTTERMINAL_WORKERS" not in shown


def test_numbers_that_would_open_or_close_everything_are_refused() -> None:
    with pytest.raises(ValueError, match="connections must be at least sockets"):
        GatewaySettings(limits=LimitSettings(sockets=2, connections=1))
    with pytest.raises(ValueError, match=r"^sockets must be more than zero\.$"):
        GatewaySettings(limits=LimitSettings(sockets=0))
    with pytest.raises(ValueError, match="drain must be"):
        GatewaySettings(times=TimeSettings(drain=TimeSettings().drain * 0))
    with pytest.raises(ValueError, match="audiences must not be empty"):
        GatewaySettings(audiences=())
