"""What the API server's failures mean to the fence, and how the watch goes on."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from controller.clock import SystemClock
from controller.gateway.fence_calls import CallFailed, FenceCalls, judge_failure, render_lease
from controller.gateway.room import find_recorded
from controller.kube.client import Page
from controller.kube.errors import (
    Cause,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    Malformed,
    NotFound,
    Rejected,
    ServerFault,
    Throttled,
    TimedOut,
    Unauthorized,
    Unreachable,
)
from controller.kube.watching import Change, Relisted, Removed, Seen, Watch
from controller.plan.fence import Lost, MovedOn, NotNow, ObjectGone, RuleSpoke
from controller.plan.fence_ids import LEASE_ELSEWHERE, make_incarnation
from controller.plan.fence_objects import LeaseView, NoLease, view_lease
from tests.gateway.doubles import UnaskedKube


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (Invalid("x", status=422), MovedOn()),
        (Invalid("x", status=422, causes=(Cause("spec", "No."),), spoke=True), RuleSpoke("No.")),
        (Invalid("x", status=422, spoke=True), RuleSpoke("x")),
        (Conflict("x", status=409), MovedOn()),
        (Gone("x", status=410), MovedOn()),
        (NotFound("x", status=404), ObjectGone()),
        (Throttled("x", status=429), NotNow()),
        (Unauthorized("x", status=401), RuleSpoke("x")),
        (Forbidden("x", status=403), RuleSpoke("x")),
        (Rejected("x", status=400), RuleSpoke("x")),
        (ServerFault("x", status=500, may_have_happened=True), Lost()),
        (TimedOut("x", may_have_happened=True), Lost()),
        (TimedOut("x"), NotNow()),
        (Unreachable("x", may_have_happened=True), Lost()),
        (Unreachable("x"), NotNow()),
        (Malformed("x", may_have_happened=True), Lost()),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, KubeError) else "",
)
def test_every_failed_write_is_one_of_the_fences_answers(error: KubeError, answer: object) -> None:
    assert judge_failure(error) == answer


def test_a_lease_is_written_over_the_very_version_that_was_read() -> None:
    body = render_lease("home", "gateway0", LeaseView("uid-1", "7", "gateway0"), holder="")

    assert body["metadata"] == {"name": "atgw-gateway0", "namespace": "home", "uid": "uid-1", "resourceVersion": "7"}
    assert view_lease(body) == LeaseView("uid-1", "7", "")


class AbsentLeases(UnaskedKube):
    """An API server on which no Lease is to be found."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    async def get_lease(self, namespace: str, name: str, *, timeout: timedelta) -> dict[str, Any]:
        self.asked.append((namespace, name))
        raise NotFound("x", status=404)


async def test_a_lease_that_lies_in_another_namespace_is_never_found_absent(caplog: pytest.LogCaptureFixture) -> None:
    kube = AbsentLeases()
    calls = FenceCalls(kube, "home")
    near = make_incarnation("gateway0", lease_namespace="home")
    far = make_incarnation("gateway1", lease_namespace="elsewhere")

    assert await calls.read_lease(near) == NoLease()
    for _ in range(2):
        with pytest.raises(CallFailed):
            await calls.read_lease(far)

    assert kube.asked == [("home", f"atgw-{near}")]
    assert [record.message for record in caplog.records] == [LEASE_ELSEWHERE]


def test_a_session_that_has_ended_or_is_not_there_is_not_recorded() -> None:
    assert find_recorded(None) is None


def build(uid: str, version: int) -> dict[str, Any]:
    return {"metadata": {"uid": uid, "name": uid, "namespace": "team-a", "resourceVersion": str(version)}}


class ScriptedKube:
    """Lists and watches as it was told; after the last word the test ends."""

    def __init__(self, lists: list[list[dict[str, Any]]], watches: list[Sequence[dict[str, Any] | KubeError]]) -> None:
        self.lists, self.watches = lists, watches
        self.asked: list[str] = []

    async def list_pages(self, *, metadata_only: bool, namespaces: Sequence[str] | None = None) -> AsyncIterator[Page]:
        assert not metadata_only
        assert namespaces is None
        self.asked.append("list")
        for place, item in enumerate(items := self.lists.pop(0)):
            yield Page((item,), None, place == 0, str(10 * len(items)))

    async def watch(self, *, namespace: str | None, resource_version: str) -> AsyncIterator[dict[str, Any]]:
        assert namespace is None
        self.asked.append(resource_version)
        if not self.watches:
            raise Done
        for event in self.watches.pop(0):
            if isinstance(event, KubeError):
                raise event
            yield event


class Done(Exception):
    """The script is over."""


class QuickClock(SystemClock):
    async def sleep(self, delay: timedelta) -> None:
        assert delay > timedelta(0)


async def test_a_watch_goes_on_from_the_last_version_and_lists_again_only_when_that_has_expired() -> None:
    kube = ScriptedKube(
        [[build("a", 1), build("b", 2)], [build("a", 30)]],
        [
            [{"type": "MODIFIED", "object": build("a", 21)}, {"type": "BOOKMARK", "object": build("", 25)}],
            [Unreachable("cut")],
            [{"type": "DELETED", "object": build("b", 26)}, Gone("expired", status=410)],
        ],
    )
    changes: list[Change] = []
    watch = Watch(kube, None, changes.append, QuickClock())

    with pytest.raises(ExceptionGroup):
        await watch.run()

    assert kube.asked == ["list", "20", "25", "25", "list", "10"]
    assert watch.listed.is_set()
    assert [type(change) for change in changes] == [Seen, Seen, Relisted, Seen, Removed, Seen, Relisted]
    assert changes[2] == Relisted(None, frozenset({"a", "b"}))
    assert changes[-1] == Relisted(None, frozenset({"a"}))


class StandingClock(QuickClock):
    """One that is moved by hand."""

    def __init__(self) -> None:
        self.at = timedelta(0)

    def monotonic(self) -> timedelta:
        return self.at


@pytest.mark.parametrize("kind", ["MODIFIED", "BOOKMARK", "DELETED"])
async def test_a_watch_is_silent_since_the_last_word_whatever_it_was(kind: str) -> None:
    clock = StandingClock()
    kube = ScriptedKube([[build("a", 1)]], [[{"type": kind, "object": build("a", 2)}]])
    watch = Watch(kube, None, lambda _: setattr(clock, "at", clock.at + timedelta(seconds=5)), clock)

    clock.at = timedelta(seconds=40)
    assert watch.silence == timedelta(seconds=40)
    with pytest.raises(ExceptionGroup):
        await watch.run()
    heard = clock.at if kind == "BOOKMARK" else clock.at - timedelta(seconds=5)
    clock.at += timedelta(seconds=60)

    assert watch.silence == clock.at - heard


async def test_of_several_namespaces_the_longest_silence_counts() -> None:
    clock = StandingClock()
    watch = Watch(EachKube(), ["loud", "silent"], lambda _: None, clock)
    clock.at = timedelta(seconds=30)

    with pytest.raises(ExceptionGroup):
        await watch.run()

    assert watch.silence == timedelta(seconds=30)


@pytest.mark.parametrize(("seconds", "is_listed"), [(59, False), (60, True)])
async def test_a_namespace_that_may_not_be_read_is_told_at_once_and_waited_for_for_a_minute(
    seconds: float, caplog: pytest.LogCaptureFixture, *, is_listed: bool
) -> None:
    clock = StandingClock()
    watch = Watch(RefusingKube(clock, seconds), ["loud", "withheld"], lambda _: None, clock)

    with pytest.raises(ExceptionGroup):
        await watch.run()

    assert watch.listed.is_set() is is_listed
    (told,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "AGENTTERMINAL_NAMESPACES names the namespace withheld, which may not be read" in told


async def test_the_only_namespace_is_waited_for_without_end() -> None:
    clock = StandingClock()
    watch = Watch(RefusingKube(clock, 3600), ["withheld"], lambda _: None, clock)

    with pytest.raises(ExceptionGroup):
        await watch.run()

    assert not watch.listed.is_set()


class RefusingKube:
    """Refuses one namespace, twice, so many seconds apart; a third question is the end."""

    def __init__(self, clock: StandingClock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._refused = 0

    async def list_pages(self, *, metadata_only: bool, namespaces: Sequence[str] | None = None) -> AsyncIterator[Page]:
        assert not metadata_only
        if namespaces == ("withheld",):
            self._refused += 1
            if self._refused == 2:
                self._clock.at += timedelta(seconds=self._seconds)
            if self._refused == 3:
                raise Done
            raise Forbidden("no right", status=403)
        yield Page((), None, True, "1")

    async def watch(self, *, namespace: str | None, resource_version: str) -> AsyncIterator[dict[str, Any]]:
        assert (namespace, resource_version) == ("loud", "1")
        await asyncio.Event().wait()
        yield {}


class EachKube:
    """Tells something of one namespace, and of the other nothing at all."""

    async def list_pages(self, *, metadata_only: bool, namespaces: Sequence[str] | None = None) -> AsyncIterator[Page]:
        assert not metadata_only
        if namespaces == ("silent",):
            await asyncio.Event().wait()
        yield Page((), None, True, "1")

    async def watch(self, *, namespace: str | None, resource_version: str) -> AsyncIterator[dict[str, Any]]:
        assert (namespace, resource_version) == ("loud", "1")
        words: list[dict[str, Any]] = []
        for word in words:
            yield word
        raise Done
