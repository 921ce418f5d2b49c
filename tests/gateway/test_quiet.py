"""What a connection does not say, and what it does not take: over real sockets, byte by byte."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from controller.gateway.masks import BROKEN, MaskedReader
from controller.gateway.settings import GatewaySettings, LimitSettings
from tests.gateway.doubles import ANNA, PATH, SOON_SECONDS, Doors, exchange, open_doors

OPEN = (
    f"GET {PATH}/attach HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {ANNA}\r\nUpgrade: websocket\r\n"
    "Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"
)


@pytest.fixture
async def doors() -> AsyncIterator[Doors]:
    async with open_doors(GatewaySettings(port=0, metrics_port=0)) as doors:
        yield doors


def head(path: str, *lines: str, method: str = "GET") -> str:
    return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: localhost", *lines, "", ""))


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (head("/healthz"), 200),
        (head(f"{PATH}/attach", f"Authorization: Bearer {ANNA}"), 200),
        (head(f"{PATH}/attach", "A header: x"), 400),
        (head(f"{PATH}/attach?env=A"), 400),
        (head(f"{PATH}/attach"), 401),
        (head("/elsewhere"), 404),
        (OPEN, 101),
    ],
    ids=["a probe", "a question", "a head that cannot be read", "a query", "no token", "no door", "a socket"],
)
async def test_no_answer_of_the_doors_says_what_serves_it(doors: Doors, request_text: str, status: int) -> None:
    answer = await exchange(doors.gateway.port, request_text.encode())

    assert answer.split(b" ")[1] == str(status).encode()
    assert_quiet(answer)


async def test_an_answer_about_a_bug_says_no_more(doors: Doors, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise RuntimeError("a bug")

    monkeypatch.setattr(doors.gateway, "find_unready", fail)

    answer = await exchange(doors.gateway.port, head("/readyz").encode())

    assert answer.split(b" ")[1] == b"500"
    assert_quiet(answer)


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/elsewhere"])
async def test_the_port_of_metrics_and_probes_is_as_quiet(doors: Doors, path: str) -> None:
    answer = await exchange(doors.gateway.metrics_port, head(path).encode())

    assert_quiet(answer.partition(b"\r\n\r\n")[0])


def assert_quiet(answer: bytes) -> None:
    for word in (b"\r\nserver:", b"aiohttp", b"python"):
        assert word not in answer.lower()


async def test_a_flood_of_one_address_at_the_doors_fails_no_probe_of_a_kubelet_behind_the_same_address() -> None:
    limits = LimitSettings(address_requests_per_second=1, address_burst=1)
    async with open_doors(GatewaySettings(port=0, metrics_port=0, limits=limits)) as doors:
        while (await doors.ask(token=None)).cause != "AddressLimit":
            pass

        for path in ("/healthz", "/readyz"):
            # The chart's probes ask this port (tests/chart/test_templates.py).
            assert (await exchange(doors.gateway.metrics_port, head(path).encode())).split(b" ")[1] == b"200"


# --- Frames -----------------------------------------------------------------------------------------------------------

FINAL_TEXT = 0x81


def mask(payload: bytes, *, length: bytes | None = None) -> bytes:
    key = b"\x0c\x22\x38\x4e"
    size = bytes((0x80 | len(payload),)) if length is None else length
    return bytes((FINAL_TEXT,)) + size + key + bytes(byte ^ key[at % 4] for at, byte in enumerate(payload))


async def speak(port: int, *frames: bytes) -> bytes:
    """Open a socket, send frames as they are, and read all that comes until it is closed."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(SOON_SECONDS):
            writer.write(OPEN.encode())
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
            for frame in frames:
                writer.write(frame)
            return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


async def test_a_frame_without_a_mask_closes_the_socket_and_is_not_read(doors: Doors) -> None:
    bare = bytes((FINAL_TEXT, 4)) + b"bare"

    received = await speak(doors.gateway.port, mask(b"well"), bare + mask(b"late"))

    assert bytes((FINAL_TEXT, 4)) + b"well" in received
    assert b"bare" not in received
    assert b"late" not in received
    assert (1002).to_bytes(2, "big") in received


class Kept:
    """A reader that keeps what it is given."""

    def __init__(self) -> None:
        self.given = b""
        self.is_over = False

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        self.given += data
        return data.endswith(BROKEN), b""

    def feed_eof(self) -> None:
        self.is_over = True


LONG, HUGE = b"x" * 300, b"y" * 70_000
MASKED_FRAMES = (
    mask(b""),
    mask(b"short"),
    mask(LONG, length=b"\xfe" + len(LONG).to_bytes(2, "big")),
    mask(HUGE, length=b"\xff" + len(HUGE).to_bytes(8, "big")),
    mask(b"z" * 125),
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000, 1_000_000])
@pytest.mark.parametrize("frames", [MASKED_FRAMES, MASKED_FRAMES[::-1]], ids=["growing", "falling"])
def test_masked_frames_go_through_however_they_are_cut(frames: Sequence[bytes], size: int) -> None:
    sent, kept = b"".join(frames), Kept()
    reader = MaskedReader(kept)

    answers = {reader.feed_data(sent[at : at + size]) for at in range(0, len(sent), size)}
    reader.feed_eof()

    assert answers == {(False, b"")}
    assert (kept.given, kept.is_over) == (sent, True)


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
@pytest.mark.parametrize("bare", [b"\x81\x04bare", b"\x89\x00", b"\x82\x7e\x01\x00" + b"b" * 256], ids=repr)
def test_of_a_frame_without_a_mask_no_byte_goes_through_however_it_is_cut(bare: bytes, size: int) -> None:
    before, kept = b"".join(MASKED_FRAMES[:3]), Kept()
    sent, reader = before + bare + mask(b"late"), MaskedReader(kept)

    answers = [reader.feed_data(sent[at : at + size]) for at in range(0, len(sent), size)]

    assert kept.given == before + BROKEN
    assert answers[-1] == (True, b"")
