"""
The gateway's doors as a real browser finds them: what it sends, what its scripts learn, and what it never shows.

One world and one browser for the whole module; each test has a terminal and a tab of its own. The gateway speaks plain
HTTP here: on loopback a browser takes that for as safe as TLS (W3C, "Secure Contexts", 3.1), so that origins, leaves
and subprotocols are the same, and no certificate has to be waved through.
"""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Browser

from tests.browser.chromium import SOON_MS, Tab, carry, open_chromium, serve_pages
from tests.cluster.plane import Cluster
from tests.cluster.test_gateway import Site
from tests.support.gateway import GatewayProcess, open_gateway_world
from tests.support.process import await_true
from tests.support.secrecy import Kind, look, secret


@dataclass
class Doors:
    """A gateway that lets pages of one origin in."""

    site: Site
    gateway: GatewayProcess
    page_port: int

    @property
    def listed(self) -> str:
        return f"http://127.0.0.1:{self.page_port}"

    @property
    def unlisted(self) -> str:
        """The same page under a name that is not listed: another origin."""
        return f"http://localhost:{self.page_port}"

    def address(self, name: str, query: str = "") -> str:
        return f"{self.gateway.url}/v1/namespaces/{self.site.world.namespace}/agentterminals/{name}/attach{query}"

    def count(self, cause: str) -> float:
        """Count what was answered so."""
        lines = self.gateway.read("metrics").splitlines()
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in lines
            if line.startswith("agentterminal_gateway_requests_total{") and f'"{cause}"' in line
        )

    def list_ends(self, name: str) -> list[int]:
        """List the close codes of this terminal's sockets, as the gateway logs them."""
        ends = [line for line in self.gateway.lines if line["message"] == "A socket has ended."]
        return [line["close_code"] for line in ends if line["terminal"] == name]


@pytest.fixture(scope="module")
def doors(cluster: Cluster) -> Iterator[Doors]:
    namespace = f"browser-{os.getpid()}"
    with serve_pages() as port, open_gateway_world(cluster, namespace) as (world, kubeconfig):
        world.start_operator(LEASE_NAMESPACE=namespace, METADATA_SECONDS="1")
        site = Site(world, [], kubeconfig)
        gateway = site.start_gateway(GATEWAY_ORIGINS=f"http://127.0.0.1:{port}")
        try:
            yield Doors(site, gateway, port)
        finally:
            gateway.kill()
            gateway.forget()


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with open_chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
def open_tab(browser: Browser, doors: Doors) -> Iterator[Callable[..., Tab]]:
    """Open the page in a tab of its own, which shares nothing with another."""
    with ExitStack() as stack:

        def open_one(origin: str = doors.listed) -> Tab:
            context = browser.new_context()
            stack.callback(context.close)
            context.set_default_timeout(SOON_MS)
            tab = Tab(context.new_page())
            tab.page.goto(f"{origin}/page.html")
            return tab

        yield open_one


@pytest.fixture
def tab(open_tab: Callable[..., Tab]) -> Tab:
    return open_tab()


@pytest.fixture
def anna(doors: Doors) -> str:
    return doors.site.account("anna", "attach", "takeover")


def read_refusal(answer: dict[str, Any]) -> tuple[int, str, str, str]:
    """What a script reads of a refusal: number, kind, reason and cause."""
    body = answer["body"]
    assert body["code"] == answer["status"]
    return answer["status"], body["kind"], body["reason"], body["details"]["causes"][0]["reason"]


def test_a_page_types_sees_and_resizes_and_its_token_is_never_sent_back(doors: Doors, tab: Tab, anna: str) -> None:
    name = doors.site.make_terminal("sh")

    yes = tab.ask(doors.address(name), anna)
    socket = tab.attach_to_type(doors.address(name, "?columns=91&rows=31"), anna)
    socket.types('echo "$((6 * 7)) typed"; stty size\n')
    socket.sees("42 typed\r\n31 91\r\n")
    socket.says(type="resize", cols=133, rows=41)
    socket.types("stty size\n")
    socket.sees("\n41 133\r\n")

    assert (yes["status"], yes["body"]["kind"], yes["body"]["status"]) == (200, "Status", "Success")
    assert socket.tell()["protocol"] == "exec.agentterminal.dev"
    (sent,), (received,) = tab.requests, tab.responses
    offered = {head.lower(): value for head, value in sent["headers"].items()}
    answered = {head.lower(): value for head, value in received["headers"].items()}
    # The browser's own word for it that the token went this way and no other.
    assert offered["origin"] == doors.listed
    assert offered["sec-websocket-protocol"].endswith(carry(anna))
    assert not {"authorization", "cookie"} & offered.keys()
    assert (received["status"], answered["sec-websocket-protocol"]) == (101, "exec.agentterminal.dev")
    assert "set-cookie" not in answered
    assert carry(anna) not in received.get("headersText", "") + json.dumps(answered)


def test_a_script_reads_why_it_is_refused_before_the_upgrade_and_a_socket_alone_does_not_say(
    doors: Doors, tab: Tab
) -> None:
    name = doors.site.make_terminal()
    strangers, lookers = secret(Kind.PERSON), doors.site.account("dora", "view")
    table = {
        "BadToken": (strangers, (401, "Status", "Unauthorized", "BadToken")),
        "NoRight": (lookers, (403, "Status", "Forbidden", "NoRight")),
    }

    for cause, (token, refusal) in table.items():
        before = doors.count(cause)
        assert read_refusal(tab.ask(doors.address(name), token)) == refusal
        told = tab.attach(doors.address(name), token).is_closed()

        assert told["closed"] == {"code": 1006, "reason": "", "wasClean": False}
        assert (told["opened"], told["events"]) == (False, ["close"])
        assert doors.count(cause) == before + 2
    assert tab.ask(doors.address(name, "?view=true"), lookers)["status"] == 200
    assert doors.site.received(name) == b""


def test_a_page_of_an_origin_that_is_not_listed_is_refused_and_learns_nothing(
    doors: Doors, open_tab: Callable[..., Tab], anna: str
) -> None:
    name = doors.site.make_terminal()
    stranger, before = open_tab(doors.unlisted), doors.count("Origin")

    with_leave = stranger.ask(doors.address(name), anna)
    without = stranger.ask(doors.address(name), None)
    told = stranger.attach(doors.address(name), anna).is_closed()

    assert stranger.page.evaluate("location.origin") == doors.unlisted
    assert (with_leave, without) == ({"unreadable": "TypeError"}, {"unreadable": "TypeError"})
    assert told["closed"] == {"code": 1006, "reason": "", "wasClean": False}
    assert (told["opened"], told["events"]) == (False, ["close"])
    # All three came this far, the first as the question for leave that the browser asks by itself.
    assert doors.count("Origin") == before + 3
    assert "attached" not in doors.site.spec(name)
    assert open_tab().ask(doors.address(name), anna)["status"] == 200


def test_a_page_is_told_of_a_takeover_and_of_a_patch_by_hand(
    doors: Doors, open_tab: Callable[..., Tab], anna: str
) -> None:
    bert = doors.site.account("bert", "attach", "takeover")
    name = doors.site.make_terminal()
    first, second = open_tab(), open_tab()
    former = first.attach_to_type(doors.address(name), anna)

    held = second.ask(doors.address(name), bert)
    newer = second.attach_to_type(doors.address(name, "?takeover=true"), bert)
    replaced = former.is_closed()
    newer.types("from bert\n")
    newer.sees("from bert")
    doors.site.world.patch(name, activeSocketId="")
    revoked = newer.is_closed()

    assert read_refusal(held) == (409, "Status", "Held", "Held")
    for told, code, reason in [(replaced, 4001, "Replaced"), (revoked, 4003, "Revoked")]:
        assert told["closed"] == {"code": code, "reason": reason, "wasClean": True}
        assert told["events"][-2:] == ["closed", "close"]
        assert (told["texts"][-1]["code"], told["texts"][-1]["reason"]) == (code, reason)
    await_true(lambda: doors.list_ends(name) == [4001, 4003], "both ends to be logged")
    await_true(lambda: "socket" not in doors.site.world.status(name), "the lock to be cleared")
    assert doors.site.received(name) == b"from bert\n"


def test_no_token_is_in_an_address_in_what_the_browser_remembers_or_in_the_gateways_log(
    doors: Doors, tab: Tab, anna: str
) -> None:
    name = doors.site.make_terminal()
    wrong = secret(Kind.PERSON)

    for token in (anna, wrong):
        tab.ask(doors.address(name), token)
    tab.attach(doors.address(name), wrong).is_closed()
    socket = tab.attach_to_type(doors.address(name), anna)
    socket.types("hello\n")
    socket.sees("hello")

    # Playwright's own word comes a little after the page's, and so does the browser's in its console.
    tab.until(lambda: {doors.address(name), doors.address(name).replace("http:", "ws:")} <= set(tab.addresses))
    tab.until(lambda: any(f"{name}/attach" in line for line in tab.said))
    addresses = [socket.tell()["url"], tab.page.url, *tab.addresses]
    entries = tab.page.evaluate("performance.getEntries().map((entry) => entry.toJSON())")
    kept = tab.page.evaluate("[document.cookie, document.referrer, JSON.stringify({ ...localStorage })]")
    places = {
        "An address": addresses,
        "A performance entry": [json.dumps(entry) for entry in entries],
        "The browser's console": tab.said,
        "What the page keeps": [*kept, json.dumps(tab.page.context.storage_state())],
        "The gateway's log": doors.gateway.told().splitlines(),
    }
    # Each place has what was done, so that it would have the token too.
    assert doors.address(name).replace("http:", "ws:") in addresses
    assert doors.address(name) in addresses
    assert doors.address(name) in [entry["name"] for entry in entries]
    assert any(f"{name}/attach" in line for line in tab.said)
    assert any("BadToken" in line for line in places["The gateway's log"])
    for place, lines in places.items():
        for line in lines:
            look(place, line)
            for token in (anna, wrong):
                assert token not in line, place
                assert carry(token) not in line, place
