"""The event pump on a real API server: it sees everything, writes nothing, and goes on through what ends others."""

import asyncio
import itertools
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from aiohttp import web

from controller.api.names import FINALIZER
from controller.clock import SystemClock
from controller.engine.registry import Gone, Registry, Snapshot
from controller.engine.resync import Resync
from controller.engine.settings import ResyncSettings
from controller.handlers.handover import Word
from controller.handlers.pump import Pump, PumpEnded, PumpSettings
from controller.kube.client import KubeClient
from controller.kube.credentials import ConnectionFacts, load_credentials, read_connection_facts
from controller.kube.settings import Kubeconfig, KubeSettings
from tests.cluster.passage import Passage, is_list, is_watch, open_passage
from tests.cluster.plane import Cluster

MERGE = "application/merge-patch+json"
WITHIN_SECONDS = 30


def is_of_kube_public(request: web.Request) -> bool:
    return "/namespaces/kube-public/" in request.path


class Terminals:
    """The terminals of one namespace, written past the pump."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self._cluster = cluster
        self.namespace = namespace
        self.path = f"/apis/agentterminal.dev/v1alpha1/namespaces/{namespace}/agentterminals"

    async def create(self, name: str, *, finalizers: tuple[str, ...] = ()) -> dict[str, Any]:
        return await self._send(
            "POST",
            self.path,
            201,
            {
                "apiVersion": "agentterminal.dev/v1alpha1",
                "kind": "AgentTerminal",
                "metadata": {"name": name, "finalizers": list(finalizers)},
                "spec": {"spriteName": "box", "launch": {"command": ["sh"]}},
            },
        )

    async def read(self, name: str) -> dict[str, Any]:
        return await self._send("GET", f"{self.path}/{name}", 200)

    async def patch(self, name: str, patch: dict[str, Any]) -> dict[str, Any]:
        return await self._send("PATCH", f"{self.path}/{name}", 200, patch, MERGE)

    async def delete(self, name: str) -> None:
        await self._send("DELETE", f"{self.path}/{name}", 200, {})

    async def _send(
        self, method: str, path: str, expected: int, body: object = None, content_type: str = "application/json"
    ) -> dict[str, Any]:
        status, answer = await asyncio.to_thread(
            self._cluster.request, method, path, body=body, content_type=content_type
        )
        assert status == expected, answer
        assert isinstance(answer, dict)
        return answer


class Watcher:
    """A pump with a registry behind it."""

    def __init__(self, connect: Callable[[], ConnectionFacts], settings: PumpSettings) -> None:
        self.registry = Registry()
        self.words: list[Word] = []
        self._heard = asyncio.Event()
        self.pump = Pump(settings, connect, self.take, SystemClock())

    def take(self, word: Word) -> None:
        self.words.append(word)
        match word:
            case Snapshot():
                self.registry.observe(word)
            case Gone(uid=uid):
                self.registry.forget(uid)
        self._heard.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the words that came make a condition true."""
        async with asyncio.timeout(WITHIN_SECONDS):
            while not condition():
                self._heard.clear()
                await self._heard.wait()

    async def until_ready(self) -> None:
        async with asyncio.timeout(WITHIN_SECONDS):
            await self.pump.ready.wait()

    def knows(self, namespace: str, name: str) -> bool:
        return self.registry.find(namespace, name) is not None


@asynccontextmanager
async def watching(
    connect: Callable[[], ConnectionFacts], settings: PumpSettings, *, is_ready: bool = True
) -> AsyncIterator[Watcher]:
    """Run a pump for the time of a test."""
    watcher = Watcher(connect, settings)
    watcher.pump.start()
    try:
        if is_ready:
            await watcher.until_ready()
        yield watcher
    finally:
        await watcher.pump.stop()
    assert not watcher.pump.alive
    assert (watcher.pump.errors, watcher.pump.undelivered) == (0, 0)


@pytest.fixture
def terminals(cluster: Cluster, namespace: str) -> Terminals:
    return Terminals(cluster, namespace)


@pytest.fixture
def direct(cluster: Cluster) -> Callable[[], ConnectionFacts]:
    """The way to the API server that the product takes."""
    return partial(read_connection_facts, KubeSettings(login=Kubeconfig(str(cluster.kubeconfig))))


@pytest.fixture
async def passage(cluster: Cluster) -> AsyncIterator[Passage]:
    async with open_passage(cluster.url, cluster.ca_file) as passage:
        yield passage


@pytest.fixture
def through(cluster: Cluster, passage: Passage) -> Callable[[], ConnectionFacts]:
    """The way through the passage."""
    return lambda: ConnectionFacts(server=passage.url, scheme="Bearer", token=cluster.admin_token)


async def test_all_that_exists_is_seen_before_ready_and_every_change_after(
    terminals: Terminals, direct: Callable[[], ConnectionFacts]
) -> None:
    namespace = terminals.namespace
    await terminals.create("old")
    handlers = (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT))
    async with watching(direct, PumpSettings()) as watcher:
        assert watcher.knows(namespace, "old")
        created = await terminals.create("new")
        await watcher.until(lambda: watcher.knows(namespace, "new"))
        uid = created["metadata"]["uid"]
        edited = await terminals.patch("new", {"spec": {"holdWanted": True}})
        await watcher.until(lambda: (known := watcher.registry.get(uid)) is not None and known.spec()["holdWanted"])
        assert watcher.registry.get(uid) == Snapshot.of(edited)
        await terminals.delete("new")
        await watcher.until(lambda: uid not in watcher.registry)
        last = watcher.words[-1]
        assert isinstance(last, Gone)
        assert (last.uid, last.namespace, last.name) == (uid, namespace, "new")
        assert last.version > int(edited["metadata"]["resourceVersion"])
        assert watcher.pump.alive
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == handlers


async def test_only_the_chosen_namespaces_are_watched(
    cluster: Cluster, terminals: Terminals, direct: Callable[[], ConnectionFacts]
) -> None:
    elsewhere = Terminals(cluster, "default")
    await elsewhere.create("stranger")
    try:
        await terminals.create("one")
        settings = PumpSettings(namespaces=(terminals.namespace, "kube-public"))
        async with watching(direct, settings) as watcher:
            assert watcher.pump.watches == 2
            await terminals.create("two")
            await watcher.until(lambda: watcher.knows(terminals.namespace, "two"))
            assert {snapshot.namespace for snapshot in watcher.registry} == {terminals.namespace}
    finally:
        await elsewhere.delete("stranger")


async def test_the_pump_writes_nothing_and_leaves_our_finalizer_alone(
    terminals: Terminals,
    passage: Passage,
    through: Callable[[], ConnectionFacts],
    caplog: pytest.LogCaptureFixture,
) -> None:
    await terminals.create("kept", finalizers=(FINALIZER,))
    async with watching(through, PumpSettings(namespaces=(terminals.namespace,))) as watcher:
        await terminals.delete("kept")
        await watcher.until(
            lambda: (
                (known := watcher.registry.find(terminals.namespace, "kept")) is not None and known.deleted is not None
            )
        )
        await terminals.create("other")
        await terminals.patch("other", {"metadata": {"labels": {"a": "b"}}})
        await terminals.delete("other")
        await watcher.until(lambda: isinstance(watcher.words[-1], Gone))
        kept = await terminals.read("kept")
        known = watcher.registry.find(terminals.namespace, "kept")
    assert passage.methods == {"GET"}
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == [], "kopf tried to write"
    assert kept["metadata"]["finalizers"] == [FINALIZER]
    assert known == Snapshot.of(kept)


async def test_three_hundred_objects_are_listed_in_pages_over_two_connections(
    terminals: Terminals, passage: Passage, through: Callable[[], ConnectionFacts]
) -> None:
    names = iter(f"t{number}" for number in range(300))

    async def create_some() -> None:
        for name in names:
            await terminals.create(name)

    await asyncio.gather(*(create_some() for _ in range(8)))
    async with watching(through, PumpSettings(namespaces=(terminals.namespace,), chunk_size=100)) as watcher:
        assert len(watcher.registry) == 300
        assert len(passage.clients) <= 2
        assert watcher.pump.connections <= 2
        assert sum("limit=100" in path for _, path in passage.calls) == 3


async def test_it_goes_on_after_the_api_server_has_restarted(
    cluster: Cluster, terminals: Terminals, direct: Callable[[], ConnectionFacts]
) -> None:
    await terminals.create("before")
    async with watching(direct, PumpSettings(namespaces=(terminals.namespace,))) as watcher:
        await asyncio.to_thread(cluster.restart_api_server)
        await terminals.create("after")
        await watcher.until(lambda: watcher.knows(terminals.namespace, "after"))
        assert watcher.knows(terminals.namespace, "before")


async def test_a_stray_401_costs_one_login_and_no_object(
    terminals: Terminals, passage: Passage, through: Callable[[], ConnectionFacts]
) -> None:
    async with watching(through, PumpSettings(namespaces=(terminals.namespace,))) as watcher:
        assert watcher.pump.logins == 1
        passage.answer(is_watch, 401, {"kind": "Status", "code": 401})
        passage.reset()
        await terminals.create("one")
        await watcher.until(lambda: watcher.knows(terminals.namespace, "one"))
        assert watcher.pump.logins == 2


async def test_a_token_refused_again_and_again_is_no_end_and_no_storm(
    terminals: Terminals, passage: Passage, through: Callable[[], ConnectionFacts]
) -> None:
    async with watching(through, PumpSettings(namespaces=(terminals.namespace,))) as watcher:
        begun = asyncio.get_running_loop().time()
        passage.answer(is_watch, 401, {"kind": "Status", "code": 401}, times=3)
        passage.reset()
        await terminals.create("one")
        await watcher.until(lambda: watcher.knows(terminals.namespace, "one"))
        assert watcher.pump.logins == 4
        assert asyncio.get_running_loop().time() - begun > 2.5


async def test_a_watch_that_was_cut_goes_on_from_its_last_version_without_a_list(
    terminals: Terminals, passage: Passage, through: Callable[[], ConnectionFacts]
) -> None:
    await terminals.create("doomed")
    async with watching(through, PumpSettings(namespaces=(terminals.namespace,))) as watcher:
        passage.cut()
        await terminals.delete("doomed")
        passage.mend()
        await watcher.until(lambda: len(watcher.registry) == 0)
    assert sum("limit=" in path for _, path in passage.calls) == 1


async def test_a_deletion_that_the_watch_has_lost_is_found_by_the_resync(
    cluster: Cluster, terminals: Terminals, passage: Passage, through: Callable[[], ConnectionFacts]
) -> None:
    doomed = await terminals.create("doomed")
    gone: list[str] = []
    settings = KubeSettings(login=Kubeconfig(str(cluster.kubeconfig)))
    credentials = await load_credentials(settings, clock=SystemClock())
    async with (
        watching(through, PumpSettings(namespaces=(terminals.namespace,))) as watcher,
        KubeClient(credentials, settings, SystemClock(), lambda _: None) as client,
    ):
        passage.cut()
        await terminals.delete("doomed")
        expired = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired"}}
        passage.answer(is_watch, 200, expired)
        await terminals.create("later")
        passage.mend()
        await watcher.until(lambda: watcher.knows(terminals.namespace, "later"))
        assert watcher.knows(terminals.namespace, "doomed"), "kopf compares a new list with nothing"
        resync = Resync(
            client,
            watcher.registry,
            SystemClock(),
            ResyncSettings(),
            namespaces=[terminals.namespace],
            on_gone=gone.append,
            on_stripped=lambda _: None,
        )
        await resync.look()
        assert gone == []
        await resync.look()
    assert gone == [doomed["metadata"]["uid"]]


async def test_a_server_that_is_away_for_a_while_ends_nothing(
    terminals: Terminals, passage: Passage, through: Callable[[], ConnectionFacts]
) -> None:
    async with watching(through, PumpSettings(namespaces=(terminals.namespace,))) as watcher:
        unavailable = {"kind": "Status", "code": 503}
        passage.answer(is_watch, 503, unavailable, times=3)
        passage.reset()
        await terminals.create("one")
        await watcher.until(lambda: watcher.knows(terminals.namespace, "one"))
        assert watcher.pump.logins == 1


async def test_a_namespace_that_may_not_be_read_is_told_and_keeps_no_other_from_being_served(
    cluster: Cluster,
    terminals: Terminals,
    passage: Passage,
    through: Callable[[], ConnectionFacts],
    caplog: pytest.LogCaptureFixture,
) -> None:
    passage.answer(is_of_kube_public, 403, {"kind": "Status", "code": 403}, times=float("inf"))
    settings = PumpSettings(
        namespaces=(terminals.namespace, "kube-public"),
        reconnect_backoff=timedelta(milliseconds=50),
        withheld_pause=timedelta(milliseconds=50),
        withheld_patience=timedelta(seconds=1),
    )
    withheld = Terminals(cluster, "kube-public")
    await withheld.create("late")
    try:
        with caplog.at_level("INFO", logger="controller.handlers.withheld"):
            async with watching(through, settings) as watcher:
                await terminals.create("one")
                await watcher.until(lambda: watcher.knows(terminals.namespace, "one"))
                assert not watcher.knows("kube-public", "late")
                assert watcher.pump.unreadable == 1

                passage.faults.clear()
                await watcher.until(lambda: watcher.knows("kube-public", "late"))
                assert watcher.pump.unreadable == 0
    finally:
        await withheld.delete("late")
    told = [
        (record.levelname, vars(record)["namespace"])
        for record in caplog.records
        if record.name == "controller.handlers.withheld"
    ]
    assert told == [("WARNING", "kube-public"), ("INFO", "kube-public")]


async def test_the_only_namespace_is_waited_for_as_long_as_it_may_not_be_read(
    passage: Passage, through: Callable[[], ConnectionFacts]
) -> None:
    passage.answer(is_of_kube_public, 403, {"kind": "Status", "code": 403}, times=float("inf"))
    settings = PumpSettings(
        namespaces=("kube-public",),
        reconnect_backoff=timedelta(milliseconds=50),
        withheld_pause=timedelta(milliseconds=50),
        withheld_patience=timedelta(milliseconds=200),
    )
    async with watching(through, settings, is_ready=False) as watcher:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await watcher.pump.ready.wait()
        assert watcher.pump.alive
        passage.faults.clear()
        await watcher.until_ready()


async def test_whoever_waits_learns_that_the_pump_has_ended_by_itself(
    terminals: Terminals, passage: Passage, through: Callable[[], ConnectionFacts]
) -> None:
    passage.answer(is_list, 404, {"kind": "Status", "code": 404}, times=float("inf"))
    async with watching(through, PumpSettings(namespaces=(terminals.namespace,)), is_ready=False) as watcher:
        async with asyncio.timeout(WITHIN_SECONDS):
            with pytest.raises(PumpEnded, match="ended by itself"):
                await watcher.pump.wait()
        assert not watcher.pump.ready.is_set()


async def test_credentials_are_read_anew_when_they_have_grown_old(
    terminals: Terminals, passage: Passage, through: Callable[[], ConnectionFacts]
) -> None:
    settings = PumpSettings(
        namespaces=(terminals.namespace,),
        credentials_max_age=timedelta(seconds=1),
    )
    async with watching(through, settings) as watcher:
        logins = watcher.pump.logins
        async with asyncio.timeout(WITHIN_SECONDS):
            for number in itertools.count():
                passage.reset()
                await terminals.create(f"t{number}")
                await watcher.until(partial(watcher.knows, terminals.namespace, f"t{number}"))
                if watcher.pump.logins > logins:
                    break
