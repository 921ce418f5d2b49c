"""
The numbered cases of the product's behaviour, one line each, and where each stands.

`PINNED` means: a test with `@pytest.mark.case(number)` must exist. Any other word is the part of the product that will
bring it. The page docs/behaviour.md is rendered from this list and from the markers in the tests.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent.parent


class Place(StrEnum):
    """Where a case stands."""

    PINNED = "pinned by a test"
    GATEWAY = "later: gateway and fence"


@dataclass(frozen=True, slots=True)
class Case:
    """One numbered behaviour."""

    number: str
    sentence: str
    place: Place


TITLES: Final[Mapping[str, str]] = {
    "K": "Kill",
    "T": "Teardown: what a trigger may end",
    "R": "Reconnecting and attaching",
    "I": "Reaping what nobody watches",
    "H": "Planning a hold",
    "A": "Activity, and what a detached operator can know",
    "N": "Names of holds",
    "C": "Book-keeping of a hold",
    "G": "Settings of a hold",
    "U": "Calling the Tasks API with curl",
    "F": "The socket fence",
}

_TEXT: Final = """
K1 PINNED One POST to `/v1/sprites/<sprite>/exec/<id>/kill?signal=SIGKILL` with the token, and a 200, make a kill.
K2 PINNED The kill address has no `sessions` segment: a wrong route answers 404, and kills would silently do nothing.
K3 PINNED SIGKILL is always named, because the platform would send SIGTERM and a process may ignore that.
K4 PINNED A slash in a sprite's name or a session's id is encoded, so each stays one segment of the path.
K5 PINNED 404 and 410 settle the request at once, without a wait and without a second attempt.
K6 PINNED A 2xx settles it once the stream of lines was read to its end; an empty body will do as well.
K7 PINNED An `error` line makes the attempt fail although the status was 200; three of them fail the kill with its text.
K8 PINNED An `error` line that says nothing still gives a text that is not empty.
K9 PINNED Blank lines, and lines that are no JSON, are passed over.
K10 PINNED Failures are tried three times, 500 ms and 1000 ms apart, and the last one's status or error is told.
K11 PINNED After one lost connection and one 200 the kill is done, with a single wait of 500 ms.
K12 PINNED An attempt that has no complete answer after 10 s is cut off and counts as failed.
K13 PINNED Asking for the end of a terminal kills exactly its own session, and closes what we hold open to it.
K14 PINNED Without a session id nothing is sent; here a launch that may have begun is searched for first.
K15 PINNED When the sprite cannot be looked up, nothing was learned: the object stays and the failure shows.
K16 PINNED When all attempts fail, the object stays, so that a later try still finds the session.
K17 PINNED When the sprite is gone, the object may go and no kill is sent; here its absence is proven first.
K18 PINNED Killing one terminal leaves its sprite and the other sessions there alone.
K19 PINNED Ending what does not exist succeeds and says that there was nothing to end.
K20 PINNED Where a session lives is asked of the platform, which owns the sprite; an empty field proves nothing.
T1 PINNED A forced teardown and a reap kill and close.
T2 PINNED A detach and a shell's own end neither kill nor close.
T3 PINNED A viewer who leaves causes no teardown; the terminal merely knows that nobody watches.
T4 PINNED A forced teardown without a known session id sends no kill, and that is no error.
T5 PINNED A kill that fails inside a teardown raises nothing and leaves one error line with id and trigger.
T6 PINNED Once a teardown runs, no reconnect opens anything and a late exit is not told twice.
T7 PINNED Revoked access and an unpaid account are forced teardowns; a user's own wish is not a trigger.
T8 PINNED A process that ends by itself gets no kill; its hold and its timers end.
R1 PINNED A known id that is in the list is attached to.
R2 PINNED A known id that is not in the list leads to a fresh session; here only by the rules of revival.
R3 PINNED Without a known id a session of somebody else is never picked, only created.
R4 PINNED Without a known id no list is fetched.
R5 PINNED When the list cannot be had, the known id is attached to on trust.
R6 PINNED Only the id decides whether an entry counts; flags on it do not.
R7 PINNED Two creates at once each learn their own id; foreign, empty and late announcements are ignored.
R8 PINNED Ids announced one after the other are stored in that order.
R9 PINNED Without a viewer a dropped socket causes nothing but a debt, however often it drops.
R10 PINNED With a viewer, five drops in a row are reconnected and the sixth ends the terminal with -1.
R11 PINNED A returning viewer pays the debt: attach and replay if the session lives, else a fresh one without an exit.
R12 PINNED Several errors of one open count as one drop, and an exit after an error is not believed.
R13 PINNED An open that is confirmed sets the count of failures back, even if nothing is ever said.
R14 PINNED A session that never says its id may be given up once; the second drop ends the terminal.
R15 PINNED A first connection that never opened may be tried anew within the usual number of failures.
R16 PINNED A viewer who leaves while the list is being fetched stops what would have followed.
R17 PINNED On connecting, a stored id in the list is resumed; one that is not is forgotten.
R18 PINNED On connecting, a list that fails or takes longer than 5 s does not stop the attach to a stored id.
R19 PINNED When the last activity is exactly one idle window old, a dropped socket stays down.
R20 PINNED A human who returns or types reconnects, however idle the terminal is.
R21 PINNED Without a usable time of activity a terminal is never kept quiet.
R22 PINNED The quiet rule uses the same window as the hold: two refresh intervals.
I1 PINNED Thirty minutes after the last viewer left, one reap kills by id, even if our socket is long dead.
I2 PINNED A viewer who joins cancels the reap for good.
I3 PINNED One of two viewers leaving changes nothing.
I4 PINNED A reap that is done frees everything: slot, hold, timers, and the entry among the living.
I5 PINNED A process that ends while a reap waits cancels it, and its slot is freed once.
I6 PINNED A session that starts unwatched is armed from its start.
I7 PINNED Arming again moves the deadline by the full time, and still only one reap comes.
I8 PINNED Input without a viewer arms again; a mere look does not, nor does input under a viewer's eyes.
I9 PINNED A watched session is not reaped however quiet its socket is.
H1 PINNED A viewer or a working agent, and no hold: create.
H2 PINNED Neither of them, and no hold: nothing.
H3 PINNED Neither of them, and a hold: delete.
H4 PINNED A hold younger than one interval is left alone.
H5 PINNED A hold that is exactly one interval old is refreshed.
H6 PINNED After missed beats, up to a millisecond before its expiry, a hold is refreshed.
H7 PINNED A hold as old as its expiry is created anew.
H8 PINNED A hold as old as the platform's hour is created anew.
H9 PINNED A millisecond before that hour it is refreshed.
H10 PINNED The hour outranks a fresh refresh.
H11 PINNED The expiry counts from the last refresh.
H12 PINNED A working agent without a viewer is refreshed for like a viewer.
H13 PINNED Shorter settings move the same limits.
A1 PINNED Activity younger than the window means running; exactly as old, or none at all, means idle.
A2 PINNED The latest activity is the later one of output and input, and absent only if both are.
A3 PINNED A fresh launch counts as activity.
A4 PINNED What was typed just before leaving keeps the hold.
A5 PINNED A command run in the same sandbox by another way counts as output.
A6 PINNED Ticks come at once, at every interval, and at each detach and attach; one controller per session.
A7 PINNED For a session that started fresh, stale silence at the last detach is believed and the hold goes.
A8 PINNED For a resumed session that has said nothing, silence is not believed and the hold stays.
A9 PINNED Without a viewer a beat cannot see activity: it refreshes a hold and deletes none.
A10 PINNED Not seeing never creates a hold.
A11 PINNED A hold kept without seeing ends with the process or the reap.
A12 PINNED A viewer whose socket is deliberately down counts as nobody, and is seen; a key or a return creates again.
A13 PINNED Saying that nothing can be seen pins a hold; letting go needs sight.
A14 PINNED A resumed agent without a byte gives the reconnect rule no time, so its socket is kept up.
N1 PINNED A name is the prefix, the cleaned key and eight hex digits of its hash.
N2 PINNED Keys that clean alike stay apart, because the hash sees the original spelling.
N3 PINNED Each run of other characters becomes one dash.
N4 PINNED A namespace and a name with an underscore or a dash stay apart.
N5 PINNED Two incarnations of one terminal have two names.
N6 PINNED A key of which nothing is left is named by its hash alone.
N7 PINNED Dashes at the ends are dropped and those inside are merged.
N8 PINNED A long key is cut so that no name exceeds 63 characters.
N9 PINNED A key always gives the same name, and a name with unsafe characters is refused before anything runs.
C1 PINNED The first beat of a viewer creates with expiry 300, and the next call comes after an interval.
C2 PINNED An observed idle detach removes once.
C3 PINNED At the hour the old one is replaced, since a bare upsert would not begin a new hour.
C4 PINNED A failed upsert is told and tried again at the next beat.
C5 PINNED After a doubtful upsert the end removes all the same.
C6 PINNED Whoever never tried to hold removes nothing, and an end comes once.
C7 PINNED The end of a held session removes once and stops the beats.
C8 PINNED Calls go out in the order in which they were decided.
C9 PINNED No failure of a call or of a report reaches the caller.
C10 PINNED The cadence is the refresh, and the idle window is twice that unless set.
C11 PINNED With a short refresh an agent that was seen idle is let go after two intervals.
C12 PINNED A late removal of an old incarnation cannot hit the new one's hold.
C13 PINNED A failed call is told with exit code and status; 127 means that the sprite has no curl.
C14 PINNED Whatever happens to the operator, every hold frees itself, because none is made without an expiry.
G1 PINNED Nothing set: 300 s and 60,000 ms.
G2 PINNED Two good values are taken as they are.
G3 PINNED A word for the expiry counts as 300, and the refresh is judged by that.
G4 PINNED An hour is the longest expiry; one second more counts as 300.
G5 PINNED A short expiry alone shortens the refresh to its fifth.
G6 PINNED Exactly half the expiry is the longest refresh; anything above counts as the default.
G7 PINNED Zero, a sign, a space, a unit or nothing at all is no number; `5m` is not five.
G8 PINNED The idle window follows the refresh.
U1 PINNED An upsert is one curl over the sprite's socket, limited to 8 s, with just the expiry; a delete has no body.
U2 PINNED No upsert can be built without a whole expiry from 1 to 3600.
U3 PINNED Only three digits are a status; 000 means that there was no answer.
U4 PINNED Any 2xx with exit code 0 is fine.
U5 PINNED 404 is fine for a removal and a failure for an upsert.
U6 PINNED Any other exit code, or no readable status, is a failure.
U7 PINNED A call that takes 10 s or says more than 4096 bytes is cut off and has failed.
U8 PINNED An unsafe name runs nothing; a call never raises, is not repeated inside, and wakes no sprite.
F1 PINNED Every accepted bridge socket gets an id of its own.
F2 PINNED The new id is stored before the old socket is closed.
F3 PINNED Accepting closes every older socket that is open, whatever a close answers.
F4 PINNED The second socket of one sandbox takes over although the first is still open.
F5 PINNED A viewer's socket is never the active bridge, and the fence does not concern it.
F6 PINNED A frame of a socket that is not active changes nothing, is not acknowledged, and costs that socket its life.
F7 GATEWAY A critical event that is sent again on the new socket counts once and is acknowledged.
F8 PINNED After a restart the socket that is named is taken, and none if only replaced ones are left.
F9 PINNED A socket of another sandbox is closed on recovery.
F10 PINNED In a final state every socket is closed and none is taken.
F11 PINNED A socket in memory that the record does not name is closed, and the search goes on.
F12 PINNED The close of the active socket plans one check for a loss, unless the state is final.
F13 PINNED The close of a replaced socket plans none.
F14 PINNED A detach revokes first and closes after, and what comes late is refused.
F15 PINNED A reservation revokes, names the new sandbox and empties the credentials in a single write.
F16 PINNED Before the first claim, an unnamed socket of the right sandbox is active until the next accept.
F17 PINNED Before the first claim, and without a sandbox on record, an unnamed socket is active.
F18 PINNED Of several unnamed sockets all are active until the first accept, and none after.
F19 PINNED After a reservation an unnamed socket is refused and closed.
F20 PINNED Revoked is written as the empty text and never as an absent value.
F21 PINNED A wrong sandbox is 403 before the token is looked at, a wrong token 401, a final state 410.
F22 PINNED What changes while the token is checked refuses the request and leaves the record alone.
F23 GATEWAY Directly before an accept, the record must still be the one that was authenticated.
F24 PINNED A generation that is dead for good is refused until the next reservation.
F25 PINNED Accepting a bridge does not make a terminal ready; its own event does.
"""


def _read() -> Iterator[Case]:
    for line in _TEXT.strip().splitlines():
        number, place, sentence = line.split(" ", 2)
        yield Case(number, sentence, Place[place])


CASES: Final = tuple(_read())


def find_pins(root: Path = ROOT) -> Mapping[str, tuple[str, ...]]:
    """Find every `pytest.mark.case(...)` in the tests without importing them: number → files, sorted."""
    pins: defaultdict[str, set[str]] = defaultdict(set)
    for path in sorted((root / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.case":
                for argument in node.args:
                    number = argument.value if isinstance(argument, ast.Constant) else ast.unparse(argument)
                    pins[str(number)].add(path.relative_to(root).as_posix())
    return {number: tuple(sorted(files)) for number, files in pins.items()}


def render_behaviour_page() -> str:
    """Render docs/behaviour.md."""
    pins = find_pins()
    lines = [
        "# Behaviour, case by case",
        "",
        "Generated by `make crds` from `tests/house/cases.py` and the `case` markers in the tests; edit those.",
        "",
        (
            "Each number stands for one behaviour that the product promises. A case that is pinned names the tests "
            "that fail when it breaks; any other names the part of the product that will bring it."
        ),
    ]
    for letter, title in TITLES.items():
        lines += ["", f"## {letter}. {title}", "", "| Case | Behaviour | Where it stands |", "| --- | --- | --- |"]
        for case in CASES:
            if case.number.startswith(letter):
                tests = ", ".join(f"[{file}](../{file})" for file in pins.get(case.number, ()))
                lines.append(f"| {case.number} | {case.sentence} | {tests or case.place} |")
    return "\n".join(lines) + "\n"
