"""
A client's frames are masked, or the connection is closed.

Problem: a client that does not mask its frames lets a page write bytes of its choice through a proxy that takes them
for HTTP, so a server must close on the first such frame; aiohttp's reader takes them. Promise: no byte of an unmasked
frame is read; what came before it is. Only heads of frames are looked at here, and their lengths; all else stays the
reader's.

Source: RFC 6455 5.1, 5.2 and 10.3 (read 2026-11). Observed: aiohttp 3.14, its source and on the wire, 2026-11.
"""

from typing import Final, Protocol

MASKED: Final = 0x80
KEY_BYTES: Final = 4
SHORT: Final = 125
"""The longest payload whose length stands in the second byte; above it that byte says how many more tell it."""
LENGTH_BYTES: Final = {126: 2, 127: 8}

BROKEN: Final = bytes((0xF0, MASKED))
"""The head of a frame that no reader takes: its reserved bits are set. It has aiohttp's own say that the protocol was
broken (1002). Assumed: `test_a_frame_without_a_mask_closes_the_socket_and_is_not_read` notices when that changes."""


class Reader(Protocol):
    """Whoever reads frames: aiohttp's `WebSocketReader`."""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Take some bytes; tell whether the connection ends."""

    def feed_eof(self) -> None:
        """Nothing more comes."""


class MaskedReader:
    """
    Stands before a reader, and hands on masked frames only.

    Args:
        reader: Whoever reads them. It is given whole heads.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._head = b""
        """The beginning of a head that is not whole."""
        self._coming = 0
        """How many bytes of the present frame, behind its head, are still to come."""
        self._is_broken = False

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Hand bytes on up to the first frame without a mask, and end the connection there."""
        if self._is_broken:
            return True, b""
        data = self._head + data
        walked, self._is_broken = self._walk(data)
        if self._is_broken:
            return self._reader.feed_data(data[:walked] + BROKEN)
        self._head = data[walked:]
        return self._reader.feed_data(data[:walked]) if walked else (False, b"")

    def feed_eof(self) -> None:
        """Nothing more comes."""
        self._reader.feed_eof()

    def _walk(self, data: bytes) -> tuple[int, bool]:
        """Go from head to head; give the place up to which all is well, and whether a mask is missing there."""
        at = 0
        while True:
            step = min(self._coming, len(data) - at)
            self._coming -= step
            at += step
            if len(data) - at < 2:
                return at, False
            if not data[at + 1] & MASKED:
                return at, True
            word = data[at + 1] & ~MASKED
            end = at + 2 + LENGTH_BYTES.get(word, 0)
            if len(data) < end:
                return at, False
            self._coming = KEY_BYTES + (word if word <= SHORT else int.from_bytes(data[at + 2 : end], "big"))
            at = end
