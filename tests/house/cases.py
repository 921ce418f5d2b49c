"""
The numbered cases of the product's behaviour, one line each.

Each is pinned by a test with `@pytest.mark.case(number)`. The page docs/behaviour.md is rendered from this list and
from the markers in the tests.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent.parent


@dataclass(frozen=True, slots=True)
class Case:
    """One numbered behaviour."""

    number: str
    sentence: str


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
K1 One POST to `/v1/sprites/<sprite>/exec/<id>/kill?signal=SIGKILL` with the token, and a 200, make a kill.
K2 The kill address has no `sessions` segment: a wrong route answers 404, and kills would silently do nothing.
K3 SIGKILL is always named, because the platform would send SIGTERM and a process may ignore that.
K4 A slash in a sprite's name or a session's id is encoded, so each stays one segment of the path.
K5 404 and 410 settle the request at once, without a wait and without a second attempt.
K6 A 2xx settles it once the stream of lines was read to its end; an empty body will do as well.
K7 An `error` line makes the attempt fail although the status was 200; three of them fail the kill with its text.
K8 An `error` line that says nothing still gives a text that is not empty.
K9 Blank lines, and lines that are no JSON, are passed over.
K10 Failures are tried three times, 500 ms and 1000 ms apart, and the last one's status or error is told.
K11 After one lost connection and one 200 the kill is done, with a single wait of 500 ms.
K12 An attempt that has no complete answer after 10 s is cut off and counts as failed.
K13 Asking for the end of a terminal kills exactly its own session, and closes what we hold open to it.
K14 Without a session id nothing is sent; here a launch that may have begun is searched for first.
K15 When the sprite cannot be looked up, nothing was learned: the object stays and the failure shows.
K16 When all attempts fail, the object stays, so that a later try still finds the session.
K17 When the sprite is gone, the object may go and no kill is sent; here its absence is proven first.
K18 Killing one terminal leaves its sprite and the other sessions there alone.
K19 Ending what does not exist succeeds and says that there was nothing to end.
K20 Where a session lives is asked of the platform, which owns the sprite; an empty field proves nothing.
T1 A forced teardown and a reap kill and close.
T2 A detach and a shell's own end neither kill nor close.
T3 A viewer who leaves causes no teardown; the terminal merely knows that nobody watches.
T4 A forced teardown without a known session id sends no kill, and that is no error.
T5 A kill that fails inside a teardown raises nothing and leaves one error line with id and trigger.
T6 Once a teardown runs, no reconnect opens anything and a late exit is not told twice.
T7 Revoked access and an unpaid account are forced teardowns; a user's own wish is not a trigger.
T8 A process that ends by itself gets no kill; its hold and its timers end.
R1 A known id that is in the list is attached to.
R2 A known id that is not in the list leads to a fresh session; here only by the rules of revival.
R3 Without a known id a session of somebody else is never picked, only created.
R4 Without a known id no list is fetched.
R5 When the list cannot be had, the known id is attached to on trust.
R6 Only the id decides whether an entry counts; flags on it do not.
R7 Two creates at once each learn their own id; foreign, empty and late announcements are ignored.
R8 Ids announced one after the other are stored in that order.
R9 Without a viewer a dropped socket causes nothing but a debt, however often it drops.
R10 With a viewer, five drops in a row are reconnected and the sixth ends the terminal with -1.
R11 A returning viewer pays the debt: attach and replay if the session lives, else a fresh one without an exit.
R12 Several errors of one open count as one drop, and an exit after an error is not believed.
R13 An open that is confirmed sets the count of failures back, even if nothing is ever said.
R14 A session that never says its id may be given up once; the second drop ends the terminal.
R15 A first connection that never opened may be tried anew within the usual number of failures.
R16 A viewer who leaves while the list is being fetched stops what would have followed.
R17 On connecting, a stored id in the list is resumed; one that is not is forgotten.
R18 On connecting, a list that fails or takes longer than 5 s does not stop the attach to a stored id.
R19 When the last activity is exactly one idle window old, a dropped socket stays down.
R20 A human who returns or types reconnects, however idle the terminal is.
R21 Without a usable time of activity a terminal is never kept quiet.
R22 The quiet rule uses the same window as the hold: two refresh intervals.
I1 Thirty minutes after the last viewer left, one reap kills by id, even if our socket is long dead.
I2 A viewer who joins cancels the reap for good.
I3 One of two viewers leaving changes nothing.
I4 A reap that is done frees everything: slot, hold, timers, and the entry among the living.
I5 A process that ends while a reap waits cancels it, and its slot is freed once.
I6 A session that starts unwatched is armed from its start.
I7 Arming again moves the deadline by the full time, and still only one reap comes.
I8 Input without a viewer arms again; a mere look does not, nor does input under a viewer's eyes.
I9 A watched session is not reaped however quiet its socket is.
H1 A viewer or a working agent, and no hold: create.
H2 Neither of them, and no hold: nothing.
H3 Neither of them, and a hold: delete.
H4 A hold younger than one interval is left alone.
H5 A hold that is exactly one interval old is refreshed.
H6 After missed beats, up to a millisecond before its expiry, a hold is refreshed.
H7 A hold as old as its expiry is created anew.
H8 A hold as old as the platform's hour is created anew.
H9 A millisecond before that hour it is refreshed.
H10 The hour outranks a fresh refresh.
H11 The expiry counts from the last refresh.
H12 A working agent without a viewer is refreshed for like a viewer.
H13 Shorter settings move the same limits.
A1 Activity younger than the window means running; exactly as old, or none at all, means idle.
A2 The latest activity is the later one of output and input, and absent only if both are.
A3 A fresh launch counts as activity.
A4 What was typed just before leaving keeps the hold.
A5 A command run in the same sandbox by another way counts as output.
A6 Ticks come at once, at every interval, and at each detach and attach; one controller per session.
A7 For a session that started fresh, stale silence at the last detach is believed and the hold goes.
A8 For a resumed session that has said nothing, silence is not believed and the hold stays.
A9 Without a viewer a beat cannot see activity: it refreshes a hold and deletes none.
A10 Not seeing never creates a hold.
A11 A hold kept without seeing ends with the process or the reap.
A12 A viewer whose socket is deliberately down counts as nobody, and is seen; a key or a return creates again.
A13 Saying that nothing can be seen pins a hold; letting go needs sight.
A14 A resumed agent without a byte gives the reconnect rule no time, so its socket is kept up.
N1 A name is the prefix, the cleaned key and eight hex digits of its hash.
N2 Keys that clean alike stay apart, because the hash sees the original spelling.
N3 Each run of other characters becomes one dash.
N4 A namespace and a name with an underscore or a dash stay apart.
N5 Two incarnations of one terminal have two names.
N6 A key of which nothing is left is named by its hash alone.
N7 Dashes at the ends are dropped and those inside are merged.
N8 A long key is cut so that no name exceeds 63 characters.
N9 A key always gives the same name, and a name with unsafe characters is refused before anything runs.
C1 The first beat of a viewer creates with expiry 300, and the next call comes after an interval.
C2 An observed idle detach removes once.
C3 At the hour the old one is replaced, since a bare upsert would not begin a new hour.
C4 A failed upsert is told and tried again at the next beat.
C5 After a doubtful upsert the end removes all the same.
C6 Whoever never tried to hold removes nothing, and an end comes once.
C7 The end of a held session removes once and stops the beats.
C8 Calls go out in the order in which they were decided.
C9 No failure of a call or of a report reaches the caller.
C10 The cadence is the refresh, and the idle window is twice that unless set.
C11 With a short refresh an agent that was seen idle is let go after two intervals.
C12 A late removal of an old incarnation cannot hit the new one's hold.
C13 A failed call is told with exit code and status; 127 means that the sprite has no curl.
C14 Whatever happens to the operator, every hold frees itself, because none is made without an expiry.
G1 Nothing set: 300 s and 60,000 ms.
G2 Two good values are taken as they are.
G3 A word for the expiry counts as 300, and the refresh is judged by that.
G4 An hour is the longest expiry; one second more counts as 300.
G5 A short expiry alone shortens the refresh to its fifth.
G6 Exactly half the expiry is the longest refresh; anything above counts as the default.
G7 Zero, a sign, a space, a unit or nothing at all is no number; `5m` is not five.
G8 The idle window follows the refresh.
U1 An upsert is one curl over the sprite's socket, limited to 8 s, with just the expiry; a delete has no body.
U2 No upsert can be built without a whole expiry from 1 to 3600.
U3 Only three digits are a status; 000 means that there was no answer.
U4 Any 2xx with exit code 0 is fine.
U5 404 is fine for a removal and a failure for an upsert.
U6 Any other exit code, or no readable status, is a failure.
U7 A call that takes 10 s or says more than 4096 bytes is cut off and has failed.
U8 An unsafe name runs nothing; a call never raises, is not repeated inside, and wakes no sprite.
F1 Every accepted bridge socket gets an id of its own.
F2 The new id is stored before the old socket is closed.
F3 Accepting closes every older socket that is open, whatever a close answers.
F4 The second socket of one sandbox takes over although the first is still open.
F5 A viewer's socket is never the active bridge, and the fence does not concern it.
F6 A frame of a socket that is not active changes nothing, is not acknowledged, and costs that socket its life.
F7 A critical event that is sent again on the new socket counts once and is acknowledged.
F8 After a restart the socket that is named is taken, and none if only replaced ones are left.
F9 A socket of another sandbox is closed on recovery.
F10 In a final state every socket is closed and none is taken.
F11 A socket in memory that the record does not name is closed, and the search goes on.
F12 The close of the active socket plans one check for a loss, unless the state is final.
F13 The close of a replaced socket plans none.
F14 A detach revokes first and closes after, and what comes late is refused.
F15 A reservation revokes, names the new sandbox and empties the credentials in a single write.
F16 Before the first claim, an unnamed socket of the right sandbox is active until the next accept.
F17 Before the first claim, and without a sandbox on record, an unnamed socket is active.
F18 Of several unnamed sockets all are active until the first accept, and none after.
F19 After a reservation an unnamed socket is refused and closed.
F20 Revoked is written as the empty text and never as an absent value.
F21 A wrong sandbox is 403 before the token is looked at, a wrong token 401, a final state 410.
F22 What changes while the token is checked refuses the request and leaves the record alone.
F23 Directly before an accept, the record must still be the one that was authenticated.
F24 A generation that is dead for good is refused until the next reservation.
F25 Accepting a bridge does not make a terminal ready; its own event does.
"""


def _read() -> Iterator[Case]:
    for line in _TEXT.strip().splitlines():
        yield Case(*line.split(" ", 1))


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
            "Each number stands for one behaviour that the product promises, and names the tests that fail when it "
            "breaks."
        ),
    ]
    for letter, title in TITLES.items():
        lines += ["", f"## {letter}. {title}", "", "| Case | Behaviour | Pinned by |", "| --- | --- | --- |"]
        for case in CASES:
            if case.number.startswith(letter):
                tests = ", ".join(f"[{file}](../{file})" for file in pins.get(case.number, ()))
                lines.append(f"| {case.number} | {case.sentence} | {tests} |")
    return "\n".join(lines) + "\n"
