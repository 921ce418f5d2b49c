import inspect

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.errors import Failure, OutsideError
from controller.sprites import errors
from controller.sprites.errors import (
    CLASSES,
    Conflict,
    Forbidden,
    Gone,
    LaunchUnclear,
    Malformed,
    NotFound,
    OutputTooLarge,
    Progress,
    Redirected,
    Rejected,
    ServerFault,
    SpritesError,
    Throttled,
    TimedOut,
    Unauthorized,
    Unfinished,
    Unreachable,
    classify_status,
    classify_transport,
)

ERRORS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, SpritesError) and kind is not SpritesError
]
"""Every class of the room."""

RAISED_BY_HTTPX = sorted(
    {kind for _, kind in inspect.getmembers(httpx, inspect.isclass) if issubclass(kind, httpx.HTTPError)},
    key=lambda kind: kind.__name__,
)
"""Every exception that a request can raise. The rest of httpx's (StreamError, InvalidURL) are mistakes of ours."""


@pytest.mark.parametrize("failure", Failure)
def test_each_failure_has_one_plain_class(failure: Failure) -> None:
    assert CLASSES[failure].failure is failure


@pytest.mark.parametrize("kind", ERRORS)
def test_each_class_tells_its_failure_and_stands_in_the_tree(kind: type[SpritesError]) -> None:
    assert isinstance(kind.failure, Failure)
    assert issubclass(kind, OutsideError)
    assert kind.__name__ in (errors.__doc__ or "")
    assert kind in CLASSES.values() or kind in (OutputTooLarge, LaunchUnclear)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, Rejected),
        (401, Unauthorized),
        (403, Forbidden),
        (404, NotFound),
        (405, Rejected),
        (408, Rejected),
        (409, Conflict),
        (410, Gone),
        (422, Rejected),
        (429, Throttled),
        (499, Rejected),
        (300, Redirected),
        (307, Redirected),
        (399, Redirected),
        (500, ServerFault),
        (599, ServerFault),
        (100, Malformed),
        (200, Malformed),
        (204, Malformed),
        (0, Malformed),
        (-1, Malformed),
        (600, Malformed),
        (999, Malformed),
    ],
)
def test_a_status_has_its_class(status: int, kind: type[SpritesError]) -> None:
    assert classify_status(status) is kind


@given(st.integers())
def test_every_number_has_a_class(status: int) -> None:
    assert classify_status(status) in CLASSES.values()


TRANSPORT: dict[type[httpx.HTTPError], tuple[type[SpritesError], type[SpritesError]]] = {
    httpx.CloseError: (Unreachable, Unfinished),
    httpx.ConnectError: (Unreachable, Unreachable),
    httpx.ConnectTimeout: (Unreachable, Unreachable),
    httpx.DecodingError: (Malformed, Malformed),
    httpx.HTTPError: (Unreachable, Unfinished),
    httpx.HTTPStatusError: (Malformed, Malformed),
    httpx.LocalProtocolError: (Rejected, Rejected),
    httpx.NetworkError: (Unreachable, Unfinished),
    httpx.PoolTimeout: (TimedOut, TimedOut),
    httpx.ProtocolError: (Unreachable, Unfinished),
    httpx.ProxyError: (Unreachable, Unreachable),
    httpx.ReadError: (Unreachable, Unfinished),
    httpx.ReadTimeout: (TimedOut, TimedOut),
    httpx.RemoteProtocolError: (Unreachable, Unfinished),
    httpx.RequestError: (Unreachable, Unfinished),
    httpx.TimeoutException: (TimedOut, TimedOut),
    httpx.TooManyRedirects: (Redirected, Redirected),
    httpx.TransportError: (Unreachable, Unfinished),
    httpx.UnsupportedProtocol: (Rejected, Rejected),
    httpx.WriteError: (Unreachable, Unfinished),
    httpx.WriteTimeout: (TimedOut, TimedOut),
}


def test_every_exception_of_httpx_is_in_the_table() -> None:
    assert set(TRANSPORT) == set(RAISED_BY_HTTPX) == set(errors._TRANSPORT)


@pytest.mark.parametrize("kind", RAISED_BY_HTTPX)
def test_an_exception_has_its_class_before_and_within_an_answer(kind: type[httpx.HTTPError]) -> None:
    asking, reading = TRANSPORT[kind]

    assert classify_transport(kind, Progress.ASKING) is asking
    assert classify_transport(kind, Progress.READING) is reading


def test_an_exception_that_httpx_adds_later_is_read_as_its_parent() -> None:
    class Novel(httpx.ReadError):
        pass

    assert classify_transport(Novel, Progress.READING) is Unfinished


@given(st.text(), st.sampled_from(ERRORS))
def test_every_text_is_one_short_printable_line(text: str, kind: type[SpritesError]) -> None:
    message = kind(text).message

    assert len(message) <= 256
    assert message.isprintable()
    assert str(kind(text)) == message
