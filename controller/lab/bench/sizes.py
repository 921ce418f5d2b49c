"""How much is measured."""

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Final, assert_never

CLIENTS: Final = 16
"""How many requests the loader has under way: as in the measurements that it is compared with."""

KILLS_PER_SECOND: Final = 20.0


class Scenario(StrEnum):
    """What can be measured, in this order. Each takes what the ones before it left behind."""

    ADOPT = "adopt"
    """Objects that adopt sessions: from the first create to the last Ready."""
    REST = "rest"
    """Nothing happens."""
    KILL = "kill"
    """`terminated` is patched onto a fifth of them, 20 a second: from the patch to the kill."""
    DELETE = "delete"
    """All are deleted: from the first delete to the last one gone."""
    LAUNCH = "launch"
    """Objects that launch their sessions."""
    HOLD = "hold"
    """Sprites are held: ten for one terminal each, and ten for five of ten each."""
    STREAMS = "streams"
    """Terminals that talk through one gateway on one core: what it adds, costs and loses."""
    RACE = "race"
    """Two gateways, everything that fails, and who was heard: what the fence promises, counted."""
    MANY = "many"
    """Ten times as many objects; then the operator starts again."""


class SizeName(StrEnum):
    """The sizes to choose from."""

    SMALL = "small"
    """Shows within half a minute that everything works. Its figures mean little."""
    FULL = "full"
    """What the bars are about."""


@dataclass(frozen=True, slots=True)
class Size:
    """
    How much is measured.

    Args:
        name: What it is called in the report.
        objects: Objects that adopt.
        sprites: Sprites they are spread over.
        kills: So many of them are terminated, before all are deleted.
        launches: Objects that launch.
        launch_sprites: Sprites they are spread over.
        many_objects: Objects of the largest scenario.
        many_sprites: Sprites they are spread over.
        rest: How long nothing happens.
        hold: How long sprites are held.
        streams: Terminals that talk through one gateway.
        talk: How long they do.
        settle: What the operator still does in this time after the last Ready belongs to it.
    """

    name: SizeName
    objects: int
    sprites: int
    kills: int
    launches: int
    launch_sprites: int
    many_objects: int
    many_sprites: int
    rest: timedelta
    hold: timedelta
    streams: int
    talk: timedelta
    settle: timedelta

    @property
    def is_comparable(self) -> bool:
        """Tell whether the bars and the figures of others apply."""
        return self.name is SizeName.FULL and self.objects == 1000


def build_size(name: SizeName, objects: int | None = None) -> Size:
    """
    Derive a size from its name and, where given, the number of objects.

    Args:
        name: What else there is to a size.
        objects: How many adopt; as many launch, ten times as many are the largest scenario, and a fifth as many talk.
    """
    match name:
        case SizeName.SMALL:
            count, rest, settle = objects or 20, timedelta(seconds=2), timedelta(seconds=0.5)
            hold, talk = timedelta(seconds=12), timedelta(seconds=2)
        case SizeName.FULL:
            count, rest, settle = objects or 1000, timedelta(seconds=120), timedelta(seconds=3)
            hold, talk = timedelta(seconds=90), timedelta(seconds=60)
        case _:
            assert_never(name)
    return Size(
        name=name,
        objects=count,
        sprites=max(1, count // 10),
        kills=max(1, count // 5),
        launches=count,
        launch_sprites=max(1, count // 10),
        many_objects=10 * count,
        many_sprites=max(1, count // 2),
        rest=rest,
        hold=hold,
        streams=max(10, count // 5),
        talk=talk,
        settle=settle,
    )
