"""
The breaker of one token: telling an incident of the platform from the end of one sprite.

Problem: in an incident the platform answers 401 or 404 for everything, or lists nothing; believed word by word, that
would prove every session dead, drop every finalizer and launch everything anew. Promise: when several sprites are
refused at once nothing is proven, forgotten or launched, and hardly anything is asked; one sprite that is gone opens
nothing; and it closes by itself, once a list shows a sprite we know.

Where such a list shows sprites that were refused, it contradicts what their own routes said, and a list alone must not
settle that: it would close the breaker, all would be refused again, and it would open again, every 30 s. So the list
puts them on trial. The first of them about which anything is to be asked is let through, and only its success closes
the breaker; its refusal ends the trial until the next list. Where nobody has anything to ask for as long as that,
nothing is at risk, and it closes.

A token with one or two sprites cannot have several refused, so its breaker never opens. There a list that shows none of
them is believed for what it shows, and proves nothing of what it lacks, until lists have said so for ten minutes: see
`Breaker.blind`.

Somebody who deletes all sprites of an organization looks just like an incident. Two things tell them apart without
believing either too soon: where no session is recorded that could be lost, nothing needs protection and a list is
believed at once; and a list that for ten minutes shows the same other sprites is an organization that was furnished
anew. While it is open, an empty list stays unbelieved however long it lasts: `deletionPolicy: Orphan` is the way out.

Source: design 5 (docs/architecture.md), docs/incidents.md. All times are monotonic.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import StrEnum
from typing import Final, assert_never

from controller.api.session import Cause
from controller.errors import Failure

SPRITES_AT_LEAST: Final = 3
"""So many sprites must be refused, and half of those the token is known to have had."""
WITHIN: Final = timedelta(seconds=60)
PROBE_INTERVAL: Final = timedelta(seconds=30)
"""While it is open the list of sprites is the only call, and comes this often."""
FURNISHED_AFTER: Final = timedelta(minutes=10)
"""
Lists that show the same strangers for so long are believed; where one or two sprites are known, so are empty ones.

A request that is led to another organization shows strangers as well, so this is longer than such an error lives.
"""


REFUSALS: Final = frozenset({Failure.UNAUTHORIZED, Failure.NOT_FOUND})
"""Any other failure says nothing either way."""


@dataclass(frozen=True, slots=True)
class Breaker:
    """
    What one token's recent answers come to.

    Args:
        refused: When each sprite was last refused, by name; one that answered well since is not in it.
        opened: Since when it is open; None where it is closed.
        closed_since: Since when it has been closed without a break, as long as it is.
        strangers: The sprites that all lists since `strangers_since` have shown, none of them known.
        strangers_since: When the first of these lists came.
        on_trial: While it is open, the sprites that were refused and that the last list shows: one of them is asked.
        tried_since: Since when they are on trial.
        tried: The one that is asked; None while nobody had anything to ask.
        blind: The last list showed nothing of what is known, and too little is known to call that an incident. What is
            missing from such a list is not gone for sure: an incident of a small organization looks just so.
        empty: Lists have shown nothing at all for so long that they are believed.
    """

    refused: Mapping[str, timedelta] = field(default_factory=dict)
    opened: timedelta | None = None
    closed_since: timedelta = timedelta.min
    strangers: frozenset[str] = frozenset()
    strangers_since: timedelta = timedelta.min
    on_trial: frozenset[str] = frozenset()
    tried_since: timedelta = timedelta.min
    tried: str | None = None
    blind: bool = False
    empty: bool = False

    @property
    def is_open(self) -> bool:
        """Tell whether the platform has an incident, as far as this token shows."""
        return self.opened is not None


class Conclusion(StrEnum):
    """What a visit may conclude, as far as it rests on what the platform says."""

    SPRITE_GONE = "SpriteGone"
    """Its sprite is missing from two listings."""
    SESSION_ENDED = "SessionEnded"
    """Its session is missing from a list, or was lost."""
    NEVER_STARTED = "NeverStarted"
    """Its launch left no trace."""
    SESSION_WANTED = "SessionWanted"
    """It needs a session: adopt, launch or launch again."""
    NOTHING_TO_GUARD = "NothingToGuard"
    """It has no session, or one whose end was proven before: its finalizer may go."""
    ORPHANED = "Orphaned"
    """`deletionPolicy: Orphan` gives the session up."""


def note_answer(
    breaker: Breaker, sprite: str, failure: Failure | None, *, known: Collection[str], now: timedelta
) -> Breaker:
    """
    Weigh the answer to one call about one sprite.

    Only 401 and 404 count as refusals; any other failure says nothing either way. A success takes the sprite's refusal
    back. It closes a breaker that is open only where it answers the call on trial: one that was under way before may
    still succeed.

    Args:
        breaker: What was known.
        sprite: Its name.
        failure: What happened; None for a success.
        known: The sprites of this token that were ever seen, in this process or by an object's status. A refusal of one
            that never was counts for nothing: somebody may have declared it before creating it.
        now: Monotonic.
    """
    is_tried = breaker.tried == sprite and breaker.is_open
    if failure is None and is_tried:
        return Breaker(closed_since=now)
    if failure is None and sprite not in breaker.refused:
        return breaker
    if failure is None:
        return replace(breaker, refused={name: at for name, at in breaker.refused.items() if name != sprite})
    if failure not in REFUSALS or sprite not in known:
        return breaker
    if is_tried:
        breaker = replace(breaker, on_trial=frozenset(), tried=None)
    return _judge(replace(breaker, refused={**breaker.refused, sprite: now}), known, now)


def note_listing(breaker: Breaker, listed: Collection[str], *, known: Collection[str], now: timedelta) -> Breaker:
    """
    Weigh a complete listing of the token's sprites (200, paged to its end).

    One that shows a sprite we know closes the breaker, but that it puts on trial what it shows and was refused. So does
    one without, once lists have shown the same strangers for ten minutes. Any other refuses all that are known at once,
    but where these are one or two, and lists have been empty for ten minutes.

    Args:
        breaker: What was known.
        listed: The names in the list.
        known: The sprites of this token, as for an answer; none where nothing is at stake.
        now: Monotonic.
    """
    if not known or any(name in known for name in listed):
        return _note_shown(breaker, listed, now)
    breaker = replace(_note_strangers(breaker, listed, now), on_trial=frozenset(), tried=None)
    if now - breaker.strangers_since >= FURNISHED_AFTER:
        if breaker.strangers:
            return _note_shown(breaker, listed, now)
        if not breaker.is_open and len(known) < SPRITES_AT_LEAST:
            return replace(
                breaker, blind=False, empty=True, closed_since=breaker.closed_since if breaker.empty else now
            )
    return _refuse_known(breaker, known, now)


def note_unlisted(breaker: Breaker, *, known: Collection[str], now: timedelta) -> Breaker:
    """
    Weigh a 404 for the list itself, which always exists: it refuses all that are known.

    It is no list, so it lasts for as long as it may without being believed, and what lists have shown counts anew.
    """
    if not known:
        return breaker
    breaker = replace(breaker, strangers=frozenset(), strangers_since=now, on_trial=frozenset(), tried=None)
    return _refuse_known(breaker, known, now)


def _refuse_known(breaker: Breaker, known: Collection[str], now: timedelta) -> Breaker:
    breaker = _judge(replace(breaker, refused={**breaker.refused, **dict.fromkeys(known, now)}), known, now)
    return replace(breaker, blind=not breaker.is_open, empty=False)


def _note_shown(breaker: Breaker, listed: Collection[str], now: timedelta) -> Breaker:
    """Take in a list that is believed: what was refused and is shown all the same has to be asked once more."""
    if not breaker.is_open:
        since = now if breaker.blind else breaker.closed_since
        return replace(breaker, blind=False, empty=False, closed_since=since, strangers=frozenset())
    on_trial = breaker.on_trial
    if on_trial and now - breaker.tried_since < PROBE_INTERVAL:
        return breaker
    contradicted = frozenset(breaker.refused).intersection(listed)
    if not contradicted or (on_trial and breaker.tried is None):
        return Breaker(closed_since=now)
    others = contradicted - {breaker.tried}
    return replace(breaker, on_trial=others or contradicted, tried_since=now, tried=None, strangers=frozenset())


def _note_strangers(breaker: Breaker, listed: Collection[str], now: timedelta) -> Breaker:
    """Remember what all lists in a row have shown, if only nothing; one that shares nothing with them begins anew."""
    if not breaker.is_open and not breaker.blind and not breaker.empty:
        return replace(breaker, strangers=frozenset(listed), strangers_since=now)
    same = breaker.strangers.intersection(listed)
    if same or not (breaker.strangers or listed):
        return replace(breaker, strangers=same)
    return replace(breaker, strangers=frozenset(listed), strangers_since=now)


def _judge(breaker: Breaker, known: Collection[str], now: timedelta) -> Breaker:
    """Open it when enough sprites were refused within the time; forget older refusals, but those that opened it."""
    if breaker.is_open:
        return replace(breaker, refused={name: at for name, at in breaker.refused.items() if name in known})
    recent = {name: at for name, at in breaker.refused.items() if name in known and now - at <= WITHIN}
    opens = len(recent) >= SPRITES_AT_LEAST and 2 * len(recent) >= len(known)
    return replace(breaker, refused=recent, opened=now if opens else None)


def may_call(breaker: Breaker, cause: Cause | None, sprite: str | None) -> bool:
    """
    Tell whether a call may go out: while it is open, only the list of sprites and what is on trial.

    Args:
        breaker: What is known.
        cause: Why the sprites are listed; None for any other call.
        sprite: Into which sprite the call goes; None for none in particular.
    """
    return not breaker.is_open or cause is Cause.METADATA or (sprite is not None and is_on_trial(breaker, sprite))


def is_on_trial(breaker: Breaker, sprite: str) -> bool:
    """Tell whether a sprite is the one to be asked, or may still become it."""
    return breaker.is_open and sprite in breaker.on_trial and breaker.tried in (None, sprite)


def note_call(breaker: Breaker, sprite: str) -> Breaker:
    """Remember which of the sprites on trial was asked first: the others wait for its answer."""
    return replace(breaker, tried=sprite) if is_on_trial(breaker, sprite) else breaker


def judge_for(breaker: Breaker, sprite: str) -> Breaker:
    """Give the breaker as it is for one sprite: closed for the one that is asked on trial."""
    return replace(breaker, opened=None) if is_on_trial(breaker, sprite) else breaker


def may_conclude(breaker: Breaker, conclusion: Conclusion) -> bool:
    """Tell whether a conclusion may be drawn: while it is open, only those that ask nothing of the platform."""
    match conclusion:
        case Conclusion.NOTHING_TO_GUARD | Conclusion.ORPHANED:
            return True
        case Conclusion.SPRITE_GONE | Conclusion.SESSION_ENDED | Conclusion.NEVER_STARTED | Conclusion.SESSION_WANTED:
            return not breaker.is_open
        case _:
            assert_never(conclusion)


def was_closed_since(breaker: Breaker, moment: timedelta) -> bool:
    """Tell whether it has been closed, and not blind, all the while: two listings count together only then."""
    return not breaker.is_open and not breaker.blind and breaker.closed_since <= moment


def describe_incident(breaker: Breaker) -> str:
    """Say what opened it and how it ends, in one sentence that names no sprite."""
    return (
        f"The Sprites API refused or did not list {len(breaker.refused)} sprites of this token within a minute (401, "
        f"404), which looks like an incident: nothing is believed, started or ended until it lists one of them again "
        f"and answers for it. It is asked every {int(PROBE_INTERVAL.total_seconds())} s."
    )


def probe_in(breaker: Breaker, last_listing: timedelta | None, *, now: timedelta) -> timedelta | None:
    """Give the wait until the next list while it is open; None where it is closed and nothing needs probing."""
    if not breaker.is_open:
        return None
    return timedelta(0) if last_listing is None else max(timedelta(0), last_listing + PROBE_INTERVAL - now)
