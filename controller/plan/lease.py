"""
What to do about the Lease: look, make it, take it, renew it, stand by, or give up.

Problem: of several operators exactly one may act, their clocks differ, an answer may be lost, and a Lease may be
deleted or edited by anybody. Promise: `plan_lease` has an answer to every sighting. A Lease is taken only after it was
seen unchanged for as long as its holder was promised, measured on our own clock since we saw it change; moments that
others wrote are never compared with ours. A holder that sees anything but itself in the Lease gives up at once.

Source: kopf.md 7; the rules are those of client-go's leader election, less its wall clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeAlias, assert_never

DURATION_MAX: Final = timedelta(minutes=5)
"""No Lease is waited out for longer, whatever somebody wrote into it."""


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """How long each part of an election lasts."""

    duration: timedelta = timedelta(seconds=15)
    """For so long after it last saw the Lease change, nobody else takes it. What is due waits for so long after a
    crash; the holds' expiry of 300 s spans it twenty times."""

    renew_deadline: timedelta = timedelta(seconds=10)
    """The leader stops this long after it sent the last renewal that was answered. The rest of `duration` is for what
    it had sent before, and for clocks that do not run alike."""

    retry: timedelta = timedelta(seconds=2)
    """How often the leader renews and the others look, and how long one call may take."""

    def __post_init__(self) -> None:
        faults = [f"{name} {rule}." for name, rule in self._faults()]
        if faults:
            raise ValueError(" ".join(faults))

    def _faults(self) -> list[tuple[str, str]]:
        rules = (
            ("retry", "must be longer than zero", self.retry <= timedelta(0)),
            ("renew_deadline", "must be at least twice retry", self.renew_deadline < 2 * self.retry),
            ("duration", "must be at least one and a half times renew_deadline", is_too_short(self)),
            ("duration", f"must be at most {DURATION_MAX.seconds} s", self.duration > DURATION_MAX),
        )
        return [(name, rule) for name, rule, broken in rules if broken]


def is_too_short(times: LeaseTimes) -> bool:
    """Two thirds of a Lease are its holder's; with less than a third to spare, two could lead for a moment."""
    return 2 * times.duration < 3 * times.renew_deadline


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """
    A Lease as it was read.

    Args:
        uid: Which one; a Lease of the same name made anew is another.
        version: Its resourceVersion: it differs if and only if somebody wrote.
        holder: Who holds it; empty is nobody.
        transitions: How often it changed hands.
        duration: What its holder was promised; None where nothing readable stands there.
        renewed: The `renewTime` as it is written; only ever compared for equality with our own.
    """

    uid: str
    version: str
    holder: str
    transitions: int
    duration: timedelta | None
    renewed: str


# --- what was seen ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NeverLooked:
    """Nothing is known of the Lease."""


@dataclass(frozen=True, slots=True)
class Missing:
    """
    There is none.

    Args:
        former: What was there before, as far as we saw it.
        since: When that was first seen as it was; when the lack was, where nothing was seen before.
    """

    former: LeaseRecord | None
    since: timedelta


@dataclass(frozen=True, slots=True)
class Present:
    """There is one, and it has been as it is since we first saw it so."""

    record: LeaseRecord
    since: timedelta


Sighting: TypeAlias = NeverLooked | Missing | Present


def note_sighting(known: Sighting, record: LeaseRecord | None, *, now: timedelta) -> Sighting:
    """
    Take in what a look has shown.

    Args:
        known: What was known before.
        record: What was read; None where there is no Lease.
        now: After the answer, so that the wait for it counts against us and not against the holder.
    """
    if record is not None:
        if isinstance(known, Present) and (known.record.uid, known.record.version) == (record.uid, record.version):
            return known
        return Present(record, now)
    match known:
        case NeverLooked():
            return Missing(None, now)
        case Missing():
            return known
        case Present(former, since):
            return Missing(former, since)
        case _:
            assert_never(known)


# --- what follows -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Look:
    """Read the Lease."""


@dataclass(frozen=True, slots=True)
class Create:
    """Make the Lease, held by us."""

    transitions: int


@dataclass(frozen=True, slots=True)
class Take:
    """Put ourselves in the holder's place."""

    transitions: int


@dataclass(frozen=True, slots=True)
class Renew:
    """Write it once more, as ours."""


@dataclass(frozen=True, slots=True)
class StandBy:
    """Somebody else holds it."""

    holder: str
    until: timedelta
    """When it may be taken, unless it is seen to change before."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """We led, and the Lease is not ours any more."""

    told: str


Step: TypeAlias = Look | Create | Take | Renew | StandBy | GiveUp


def plan_lease(sighting: Sighting, *, me: str, leading: bool, times: LeaseTimes, now: timedelta) -> Step:
    """
    Decide what to do about the Lease.

    At exactly the end of what its holder was promised it may be taken: the holder has stopped a third of it before.

    Args:
        sighting: What is known of it.
        me: Our identity, which no other process ever has.
        leading: Our tenure has begun.
        times: Ours; a holder that was promised more keeps it.
        now: On the clock of the sighting.
    """
    match sighting:
        case NeverLooked():
            return Look()
        case Missing() if leading:
            return GiveUp("it was deleted")
        case Missing(former, since):
            if former is None or former.holder in ("", me):
                return Create(0 if former is None else former.transitions + 1)
            return _wait(former, since, times, now) or Create(former.transitions + 1)
        case Present(record) if record.holder == me:
            return Renew()
        case Present(record) if leading:
            return GiveUp(f"{record.holder} holds it" if record.holder else "somebody took our name out of it")
        case Present(record, since):
            if not record.holder:
                return Take(record.transitions + 1)
            return _wait(record, since, times, now) or Take(record.transitions + 1)
        case _:
            assert_never(sighting)


def _wait(record: LeaseRecord, since: timedelta, times: LeaseTimes, now: timedelta) -> StandBy | None:
    until = since + judge_promise(record, times)
    return None if now >= until else StandBy(record.holder, until)


def judge_promise(record: LeaseRecord, times: LeaseTimes) -> timedelta:
    """Judge for how long a holder may believe that nobody takes its Lease: never less than our own, never endlessly."""
    return min(max(times.duration, record.duration or times.duration), DURATION_MAX)


def judge_until(sent: timedelta, times: LeaseTimes) -> timedelta:
    """Judge how long a tenure lasts by a renewal: counted from its sending, for the others count from later on."""
    return sent + times.renew_deadline


def settle(record: LeaseRecord | None, *, me: str, unsettled: Mapping[str, timedelta]) -> timedelta | None:
    """
    Tell when that write of ours was sent which a later look shows to have happened, although its answer was lost.

    Args:
        record: What was read.
        me: Our identity.
        unsettled: The `renewTime` of each write without an answer, and when it was sent.
    """
    if record is None or record.holder != me:
        return None
    return unsettled.get(record.renewed)


# --- the object -------------------------------------------------------------------------------------------------------


def read_lease(lease: Mapping[str, Any]) -> LeaseRecord:
    """Read a Lease; what is missing, or of another type than the API promises, counts as not there."""
    metadata, spec = lease.get("metadata") or {}, lease.get("spec") or {}
    holder = spec.get("holderIdentity")
    seconds = _read_number(spec.get("leaseDurationSeconds"), least=1)
    return LeaseRecord(
        uid=str(metadata.get("uid", "")),
        version=str(metadata.get("resourceVersion", "")),
        holder=holder if isinstance(holder, str) else "",
        transitions=_read_number(spec.get("leaseTransitions"), least=0) or 0,
        duration=None if seconds is None else timedelta(seconds=min(seconds, DURATION_MAX.seconds)),
        renewed=str(spec.get("renewTime") or ""),
    )


def _read_number(value: Any, *, least: int) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= least else None


def render_new_lease(
    namespace: str, name: str, *, me: str, transitions: int, times: LeaseTimes, now_time: datetime
) -> dict[str, Any]:
    """Write a Lease that is ours from its beginning."""
    moment = render_moment(now_time)
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "holderIdentity": me,
            "leaseDurationSeconds": _render_seconds(times),
            "acquireTime": moment,
            "renewTime": moment,
            "leaseTransitions": transitions,
        },
    }


def render_held_lease(
    lease: Mapping[str, Any], step: Take | Renew, *, me: str, times: LeaseTimes, now_time: datetime
) -> dict[str, Any]:
    """Write the Lease that was read as ours, and leave what others put there as it is."""
    moment = render_moment(now_time)
    changes: dict[str, Any] = {
        "holderIdentity": me,
        "leaseDurationSeconds": _render_seconds(times),
        "renewTime": moment,
    }
    if isinstance(step, Take):
        changes |= {"acquireTime": moment, "leaseTransitions": step.transitions}
    return {**lease, "spec": {**(lease.get("spec") or {}), **changes}}


def render_released_lease(lease: Mapping[str, Any], *, now_time: datetime) -> dict[str, Any]:
    """Write the Lease as nobody's, so that the next one need not wait."""
    return {**lease, "spec": {**(lease.get("spec") or {}), "holderIdentity": "", "renewTime": render_moment(now_time)}}


def render_moment(moment: datetime) -> str:
    """Write a moment as the API's MicroTime, which the server gives back unchanged."""
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _render_seconds(times: LeaseTimes) -> int:
    """The API knows whole seconds; a part of one counts as whole, so that others never wait too short."""
    return -(-times.duration // timedelta(seconds=1))
