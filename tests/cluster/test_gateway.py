"""
The gateway as a process, at a real API server, with sprites whose processes are real.

One world for the whole module: two gateways, an operator, an emulator; each test has a terminal and a sprite of its
own.
"""

import asyncio
import base64
import itertools
import math
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import pytest

from controller.cli.worlds import GATEWAY_RULES
from controller.lab.rights import GATEWAY_NAME, read_gateway_rules
from controller.plan.fence_ids import LEASE_ELSEWHERE
from controller.plan.fence_tenure import RULES
from tests.cluster.gate import At, Gate, Request
from tests.cluster.plane import Cluster
from tests.cluster.stage import write_kubeconfig
from tests.gateway.stream.stage import Person
from tests.support.gateway import GatewayProcess, Visitors, open_gateway_world, visiting
from tests.support.lag import SlowLine
from tests.support.operator import World
from tests.support.process import await_true

RBAC = f"/apis/{'rbac.authorization.k8s.io'}/v1"
NUMBERS = itertools.count(1)
RACE_SECONDS = 6.0
TRIES = 3
"""For what has to come in time: whoever stood still in between is given another one."""
TAKEOVERS_AT_LEAST = 8
RACE_SECONDS_AT_MOST = 40.0
SLOW_SECONDS = 1.0
"""On the way from a gateway to the sprite, each way: much less than a drain waits for its pong."""
WAIT_SECONDS = 40.0
BURST = 20
"""Lines that are typed at once, most of them before the lock is had."""
TENURE_SECONDS = RULES.span.total_seconds()
KIND = f"/apis/{'apiextensions.k8s.io'}/v1/customresourcedefinitions/agentterminals.agentterminal.dev"
RECORDED_BYTES = 64 * 1024
"""What the emulator records of a session's input."""

T = TypeVar("T")


@dataclass
class Site:
    """A namespace with an operator and two gateways. All calls block."""

    world: World
    gateways: list[GatewayProcess]
    kubeconfig: Path
    tokens: dict[str, str] = field(default_factory=dict, repr=False)

    def start_gateway(
        self,
        kubeconfig: Path | None = None,
        sprites_url: str | None = None,
        lease_namespace: str | None = None,
        **settings: str,
    ) -> GatewayProcess:
        gateway = GatewayProcess(
            kubeconfig or self.kubeconfig,
            sprites_url or self.world.lab.url,
            NAMESPACES=self.world.namespace,
            LEASE_NAMESPACE=lease_namespace or self.world.namespace,
            **settings,
        )
        self.gateways.append(gateway)
        return gateway

    def start_gateway_elsewhere(self, namespace: str) -> GatewayProcess:
        """Start a gateway that keeps its Lease in a namespace of its own."""
        subject = {"kind": "ServiceAccount", "name": GATEWAY_NAME, "namespace": self.world.namespace}
        reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "leases"}
        rules = list(read_gateway_rules(GATEWAY_RULES).leases)
        self.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        roles = f"{RBAC}/namespaces/{namespace}"
        self.create(f"{roles}/roles", {"metadata": {"name": "leases"}, "rules": rules})
        binding = {"metadata": {"name": "leases"}, "roleRef": reference, "subjects": [subject]}
        self.create(f"{roles}/rolebindings", binding)
        return self.start_gateway(lease_namespace=namespace)

    def account(self, name: str, *rights: str) -> str:
        """Make an account with rights to every terminal here, and give its token."""
        if name not in self.tokens:
            roles = f"{RBAC}/namespaces/{self.world.namespace}"
            rules = [
                {
                    "apiGroups": ["agentterminal.dev"],
                    "resources": [f"agentterminals/{right}" for right in rights],
                    "verbs": ["create"],
                }
            ]
            subject = {"kind": "ServiceAccount", "name": name, "namespace": self.world.namespace}
            reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
            self.create(f"{roles}/roles", {"metadata": {"name": name}, "rules": rules})
            self.create(
                f"{roles}/rolebindings", {"metadata": {"name": name}, "roleRef": reference, "subjects": [subject]}
            )
            cluster = self.world.cluster
            for right in rights:
                cluster.await_right(self.world.namespace, name, right)
            self.tokens[name] = cluster.call(cluster.plane.service_account_token(self.world.namespace, name))
        return self.tokens[name]

    def create(self, path: str, body: Mapping[str, Any]) -> None:
        status, answer = self.world.cluster.request("POST", path, body=body)
        assert status == 201, answer

    def make_terminal(self, *command: str, **spec: Any) -> str:
        """Make a sprite with a session, one that echoes if nothing else is said, and a terminal that adopts it."""
        name = f"t{next(NUMBERS)}"
        self.world.lab.create_sprites(name)
        self.world.lab.set_state(name, "running")
        session = self.world.lab.start_session(name, *(command or ("cat",)))
        self.world.create(name, **{"spriteName": name, "sessionId": session["id"], **spec})
        self.world.await_reason(name, "Live", "SessionLive")
        return name

    def received(self, name: str) -> bytes:
        """What the sprite's sessions were sent."""
        return b"".join(base64.b64decode(session["received_base64"]) for session in self.world.lab.sessions(name))

    def spec(self, name: str) -> dict[str, Any]:
        terminal = self.world.get(name)
        assert terminal is not None
        spec: dict[str, Any] = terminal["spec"]
        return spec

    def lease_holders(self) -> dict[str, str]:
        """Who holds the Lease of each incarnation; nobody where it was broken."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.world.namespace}/leases"
        _, answer = self.world.cluster.request("GET", path)
        return {
            lease["metadata"]["name"].removeprefix("atgw-"): lease["spec"].get("holderIdentity", "")
            for lease in answer["items"]
        }

    def is_free(self, name: str) -> bool:
        """Nobody speaks, and nobody is named."""
        terminal = self.world.get(name)
        assert terminal is not None
        spec = terminal["spec"]
        return "socket" not in terminal["status"] and spec["activeSocketId"] == "" and not spec["attached"]

    def await_free(self, name: str) -> None:
        await_true(lambda: self.is_free(name), f"{name} to be free", WAIT_SECONDS, lambda: str(self.world.get(name)))


@pytest.fixture(scope="module")
def site(cluster: Cluster) -> Iterator[Site]:
    namespace = f"gateway-{os.getpid()}"
    with open_gateway_world(cluster, namespace) as (world, kubeconfig):
        world.start_operator(LEASE_NAMESPACE=namespace, METADATA_SECONDS="1")
        site = Site(world, [], kubeconfig)
        try:
            site.start_gateway()
            site.start_gateway()
            yield site
        finally:
            for gateway in site.gateways:
                gateway.kill()
                gateway.forget()


@pytest.fixture
def anna(site: Site) -> str:
    return site.account("anna", "attach", "takeover", "view", "activity")


@pytest.mark.case("F1", "F12")
async def test_whoever_attaches_types_and_leaves_nothing_behind(site: Site, anna: str) -> None:
    name = await asyncio.to_thread(site.make_terminal)
    async with visiting(site.world.namespace) as visitors:
        person = await visitors.attach_to_type(site.gateways[0], anna, name)
        held = await asyncio.to_thread(site.world.get, name)
        await person.types(b"hello\n")
        await person.sees(b"hello")
    await asyncio.to_thread(site.await_free, name)

    assert held is not None
    lock = held["status"]["socket"]
    assert held["spec"]["attached"] is True
    assert held["spec"]["activeSocketId"] == lock["socketId"]
    assert lock["incarnation"] == site.gateways[0].incarnation
    assert site.received(name) == b"hello\n"


@pytest.fixture
async def visitors(site: Site) -> AsyncIterator[Visitors]:
    async with visiting(site.world.namespace) as visitors:
        yield visitors


async def run(work: Callable[..., T], *arguments: Any, **named: Any) -> T:
    """Let something block in a thread."""
    return await asyncio.to_thread(work, *arguments, **named)


async def measure_close(person: Person, since: float, within: float = WAIT_SECONDS) -> tuple[int, str, float]:
    """Wait until somebody was thrown out: with which code, for which reason, and how long after."""
    code = await person.is_closed(within)
    told = person.told("closed")
    assert len(told) == 1, person.texts
    assert told[0]["code"] == code
    return code, str(told[0]["reason"]), time.monotonic() - since


@pytest.mark.case("F2", "F4", "F6")
@pytest.mark.parametrize("replica", [0, 1], ids=["on the same replica", "on another replica"])
async def test_a_second_person_is_refused_and_a_takeover_throws_the_first_out(
    site: Site, anna: str, visitors: Visitors, replica: int
) -> None:
    bert = await run(site.account, "bert", "attach")
    first_gateway, gateway = site.gateways[0], site.gateways[replica]
    name = await run(site.make_terminal)
    first = await visitors.attach_to_type(first_gateway, anna, name)
    await first.types(b"first\n")
    former = "SameReplica" if replica == 0 else "OtherReplica"
    line = f'agentterminal_gateway_takeover_duration_seconds_count{{former="{former}"}}'
    before = await run(gateway.metric, line)

    assert await visitors.ask(gateway, bert, name) == (409, "Held")
    assert await visitors.ask(gateway, bert, name, "?takeover=true") == (403, "NoRight")
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await visitors.attach(gateway, anna, name)
    started = time.monotonic()
    second = await visitors.attach(gateway, anna, name, "?takeover=true")
    await second.types(b"second\n")
    code, reason, _ = await measure_close(first, started)
    await second.hears("Holding")
    await second.sees(b"second")
    # Another replica knows a socket by its id, which is nobody's name.
    told = [notice["text"] for notice in first.told("notice") if notice["word"] == "Takeover"]
    assert [text.rpartition(":")[2] for text in told] == (["anna takes this terminal over."] if replica == 0 else [])

    assert refused.value.status == 409
    assert (code, reason) == (4001, "Replaced")
    assert await run(site.received, name) == b"first\nsecond\n"
    # It is counted beside the person's first words.
    await run(await_true, lambda: gateway.metric(line) == before + 1, "the takeover to be counted")
    with pytest.raises((ConnectionError, aiohttp.ClientError)):
        await first.types(b"late\n")


@pytest.mark.case("F10", "F14", "F20", "F24")
@pytest.mark.parametrize(
    ("patch", "ending"),
    [
        ({"activeSocketId": ""}, (4003, "Revoked")),
        ({"activeSocketId": "my-bridge"}, (4001, "Replaced")),
        ({"attached": False}, (4003, "Revoked")),
        ({"terminated": True}, (4003, "Terminated")),
    ],
    ids=["empty", "another id", "detached", "terminated"],
)
@pytest.mark.parametrize("replica", [1])
async def test_a_patch_by_hand_throws_the_socket_out_in_under_a_second(
    site: Site,
    anna: str,
    visitors: Visitors,
    replica: int,
    patch: dict[str, Any],
    ending: tuple[int, str],
) -> None:
    for _ in range(TRIES):
        name = await run(site.make_terminal)
        person = await visitors.attach_to_type(site.gateways[replica], anna, name)
        await person.types(b"before\n")
        await person.sees(b"before")

        started = time.monotonic()
        await run(site.world.patch, name, **patch)
        code, reason, took = await measure_close(person, started)

        assert (code, reason) == ending
        if took < 1.0:
            break
    assert took < 1.0
    await run(await_true, lambda: "socket" not in site.world.status(name), "the lock to be cleared")
    named = patch.get("activeSocketId", "")
    await run(await_true, lambda: site.spec(name)["activeSocketId"] == named, "the socket to be named no more")
    if patch.get("terminated"):
        assert await visitors.ask(site.gateways[replica], anna, name) == (410, "Terminated")
        await run(site.world.await_reason, name, "Confirmed", "Terminated")


@pytest.mark.parametrize("how", ["deleted", "torn away"])
async def test_whoever_is_attached_is_thrown_out_with_an_object_that_goes(
    site: Site, anna: str, visitors: Visitors, how: str
) -> None:
    """A missing object names nobody: also one whose finalizers somebody has stripped, so that no mark was ever seen."""
    for _ in range(TRIES):
        name = await run(site.make_terminal)
        person = await visitors.attach_to_type(site.gateways[0], anna, name)
        viewer = await visitors.attach(site.gateways[0], anna, name, "?view=true")
        await person.types(b"before\n")
        await asyncio.gather(person.sees(b"before"), viewer.sees(b"before"))
        path = f"{site.world.path}/{name}"

        if how == "torn away":
            stripped = [{"op": "remove", "path": "/metadata/finalizers"}]
            await run(
                site.world.cluster.request, "PATCH", path, body=stripped, content_type="application/json-patch+json"
            )
        started = time.monotonic()
        await run(site.world.delete, name)
        code, reason, took = await measure_close(person, started)

        assert (code, reason) == (4003, "Deleted")
        if took < 1.0:
            break
    assert took < 1.0
    assert (await measure_close(viewer, started))[:2] == (4003, "Deleted")
    await run(site.world.await_gone, name)
    assert await visitors.ask(site.gateways[0], anna, name) == (404, "NotFound")


@pytest.mark.case("F5")
async def test_viewers_see_everything_type_nothing_and_count_as_presence(
    site: Site, anna: str, visitors: Visitors
) -> None:
    name = await run(site.make_terminal)
    refused = 'agentterminal_gateway_frames_refused_total{cause="Viewer"}'
    before = await run(site.gateways[1].metric, refused)
    viewer = await visitors.attach(site.gateways[1], anna, name, "?view=true")
    person = await visitors.attach_to_type(site.gateways[0], anna, name)
    await viewer.until(lambda one: bool(one.told("session_info")))
    await person.types(b"from the holder\n")
    await viewer.sees(b"from the holder")
    await viewer.types(b"from the viewer\n")
    await viewer.hears("InputRefused")
    await run(await_true, lambda: "gateways" in site.world.status(name), "the viewer to be told")
    entries = (await run(site.world.status, name))["gateways"]
    await viewer.socket.close()
    await run(
        await_true,
        lambda: all(entry["viewers"] == 0 for entry in site.world.status(name).get("gateways", [])),
        "the viewer's end to be told",
    )

    await run(await_true, lambda: site.gateways[1].metric(refused) == before + 1, "what was refused to be counted")
    assert entries == [{"incarnation": site.gateways[1].incarnation, "viewers": 1}]
    assert await run(site.received, name) == b"from the holder\n"
    assert person.close_code is None


async def test_a_paused_sprite_is_woken_by_who_types_and_by_nobody_who_looks(
    site: Site, anna: str, visitors: Visitors
) -> None:
    gateway, other = site.gateways[0], site.gateways[1]
    looker = await run(site.account, "looker", "view")
    name = await run(site.make_terminal)
    early = await visitors.attach(gateway, anna, name, "?view=true")
    await early.until(lambda one: bool(one.told("replay")))
    # The operator tells of who looks a moment later, and in that write of whatever it knows by then.
    await run(site.world.await_reason, name, "Viewer", "Attached")
    before = await run(site.world.lab.sprite, name)
    await run(site.world.lab.set_state, name, "warm")

    # Whoever looked on stays and waits; whoever comes to look, by either door, is told at the door.
    await early.hears("Paused")
    session = site.spec(name)["sessionId"]
    vendors = f"{other.url}{visitors.path(name, f'sdk/v1/sprites/{name}/exec/{session}')}?stdin=false"
    for token in (anna, looker):
        # What the platform does not say within two seconds counts for nothing: a gateway that stood still lets them in.
        await visitors.await_answer((409, "Paused"), other, token, name, "?view=true")
        for url in (f"{other.url}{visitors.path(name)}?view=true", vendors):
            attempts = [await visitors.attempt(url, token)]
            while attempts[-1] != 409 and len(attempts) < TRIES:
                attempts.append(await visitors.attempt(url, token))
            assert attempts[-1] == 409, attempts
    assert await visitors.ask(gateway, looker, name) == (403, "NoRight")
    asleep = await run(site.world.lab.sprite, name)
    status = await run(site.world.status, name)

    # No write at rest: the pause stands in no status, and is known at the door all the same.
    assert status["sprite"]["state"] == "running"
    assert asleep["true_status"] == "warm"
    assert asleep["wakes"] == before["wakes"]

    person = await visitors.attach_to_type(gateway, anna, name)
    await person.types(b"awake\n")
    await person.sees(b"awake")
    await early.sees(b"awake")
    await visitors.await_answer((200, ""), other, looker, name, "?view=true")
    late = await visitors.attach(other, looker, name, "?view=true")
    await late.sees(b"awake")

    assert (await run(site.world.lab.sprite, name))["true_status"] == "running"


async def test_a_gateway_without_a_token_for_the_sprite_says_so_and_goes_there_with_none(
    site: Site, anna: str, visitors: Visitors
) -> None:
    """Also where the operator has known the session for long: each of them asks for the token by itself."""
    name = await run(site.make_terminal)
    await run(site.world.patch, name, tokenSecretRef=None)
    before = len(await run(site.world.lab.requests, sprite=name))
    person = await visitors.attach(site.gateways[0], anna, name)
    code, reason, _ = await measure_close(person, time.monotonic())
    (told,) = person.told("closed")

    assert (code, reason) == (1013, "NotReady")
    assert "There is no `spec.tokenSecretRef`" in told["message"]
    assert await run(site.received, name) == b""
    asked = (await run(site.world.lab.requests, sprite=name))[before:]
    assert [one for one in asked if one["route"] == "exec.attach"] == []


async def test_who_attaches_to_an_ended_terminal_gets_a_new_session(site: Site, anna: str, visitors: Visitors) -> None:
    name = f"t{next(NUMBERS)}"
    await run(site.world.lab.create_sprites, name)
    await run(site.world.lab.set_state, name, "running")
    await run(site.world.create, name, spriteName=name, launch={"command": ["sh", "-c", "read line; exit 3"]})
    await run(site.world.await_reason, name, "Live", "SessionLive")
    person = await visitors.attach_to_type(site.gateways[0], anna, name)
    former = (await run(site.world.status, name))["session"]["id"]
    await person.types(b"go\n")

    assert await person.is_closed() == 1000
    assert person.told("exit")[0]["exit_code"] == 3
    status = await run(site.world.await_reason, name, "Exited", "SessionLive")
    assert status["exit"] == {"code": 3}
    assert status["session"]["ended"]["reason"] == "Exited"
    await run(site.await_free, name)
    again = await visitors.attach_to_type(site.gateways[1], anna, name)
    session = (await run(site.world.status, name))["session"]
    assert session["id"] != former
    assert "exit" not in await run(site.world.status, name)
    assert again.told("session_info")[-1]["session_id"] == session["id"]
    await again.types(b"go\n")
    assert await again.is_closed() == 1000


async def test_activity_is_noted_once_in_a_while(site: Site, anna: str, visitors: Visitors) -> None:
    name = await run(site.make_terminal)
    async with aiohttp.ClientSession() as http:
        for _ in range(3):
            url = f"{site.gateways[0].url}{visitors.path(name, 'activity')}"
            async with http.post(url, headers={"Authorization": f"Bearer {anna}"}) as answer:
                assert answer.status == 200, await answer.text()
    (entry,) = (await run(site.world.status, name))["gateways"]

    assert entry["incarnation"] == site.gateways[0].incarnation
    assert entry["viewers"] == 0
    assert "activityTime" in entry


async def test_a_gateway_that_is_asked_to_end_tells_everybody_and_leaves_nothing(
    site: Site, anna: str, visitors: Visitors
) -> None:
    gateway = await run(site.start_gateway)
    name, looked_at = await run(site.make_terminal), await run(site.make_terminal)
    person = await visitors.attach_to_type(gateway, anna, name)
    viewer = await visitors.attach(gateway, anna, looked_at, "?view=true")
    await run(await_true, lambda: "gateways" in site.world.status(looked_at), "the viewer to be told")
    await person.types(b"before the end\n")
    incarnation = gateway.incarnation

    started = time.monotonic()
    code = await run(gateway.stop)

    assert code == 0, gateway.told()
    assert (await measure_close(person, started))[:2] == (1012, "Restarting")
    assert (await measure_close(viewer, started))[:2] == (1012, "Restarting")
    assert await run(site.is_free, name)
    assert "gateways" not in await run(site.world.status, looked_at)
    assert incarnation not in await run(site.lease_holders)
    assert await run(site.received, name) == b"before the end\n"


async def test_a_dead_gateway_is_proven_out_taken_over_from_and_cleaned_up_after(
    site: Site, anna: str, visitors: Visitors
) -> None:
    gateway = await run(site.start_gateway)
    taken, left = await run(site.make_terminal), await run(site.make_terminal)
    for name in (taken, left):
        former = await visitors.attach_to_type(gateway, anna, name)
        await former.types(b"former\n")
        await former.sees(b"former")
    dead = gateway.incarnation
    line = 'agentterminal_gateway_takeover_duration_seconds_%s{former="DeadReplica"}'
    before, sum_before = [await run(site.gateways[0].metric, line % part) for part in ("count", "sum")]

    started = time.monotonic()
    await run(gateway.kill)
    assert await visitors.ask(site.gateways[0], anna, left) == (409, "Held")
    successor = asyncio.to_thread(site.start_gateway)
    person, _ = await asyncio.gather(
        visitors.attach_to_type(site.gateways[0], anna, taken, "?takeover=true"), successor
    )
    took = time.monotonic() - started
    await person.types(b"successor\n")
    await person.sees(b"successor")

    # The two looks may have begun before the kill, by somebody else: never sooner than a tenure lasts.
    assert took > 5
    assert await run(site.received, taken) == b"former\nsuccessor\n"
    # It is counted once the Lease was looked at, beside the person's first words.
    await run(await_true, lambda: site.gateways[0].metric(line % "count") == before + 1, "the takeover to be counted")
    # Measured by the gateway that took over: 15 s are promised, and the rest is for whoever stood still meanwhile.
    assert await run(site.gateways[0].metric, line % "sum") - sum_before < 20
    await run(site.await_free, left)
    assert (await run(site.lease_holders))[dead] == ""


async def test_a_gateway_that_keeps_its_lease_elsewhere_is_told_of_and_never_taken_for_dead(
    site: Site, anna: str, visitors: Visitors
) -> None:
    operator, elsewhere = site.world.operator, f"{site.world.namespace}-elsewhere"
    assert operator is not None
    gateway = await run(site.start_gateway_elsewhere, elsewhere)
    name = await run(site.make_terminal)
    person = await visitors.attach_to_type(gateway, anna, name)
    await run(
        await_true,
        lambda: any(line["message"] == LEASE_ELSEWHERE for line in operator.lines),
        "the operator to tell of it",
        WAIT_SECONDS,
    )
    lock = (await run(site.world.status, name))["socket"]
    # Whoever takes over cannot prove it dead either, and need not: it lives, and lets go.
    second = await visitors.attach_to_type(site.gateways[0], anna, name, "?takeover=true")
    await second.types(b"second\n")
    await second.sees(b"second")
    code = await person.is_closed()
    await run(gateway.stop)

    assert lock["incarnation"] == gateway.incarnation
    assert gateway.incarnation not in await run(site.lease_holders)
    assert code == 4001


async def test_when_the_api_server_hangs_input_stops_at_the_end_of_the_tenure(
    site: Site, anna: str, visitors: Visitors, tmp_path: Path
) -> None:
    name = await run(site.make_terminal)
    with Gate(site.world.cluster.url, site.world.cluster.ca_file) as gate:
        kubeconfig = write_kubeconfig(tmp_path / "through-the-gate", gate.url, site.world.cluster)
        gateway = await run(site.start_gateway, kubeconfig)
        viewer = await visitors.attach(gateway, anna, name, "?view=true")
        for _ in range(TRIES):
            person = await visitors.attach_to_type(gateway, anna, name, "?takeover=true")
            former = len((await run(site.received, name)).split())
            begun = time.monotonic()
            gate.stall(lambda _: True)
            stalled = time.monotonic()
            last = 0.0
            for number in itertools.count():
                try:
                    await person.types(b"%d\n" % number)
                except (ConnectionError, aiohttp.ClientError):
                    break
                last = time.monotonic()
                await asyncio.sleep(0.05)
            code, reason, _ = await measure_close(person, stalled)
            closed = time.monotonic()
            unready = not await run(gateway.is_ready)
            received = (await run(site.received, name)).split()[former:]
            # From the last renewal, not from the stall, which may come two seconds after it: they would hide as much.
            renewed = max(request.time for request in gate.find(is_renewal) if request.number in gate.answered)
            gate.mend()
            await run(await_true, gateway.is_ready, "a new tenure", WAIT_SECONDS)
            if max(closed, last) - renewed < 6.5:
                break
        again = await visitors.attach_to_type(gateway, anna, name, "?takeover=true")
        await again.types(b"again\n")
        await again.sees(b"again")

        assert (code, reason) == (1012, "LeaseLost")
        assert closed - begun > 2.5
        assert closed - renewed < 6.5
        assert unready
        assert last - renewed < 6.5
        assert received == [b"%d" % n for n in range(len(received))]
        assert len(received) > 5
        assert viewer.close_code is None
        await run(gateway.kill)


def is_renewal(request: Request) -> bool:
    return request.method in ("PUT", "POST") and "/leases" in request.target


async def test_while_the_kind_is_changed_and_no_list_succeeds_whoever_types_goes_on_and_is_still_thrown_out(
    site: Site, anna: str, visitors: Visitors, tmp_path: Path
) -> None:
    """Each change of the CRD ends every watch, and lists answer 429 for a while: here for longer than a tenure."""
    name = await run(site.make_terminal)
    request = site.world.cluster.request
    with Gate(site.world.cluster.url, site.world.cluster.ca_file) as gate:
        kubeconfig = write_kubeconfig(tmp_path / "through-the-gate", gate.url, site.world.cluster)
        gateway = await run(site.start_gateway, kubeconfig)
        person = await visitors.attach_to_type(gateway, anna, name)
        gate.answer(is_list_of_ours, 429, times=math.inf)
        _, kind = await run(request, "GET", KIND)
        columns = kind["spec"]["versions"][0]["additionalPrinterColumns"]
        for shown in (columns[:-1], columns):
            change = [{"op": "replace", "path": "/spec/versions/0/additionalPrinterColumns", "value": shown}]
            status, _ = await run(request, "PATCH", KIND, body=change, content_type="application/json-patch+json")
            assert status == 200

        since, typed = time.monotonic(), 0
        while time.monotonic() - since < TENURE_SECONDS + 1.5 or len(gate.find(is_list_of_ours)) < 3:
            assert time.monotonic() - since < WAIT_SECONDS
            typed += 1
            await person.types(b"%d\n" % typed)
            await person.sees(b"%d\r\n" % typed)
            await asyncio.sleep(0.1)
        refused = len(gate.find(is_list_of_ours))
        received = (await run(site.received, name)).split()
        code = person.close_code
        await run(site.world.patch, name, activeSocketId="", attached=False)
        ended = await measure_close(person, time.monotonic())
        await run(gateway.kill)

    assert code is None, person.texts
    assert refused >= 3
    assert received == [b"%d" % number for number in range(1, typed + 1)]
    assert ended[:2] == (4003, "Revoked")


def is_list_of_ours(request: Request) -> bool:
    """The list that goes before each renewal."""
    return "fieldSelector=status.socket.incarnation" in request.target


async def test_a_right_that_is_withdrawn_closes_the_socket(site: Site, visitors: Visitors) -> None:
    carl = await run(site.account, "carl", "attach")
    name = await run(site.make_terminal)
    person = await visitors.attach_to_type(site.gateways[0], carl, name)
    path = f"{RBAC}/namespaces/{site.world.namespace}/rolebindings/carl"
    status, _ = await run(site.world.cluster.request, "DELETE", path)
    assert status == 200

    assert (await measure_close(person, time.monotonic(), within=90))[:2] == (1008, "Forbidden")
    await run(site.await_free, name)


@pytest.mark.case("F25")
async def test_a_takeover_waits_for_what_is_on_its_way_to_the_sprite(site: Site, anna: str, visitors: Visitors) -> None:
    name = await run(site.make_terminal)
    with SlowLine(site.world.lab.url) as line:
        slow = await run(site.start_gateway, None, line.url)
        first = await visitors.attach_to_type(slow, anna, name)

        async def type_on() -> None:
            with suppress(ConnectionError, aiohttp.ClientError):
                for number in itertools.count(1):
                    await first.types(b"first:%d\n" % number)
                    await asyncio.sleep(0.002)

        async with asyncio.TaskGroup() as group:
            typing = group.create_task(type_on())
            await first.sees(b"first:100")
            line.seconds = SLOW_SECONDS
            second = await visitors.attach(site.gateways[1], anna, name, "?takeover=true")
            await second.types(b"second\n")
            await second.sees(b"second")
            typing.cancel()
        assert await first.is_closed() == 4001
        await asyncio.sleep(SLOW_SECONDS)
        lines = (await run(site.received, name)).split()
        await run(slow.stop)

    assert lines[-1] == b"second"
    assert lines[:-1] == [b"first:%d" % number for number in range(1, len(lines))]
    assert len(lines) > 100


@pytest.mark.case("F7")
async def test_what_was_lost_on_a_replaced_socket_counts_once_when_it_is_sent_again_on_a_new_one(
    site: Site, anna: str, visitors: Visitors
) -> None:
    with SlowLine(site.world.lab.url) as line:
        slow = await run(site.start_gateway, None, line.url)
        for _ in range(TRIES):
            line.seconds = 0.0
            name = await run(site.make_terminal)
            first = await visitors.attach_to_type(slow, anna, name)
            await first.types(b"first\n")
            await first.sees(b"first")
            # The lock is let go only once what is on its way has arrived, so the next one waits, with what they typed.
            line.seconds = SLOW_SECONDS
            await first.types(b"more\n")
            replaced = await visitors.attach(site.gateways[1], anna, name, "?takeover=true")
            await replaced.types(b"critical\n")
            await replaced.hears("Waiting")
            second = await visitors.attach(site.gateways[0], anna, name, "?takeover=true")
            code, reason, _ = await measure_close(replaced, time.monotonic())
            await second.types(b"second\n")
            await second.until(lambda one: b"second" in one.output, within=WAIT_SECONDS)
            if "Holding" not in replaced.words:
                break
            # The second came too late: this process stood still.
        lost = await run(site.received, name)

        again = await visitors.attach(site.gateways[1], anna, name, "?takeover=true")
        await again.types(b"critical\n")
        # What says that it counts, and the process's own answer.
        await again.hears("Holding")
        await again.sees(b"critical")
        await run(slow.stop)

    assert (code, reason) == (4001, "Replaced")
    assert "Holding" not in replaced.words
    assert lost == b"first\nmore\nsecond\n"
    assert await run(site.received, name) == b"first\nmore\nsecond\ncritical\n"


@pytest.mark.case("F23")
async def test_a_socket_that_was_let_in_speaks_for_that_very_object_and_for_no_successor_of_its_name(
    site: Site, anna: str, visitors: Visitors, tmp_path: Path
) -> None:
    name = await run(site.make_terminal, deletionPolicy="Orphan")
    former = await run(site.world.get, name)
    assert former is not None
    with Gate(site.world.cluster.url, site.world.cluster.ca_file) as gate:
        kubeconfig = write_kubeconfig(tmp_path / "through-the-gate", gate.url, site.world.cluster)
        gateway = await run(site.start_gateway, kubeconfig)
        claim = gate.hold(
            lambda request: request.method == "PATCH" and request.target.split("?")[0].endswith(f"/{name}"),
            At.BEFORE_FOR_SURE,
        )
        person = await visitors.attach(gateway, anna, name)
        await person.types(b"for the one before\n")
        await run(claim.await_reached)

        # It was let in and is about to claim: meanwhile its object goes, and another one comes to its name.
        await run(site.world.delete, name)
        await run(site.world.await_gone, name)
        spec = {key: former["spec"][key] for key in ("spriteName", "sessionId")}
        await run(site.world.create, name, **spec)
        await run(site.world.await_reason, name, "Live", "SessionLive")
        claim.release()
        await run(claim.await_done)
        code, reason, _ = await measure_close(person, time.monotonic())
        await run(gateway.stop)
    successor = await run(site.world.get, name)

    assert (code, reason) == (4003, "Deleted")
    assert successor is not None
    assert successor["metadata"]["uid"] != former["metadata"]["uid"]
    assert "activeSocketId" not in successor["spec"]
    assert "attached" not in successor["spec"]
    assert "socket" not in successor["status"]
    assert await run(site.received, name) == b""


async def test_two_gateways_and_many_takeovers_never_mix_input(site: Site, anna: str, visitors: Visitors) -> None:
    name = await run(site.make_terminal)
    came = itertools.count(1)
    typed: dict[str, int] = {}
    begun = time.monotonic()

    def is_over() -> bool:
        """On a slow machine it goes on until there were takeovers enough."""
        took = time.monotonic() - begun
        if not RACE_SECONDS < took < RACE_SECONDS_AT_MOST:
            return took > RACE_SECONDS
        return sum("Holding" in person.words for person in visitors.people) >= TAKEOVERS_AT_LEAST

    async def fight(gateway: GatewayProcess) -> None:
        while not is_over():
            label = f"p{next(came)}"
            with suppress(ConnectionError, aiohttp.ClientError):
                person = await visitors.attach(gateway, anna, name, "?takeover=true")
                for number in itertools.count(1):
                    await person.types(f"{label}:{number}\n".encode())
                    typed[label] = number
                    if number > BURST:
                        await asyncio.sleep(0.003)
                    if person.close_code is not None or is_over():
                        break

    async def meddle() -> None:
        for number in itertools.count():
            await asyncio.sleep(1.1)
            if is_over():
                return
            value = "" if number % 2 else f"bridge-{number}"
            await run(site.world.patch, name, activeSocketId=value, attached=False)

    await asyncio.gather(fight(site.gateways[0]), fight(site.gateways[1]), meddle())
    for person in visitors.people:
        await person.socket.close()
    await run(await_true, lambda: "socket" not in site.world.status(name), "the last lock to be cleared", WAIT_SECONDS)
    recorded = await run(site.received, name)
    received: list[str] = recorded.decode().split()
    blocks = [
        (label, [int(one.split(":")[1]) for one in lines])
        for label, lines in itertools.groupby(received, key=lambda one: one.split(":")[0])
    ]

    labels = [label for label, _ in blocks]
    assert len(recorded) < RECORDED_BYTES
    assert len(labels) >= 4, (labels, typed)
    assert len(labels) == len(set(labels)), f"Somebody typed after somebody newer: {labels}"
    for label, numbers in blocks:
        assert numbers == list(range(1, len(numbers) + 1)), label
