from dataclasses import fields
from datetime import timedelta

import pytest

from controller.sprites.settings import SpritesSettings


@pytest.mark.parametrize(
    "url",
    [
        "https://api.sprites.dev",
        "https://api.sprites.dev:8443/base",
        "http://127.0.0.1:8080",
        "http://127.9.9.9",
        "http://localhost:1",
        "http://[::1]:8080",
    ],
)
def test_an_address_is_https_or_this_machine(url: str) -> None:
    assert SpritesSettings(base_url=url).base_url == url


@pytest.mark.parametrize("url", ["https://api.sprites.dev/", "https://api.sprites.dev//"])
def test_a_trailing_slash_is_dropped(url: str) -> None:
    assert SpritesSettings(base_url=url).base_url == "https://api.sprites.dev"


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("", "must begin with https://"),
        ("api.sprites.dev", "must begin with https://"),
        ("ftp://api.sprites.dev", "must begin with https://"),
        ("HTTPS://api.sprites.dev", "must begin with https://"),
        ("wss://api.sprites.dev", "must begin with https://"),
        ("http://api.sprites.dev", "only to this machine"),
        ("http://10.0.0.1", "only to this machine"),
        ("http://localhost.example.com", "only to this machine"),
        ("http://127.0.0.1.example.com", "only to this machine"),
        ("https://", "must name a host"),
        ("https:///v1", "must name a host"),
        ("https://host:port", "is no URL"),
        ("https://host:99999", "is no URL"),
        ("https://host:0", "port 0"),
        ("https://[::1", "is no URL"),
        ("https://a..b", "labels"),
        ("https://" + "a" * 64 + ".b", "labels"),
        ("https://me:sesame@host", "user or password"),
        ("https://sesame@host", "user or password"),
        ("https://host?key=sesame", "query or fragment"),
        ("https://host/x?", "query or fragment"),
        ("https://host#x", "query or fragment"),
        ("https://höst", "printable ASCII"),
        ("https://host/a b", "printable ASCII"),
        ("https://host/a\n", "printable ASCII"),
    ],
)
def test_an_address_that_would_spill_the_token_or_lead_nowhere_is_refused(url: str, told: str) -> None:
    with pytest.raises(ValueError, match=told) as raised:
        SpritesSettings(base_url=url)
    assert "sesame" not in str(raised.value)


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(ValueError) as raised:
        SpritesSettings(base_url="x", connections=0, user_agent="a\nb", kill_limit=timedelta(0))

    for name in ("base_url", "connections", "user_agent", "kill_limit"):
        assert name in str(raised.value)


@pytest.mark.parametrize(
    "name",
    [field.name for field in fields(SpritesSettings) if isinstance(getattr(SpritesSettings(), field.name), timedelta)],
)
def test_every_duration_is_longer_than_nothing(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        SpritesSettings(**{name: timedelta(0)})  # type: ignore[arg-type]  # every one of them is a duration


def test_a_pong_may_take_at_least_as_long_as_the_next_ping() -> None:
    with pytest.raises(ValueError, match="pong_limit"):
        SpritesSettings(ping_every=timedelta(seconds=15), pong_limit=timedelta(seconds=14))


def test_the_environment_does_not_matter_by_default() -> None:
    assert SpritesSettings().trust_env is False


def test_a_socket_is_pinged_every_15_s_and_dead_after_45_s_without_an_answer() -> None:
    settings = SpritesSettings()

    assert (settings.ping_every, settings.pong_limit) == (timedelta(seconds=15), timedelta(seconds=45))
