"""
A mix of lies from a seed: the same seed gives the same mix, on every machine.

Problem: single switches are tested one at a time, and a client meets a server that differs in many points at once.
Promise: a mix draws only from the closed list that each switch names (`Lie.mixed`), and what cannot be survived
together is taken back, so a correct client can always reach its end; `GET /_lab/lies` and docs/emulator-lies.md name
what is left out, and why. Each switch has luck of its own, so a new switch changes no other draw of an old seed.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from controller.lab.emulator.switches import LIES, Switches


@dataclass(frozen=True)
class Clash:
    """
    What no correct client could survive together.

    Args:
        values: What has to hold of each switch for the clash: these values, or any but the default where it is None.
        given_up: The switch that goes back to its default then.
        why: What would become impossible.
    """

    values: Mapping[str, tuple[Any, ...] | None]
    given_up: str
    why: str


CLASHES: Final = (
    Clash(
        {"lost_create_every": None, "sessions_survive": ("none",), "idle_seconds": None},
        "lost_create_every",
        "a start whose connection was lost may have ended in a pause before anybody could look for it",
    ),
    Clash(
        {"rate_limit": None, "retry_after": ("absent",), "limit_body": ("error", "text")},
        "limit_body",
        "nothing would tell a client that is limited how long to wait",
    ),
    Clash(
        {"kept_awake_by": ("none",), "idle_seconds": None, "sessions_survive": ("none",)},
        "sessions_survive",
        "a terminal with somebody before it would end for no other reason than silence",
    ),
)


@dataclass(frozen=True)
class Mix:
    """What a seed draws."""

    seed: int
    values: Mapping[str, Any]
    """The switches that are not at their default, as JSON has them."""
    given_up: tuple[str, ...]
    """The switches that were drawn and went back to their default because of a clash."""

    def build_switches(self, base: Switches) -> Switches:
        """Apply it to all that is not set already."""
        return Switches.model_validate({**self.values, **base.model_dump(mode="json", exclude_unset=True)})

    def render(self) -> dict[str, Any]:
        """Write it for whoever asks which lies are told."""
        return {"seed": self.seed, "values": dict(self.values), "given_up": list(self.given_up)}


def draw_mix(seed: int) -> Mix:
    """Draw the mix of a seed: about half of the switches that may be mixed, each with one of its other values."""
    values: dict[str, Any] = {}
    for name, lie in LIES.items():
        luck = random.Random(f"{seed}:{name}")  # noqa: S311 - it has to be the same again, not secret
        if lie.mixed and luck.random() < 0.5:
            values[name] = luck.choice(lie.mixed)
    given_up = []
    for clash in CLASHES:
        if is_clash(clash, values):
            del values[clash.given_up]
            given_up.append(clash.given_up)
    return Mix(seed, MappingProxyType(values), tuple(given_up))


def is_clash(clash: Clash, values: Mapping[str, Any]) -> bool:
    """Tell whether a choice of values holds a clash."""
    return all(name in values and (among is None or values[name] in among) for name, among in clash.values.items())
