"""
Who had the lock when, as the API server tells it, and which person that was. Pure.

Problem: a gateway does not tell a person the id of their socket, and what a gateway says of itself proves nothing.
Promise: every lock that was ever written is known from one unbroken watch; a person is found by the moment in which
their lock was written, since at each gateway one person at a time asks for a terminal, and the next only comes once
the former was let speak or sent away. A gateway takes that moment before it sends the write: how late it lands, and
whether it lands twice, does not matter.
"""

from bisect import bisect_right
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from controller.lab.bench.race_judge import Epoch


@dataclass(frozen=True, slots=True)
class Held:
    """
    One lock.

    Args:
        terminal: Whose.
        epoch: The generation that its write tested, and the gateway process that wrote it.
        socket_id: Which socket it is for.
        written: When it was written, by the gateway.
        cleared: When it was seen to be gone; None while it stands.
    """

    terminal: str
    epoch: Epoch
    socket_id: str
    written: datetime
    cleared: datetime | None = None

    def __str__(self) -> str:
        """Say all of it in one line."""
        epoch = self.epoch
        return (
            f"epoch {epoch.number} of {epoch.incarnation} at {self.terminal} for {self.socket_id},"
            f" written {self.written}, cleared {self.cleared}"
        )


class LockBook:
    """Every lock of every terminal, in order, from what a watch tells."""

    def __init__(self) -> None:
        self.locks: dict[str, list[Held]] = {}

    def note(self, terminal: Mapping[str, Any], now: datetime) -> None:
        """Take in an object as the watch shows it."""
        name = terminal["metadata"]["name"]
        raw = terminal.get("status", {}).get("socket")
        locks = self.locks.setdefault(name, [])
        standing = locks[-1] if locks and locks[-1].cleared is None else None
        if standing is not None and (raw is None or raw["socketId"] != standing.socket_id):
            locks[-1] = replace(standing, cleared=now)
            standing = None
        if raw is not None and standing is None:
            epoch = Epoch(int(raw["epoch"]), raw["incarnation"])
            locks.append(Held(name, epoch, raw["socketId"], datetime.fromisoformat(raw["since"])))

    def find_holder(self, terminal: str) -> str | None:
        """Give the incarnation that holds the lock now."""
        locks = self.locks.get(terminal)
        return locks[-1].epoch.incarnation if locks and locks[-1].cleared is None else None

    @property
    def count(self) -> int:
        """How many locks there were."""
        return sum(map(len, self.locks.values()))


@dataclass(frozen=True, slots=True)
class Turn:
    """
    One person's wish to speak.

    Args:
        sender: Who.
        terminal: Where.
        gateway: Through which gateway, by its place: a restarted one keeps it.
        came: When they began to ask.
        answered: When they were let speak or sent away.
        spoke: Whether they were let speak.
        reason: Why they were sent away; "" where they were not, or their connection just ended.
    """

    sender: str
    terminal: str
    gateway: str
    came: datetime
    answered: datetime
    spoke: bool
    reason: str = ""

    def __str__(self) -> str:
        """Say when it was, in one line."""
        end = "spoke" if self.spoke else f"sent away: {self.reason or 'no word'}"
        return f"{self.sender} ({self.came} to {self.answered}, {end})"


class Kind(StrEnum):
    """From whom a terminal was taken over."""

    NOBODY = "nobody"
    SAME = "same"
    OTHER = "other"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Unmatched:
    """
    A lock that nobody's turn explains.

    Args:
        held: The lock.
        place: The gateway that wrote it; "" where it is none of ours.
        near: Whose turn began last before it was written, and whose began next, at that gateway and terminal.
        owner: Who has had another lock already, where it falls into their turn.
    """

    held: Held
    place: str
    near: Sequence[Turn]
    owner: str | None

    def __str__(self) -> str:
        """Say all of it in one line."""
        near = "; ".join(map(str, self.near)) or "nobody"
        had = f", who had a lock already: {self.owner}" if self.owner is not None else ""
        return f"unmatched: the lock of {self.held}, by the gateway {self.place or 'of nobody'}; near: {near}{had}"


@dataclass(frozen=True, slots=True)
class Matched:
    """
    What the locks say about the people.

    Args:
        epochs: By sender.
        takeovers: How long those who came to speak had asked for it, by whom they took it from.
        successions: How often somebody held a terminal after a gateway that was proven dead, also where its lock was
            cleared before they came.
        unmatched: Locks that nobody's turn explains.
    """

    epochs: Mapping[str, Epoch]
    takeovers: Mapping[Kind, Sequence[timedelta]]
    successions: int
    unmatched: Sequence[Unmatched]


def match(
    book: Mapping[str, Sequence[Held]],
    turns: Iterable[Turn],
    gateways: Mapping[str, str],
    dead: Collection[str],
) -> Matched:
    """
    Find whose lock each lock was.

    Args:
        book: The locks of each terminal, in order.
        turns: In any order; of one gateway at one terminal no two overlap.
        gateways: The gateway that each incarnation was, by its place.
        dead: Incarnations that others proved out.
    """
    by_place: dict[tuple[str, str], list[Turn]] = {}
    for turn in sorted(turns, key=lambda one: one.came):
        by_place.setdefault((turn.terminal, turn.gateway), []).append(turn)
    epochs: dict[str, Epoch] = {}
    owners: dict[tuple[str, Epoch], str] = {}
    takeovers: dict[Kind, list[timedelta]] = {kind: [] for kind in Kind}
    unmatched: list[Unmatched] = []
    successions = 0
    for terminal, locks in book.items():
        last_of = {held.epoch.incarnation: place for place, held in enumerate(locks)}
        for place, held in enumerate(locks):
            former = locks[place - 1] if place > 0 else None
            was_last = former is not None and last_of[former.epoch.incarnation] == place - 1
            follows_dead = former is not None and was_last and former.epoch.incarnation in dead
            successions += follows_dead
            gateway = gateways.get(held.epoch.incarnation, "")
            at_gateway = by_place.get((terminal, gateway), [])
            found = _find_turn(at_gateway, held.written)
            if found is not None and owners.get((held.socket_id, held.epoch)) == found.sender:
                # A write of theirs whose answer was lost, so that they sent another, has landed after the other's lock
                # was cleared: nothing that it tests had moved. Their gateway clears it (docs/fence.md).
                continue
            if found is None or found.sender in epochs:
                near = _find_near(at_gateway, held.written)
                unmatched.append(Unmatched(held, gateway, near, None if found is None else found.sender))
                continue
            epochs[found.sender] = held.epoch
            owners[held.socket_id, held.epoch] = found.sender
            if found.spoke:
                takeovers[_judge_kind(former, held, found, follows_dead=follows_dead)].append(
                    found.answered - found.came
                )
    return Matched(epochs, takeovers, successions, unmatched)


def _find_turn(turns: Sequence[Turn], moment: datetime) -> Turn | None:
    place = bisect_right(turns, moment, key=lambda turn: turn.came) - 1
    return turns[place] if place >= 0 and moment <= turns[place].answered else None


def _find_near(turns: Sequence[Turn], moment: datetime) -> Sequence[Turn]:
    place = bisect_right(turns, moment, key=lambda turn: turn.came)
    return turns[max(0, place - 1) : place + 1]


def _judge_kind(former: Held | None, held: Held, turn: Turn, *, follows_dead: bool) -> Kind:
    if former is None or (former.cleared is not None and former.cleared < turn.came):
        return Kind.NOBODY
    if follows_dead:
        return Kind.DEAD
    return Kind.SAME if former.epoch.incarnation == held.epoch.incarnation else Kind.OTHER
