"""
Chromium as Debian packages it, driven by Playwright, and the pages that it is shown.

Promise: one browser, which reaches loopback and nothing else, downloads nothing, and is gone with all its processes
when the `with` block is left, however that happens. Playwright's driver brings a Node of its own; it ends the browser
where it loses us.
"""

import base64
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, Page, sync_playwright

from controller.settings import environment
from tests.support.process import await_true
from tests.support.secrecy import Kind, learn

HERE: Final = Path(__file__).parent
SOON_MS: Final = 20_000
"""How long anything may take that is waited for in a page."""

NO_CHROMIUM: Final = (
    "Chromium is missing, which is shown the gateway: install it (on Debian `apt-get install --no-install-recommends"
    " chromium fonts-dejavu-core`), or leave these tests out with `make test WITHOUT=browser`."
)
ARGUMENTS: Final = (
    # Root has no sandbox. What is shown is our own page.
    "--no-sandbox",
    # Whatever the browser would like to ask of the world by itself.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost",
)


def carry(token: str) -> str:
    """Spell a token as it travels in the subprotocol."""
    return base64.urlsafe_b64encode(token.encode()).decode().rstrip("=")


@contextmanager
def open_chromium(home: Path) -> Iterator[Browser]:
    """Start the browser with a home of its own, and see that all its processes end with the block."""
    executable = shutil.which("chromium")
    assert executable is not None, NO_CHROMIUM
    before, family = _find_children(os.getpid()), set[int]()
    try:
        with sync_playwright() as playwright:
            own: dict[str, str | float | bool] = {**environment(), "HOME": str(home)}
            browser = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS, env=own)
            try:
                yield browser
            finally:
                family = _find_family(_find_children(os.getpid()) - before)
                browser.close()
    finally:
        await_true(lambda: not family & _find_running().keys(), "Chromium to be gone", tell=lambda: str(family))
    assert family, "Nobody knows which processes were the browser's."


def _find_running() -> dict[int, int]:
    """Find every process and its parent; one that has ended and was not asked for its end does not count."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:  # it has ended meanwhile
                continue
            if state not in "ZX":
                found[int(folder.name)] = int(parent)
    return found


def _find_children(process: int) -> set[int]:
    return {child for child, parent in _find_running().items() if parent == process}


def _find_family(processes: set[int]) -> set[int]:
    running, family = _find_running(), set(processes)
    while more := {child for child, parent in running.items() if parent in family} - family:
        family |= more
    return family


class _Quiet(SimpleHTTPRequestHandler):
    """Serves this folder, and keeps a line about each request to itself."""

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - named so by its base class
        pass


@contextmanager
def serve_pages() -> Iterator[int]:
    """Serve this folder on loopback, and give the port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(HERE)))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@dataclass(frozen=True)
class Socket:
    """A socket of a page, by what the page tells of it."""

    page: Page
    number: int

    def tell(self) -> dict[str, Any]:
        told: dict[str, Any] = self.page.evaluate("tell", self.number)
        return told

    def types(self, text: str) -> None:
        self.page.evaluate("([number, text]) => type(number, text)", [self.number, text])

    def says(self, **message: Any) -> None:
        self.page.evaluate("([number, message]) => say(number, message)", [self.number, message])

    def sees(self, text: str) -> None:
        self._wait("({ output }, text) => output.includes(text)", text)

    def hears(self, word: str) -> None:
        self._wait("({ texts }, word) => texts.some((one) => one.type === 'notice' && one.word === word)", word)

    def is_closed(self) -> dict[str, Any]:
        """Wait for the end; what came is told with it."""
        self._wait("({ closed }) => closed !== null")
        return self.tell()

    def _wait(self, condition: str, argument: str = "") -> None:
        expression = f"([number, argument]) => ({condition})(sockets[number], argument)"
        self.page.wait_for_function(expression, arg=[self.number, argument], timeout=SOON_MS)


@dataclass
class Tab:
    """
    A page, and what the browser itself says about its sockets and addresses.

    Of a handshake a script learns next to nothing; the browser's own protocol for its developer tools has its heads.
    """

    page: Page
    requests: list[dict[str, Any]] = field(default_factory=list, repr=False)
    """The heads of the handshakes that were sent."""
    responses: list[dict[str, Any]] = field(default_factory=list, repr=False)
    """The answers to them."""
    addresses: list[str] = field(default_factory=list)
    """Every URL that was asked for."""
    said: list[str] = field(default_factory=list)
    """What stood in the console."""

    def __post_init__(self) -> None:
        """Listen from now on."""
        tools = self.page.context.new_cdp_session(self.page)
        tools.on("Network.webSocketWillSendHandshakeRequest", lambda event: self.requests.append(event["request"]))
        tools.on("Network.webSocketHandshakeResponseReceived", lambda event: self.responses.append(event["response"]))
        tools.send("Network.enable")
        self.page.on("request", lambda request: self.addresses.append(request.url))
        self.page.on("websocket", lambda socket: self.addresses.append(socket.url))
        self.page.on("console", lambda message: self.said.append(f"{message.location} {message.text}"))

    def until(self, is_true: Callable[[], bool]) -> None:
        """Wait for what the browser says by itself, which comes while Playwright waits for something."""
        end = time.monotonic() + SOON_MS / 1000
        while not is_true():
            assert time.monotonic() < end, self
            self.page.wait_for_timeout(20)

    def ask(self, address: str, token: str | None) -> dict[str, Any]:
        answer: dict[str, Any] = self.page.evaluate("([address, token]) => ask(address, token)", [address, token])
        return answer

    def attach(self, address: str, token: str) -> Socket:
        # Wherever it shows from now on, a test fails.
        learn(Kind.PERSON, carry(token))
        number = self.page.evaluate("([address, token]) => attach(address, token)", [address, token])
        return Socket(self.page, number)

    def attach_to_type(self, address: str, token: str) -> Socket:
        """Attach, and wait until input counts."""
        socket = self.attach(address, token)
        socket.hears("Holding")
        return socket
