"""
The judge of the race: what arrived, held against who had the right to send it. Pure.

Problem: a fence that is judged by its own log agrees with itself. Promise: only three things count: the order in which
a session received input over all its sockets, the locks as the API server wrote them, and the gateways that were killed
or stopped; from these follows for every input whether it broke the invariant, came late from a dead gateway, or was
typed by somebody who never had a lock.

The invariant: no input of an older epoch arrives after the first input of a newer one. Source: docs/fence.md.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Final, Self

TENURE: Final = timedelta(seconds=5)
"""From the sending of a renewal that was answered. Assumed: `plan.fence_tenure` (`test_the_judge_knows_the_rules`)."""

UNCONFIRMED_BYTES: Final = 64 * 1024
"""On the way between two pongs. Assumed: `plan.fence_upstream` (`test_the_judge_knows_the_rules`)."""

MICROSECOND: Final = timedelta(microseconds=1)

MOST_TOLD: Final = 10
"""Of what is odd at one terminal: the first ones say why, and the counts say how many there are."""


def render_input(sender: str, number: int, typed: timedelta) -> bytes:
    """Write one input: who typed it, as how manieth, and when by the clock that runs on in suspend."""
    return b"%s:%d:%d\n" % (sender.encode(), number, typed // MICROSECOND)


@dataclass(frozen=True, slots=True)
class Received:
    """
    One frame of input, as a session received it.

    Args:
        number: Its place in the order of all input of all sessions.
        time: When it was received.
        terminal: Which session it went to.
        socket: Which socket it came through.
        data: Its bytes.
    """

    number: int
    time: datetime
    terminal: str
    socket: int
    data: bytes


@dataclass(slots=True)
class Run:
    """
    Inputs of one sender through one socket, with nobody else's between them.

    Args:
        terminal: Whose.
        socket: Through which socket.
        sender: Who typed them; "" where they are of no form.
        began: When the first was received.
        first: The first one's number.
        last: The highest number.
        inputs: How many there are.
        input_bytes: How much that is.
        typed: When the last of them was typed.
        disordered: Those whose number was not above the one before.
    """

    terminal: str
    socket: int
    sender: str
    began: datetime
    first: int
    last: int
    inputs: int
    input_bytes: int
    typed: timedelta
    disordered: int = 0


class Gatherer:
    """Joins what was received to runs, so that a million inputs take little room. Nothing that is judged is lost."""

    def __init__(self) -> None:
        self.runs: dict[str, list[Run]] = {}
        """By terminal, in order."""
        self.inputs = 0
        self.missing = 0
        """Numbers of the log that never came: what was received then is not known."""
        self.gaps: list[str] = []
        """Where the first few of them are missing."""
        self.last = 0

    def take(self, received: Received) -> None:
        """Take the next frame of the log."""
        if missing := received.number - self.last - 1:
            self.missing += missing
            if len(self.gaps) < MOST_TOLD:
                self.gaps.append(f"missing: {missing} inputs before number {received.number} at {received.time}")
        self.last = received.number
        self.inputs += 1
        sender, number, typed = _read_input(received.data)
        runs = self.runs.setdefault(received.terminal, [])
        run = runs[-1] if runs else None
        if run is None or run.socket != received.socket or run.sender != sender:
            size = len(received.data)
            runs.append(Run(received.terminal, received.socket, sender, received.time, number, number, 1, size, typed))
            return
        run.inputs += 1
        run.input_bytes += len(received.data)
        run.disordered += number <= run.last
        run.last = max(run.last, number)
        run.typed = max(run.typed, typed)


@dataclass(frozen=True, slots=True)
class Epoch:
    """
    Whose turn it was.

    Args:
        number: The generation that the write of the lock tested: the larger is the newer.
        incarnation: The gateway process that wrote it.
    """

    number: int
    incarnation: str


@dataclass(frozen=True, slots=True)
class Hurt:
    """
    A gateway process that was stopped or killed.

    Args:
        since: When.
        tenure_ends: The latest moment in which it may have let input through, by the clock of `typed`.
    """

    since: datetime
    tenure_ends: timedelta


@dataclass(frozen=True, slots=True)
class Odd:
    """
    Inputs in a row that should not have come, or not as they did.

    Args:
        what: What is wrong with them: the name of the count in `Verdict`.
        run: They, as they were received.
        epoch: Their sender's; None where they had none.
        newest: The newest epoch of which something was received before.
        highest: The highest number of their sender that was received so far.
    """

    what: str
    run: Run
    epoch: Epoch | None
    newest: int
    highest: int

    def __str__(self) -> str:
        """Say all of it in one line."""
        run = self.run
        lock = "no lock" if self.epoch is None else f"epoch {self.epoch.number} of {self.epoch.incarnation}"
        return (
            f"{self.what}: {run.inputs} inputs, numbers {run.first} to {run.last}, of {run.sender or 'nobody'} at"
            f" {run.terminal}, received through socket {run.socket} from {run.began} on, the last typed at {run.typed};"
            f" {lock}; the newest epoch by then is {self.newest}, the highest number of theirs {self.highest}"
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the judge found, counted in inputs."""

    inputs: int = 0
    violations: int = 0
    """They broke the invariant, and nothing excuses their gateway."""
    strangers: int = 0
    """Nobody with a lock typed them, as far as the API server knows."""
    disordered: int = 0
    """They came before one of the same sender that was typed earlier, or twice."""
    late: int = 0
    """They came after a newer epoch's, from a gateway that had been stopped or killed: told apart, and checked."""
    late_outside_tenure: int = 0
    """Of these, those that were typed when their gateway's tenure was over."""
    late_over_cap: int = 0
    """Of these, those of sockets that brought more than may be on its way unconfirmed."""
    epochs: int = 0
    """Senders whose input arrived."""
    odd: tuple[Odd, ...] = field(default=(), compare=False)
    """The first few that broke the invariant, were strangers' or disordered, for people: the counts are judged."""

    def __add__(self, other: Self) -> "Verdict":
        """Join the verdicts of two terminals."""
        return Verdict(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


@dataclass(slots=True)
class _Tally:
    """One terminal's verdict as it grows."""

    counts: Counter[str] = field(default_factory=Counter)
    late_bytes: Counter[int] = field(default_factory=Counter)
    late_inputs: Counter[int] = field(default_factory=Counter)
    last: dict[str, int] = field(default_factory=dict)
    newest: int = 0
    odd: list[Odd] = field(default_factory=list)

    def note(self, what: str, inputs: int, run: Run, epoch: Epoch | None) -> None:
        """Count inputs of a run that should not have come so, and keep who typed them."""
        self.counts[what] += inputs
        if inputs and len(self.odd) < MOST_TOLD:
            self.odd.append(Odd(what, run, epoch, self.newest, self.last.get(run.sender, 0)))

    def close(self) -> Verdict:
        over = sum(self.late_inputs[socket] for socket, size in self.late_bytes.items() if size > UNCONFIRMED_BYTES)
        return Verdict(**self.counts, late_over_cap=over, epochs=len(self.last), odd=tuple(self.odd))


def judge(runs: Iterable[Run], epochs: Mapping[str, Epoch], hurt: Mapping[str, Hurt]) -> Verdict:
    """
    Judge what one terminal received.

    Args:
        runs: In the order in which they were received.
        epochs: By sender.
        hurt: By incarnation.
    """
    tally = _Tally()
    for run in runs:
        tally.counts["inputs"] += run.inputs
        epoch = epochs.get(run.sender)
        if epoch is None:
            tally.note("strangers", run.inputs, run, None)
            continue
        highest = tally.last.get(run.sender, 0)
        tally.note("disordered", run.disordered + (run.first <= highest), run, epoch)
        tally.last[run.sender] = max(run.last, highest)
        if epoch.number >= tally.newest:
            tally.newest = epoch.number
            continue
        excuse = hurt.get(epoch.incarnation)
        if excuse is None or run.began < excuse.since:
            tally.note("violations", run.inputs, run, epoch)
            continue
        tally.counts["late"] += run.inputs
        tally.counts["late_outside_tenure"] += run.inputs if run.typed > excuse.tenure_ends else 0
        tally.late_bytes[run.socket] += run.input_bytes
        tally.late_inputs[run.socket] += run.inputs
    return tally.close()


def _read_input(data: bytes) -> tuple[str, int, timedelta]:
    """Read what `render_input` wrote; of anything else nobody knows who typed it."""
    try:
        sender, number, typed = data.removesuffix(b"\n").decode().split(":")
        return sender, int(number), int(typed) * MICROSECOND
    except ValueError:
        return "", 0, timedelta(0)
