"""
What is set about the emulator at its start and stays.

Source: sprites-api.md 3.2.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from controller.lab.emulator.mixing import Mix, draw_mix
from controller.lab.emulator.strict import Strict
from controller.lab.emulator.switches import Switches

HOME: Final = "/home/sprite"
DEFAULT_PATH: Final = (
    "/home/sprite/.local/bin:/.sprite/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
)
"""Observed: third parties, August 2026."""


class Isolation(StrEnum):
    """What a session's process is."""

    AUTO = "auto"
    """Namespaces: as root a mount and pid namespace, for others within a user namespace."""
    ROOT = "root"
    """A mount and a pid namespace; needs root."""
    USER = "user"
    """The same within a user namespace; needs no right."""
    PLAIN = "plain"
    """Ordinary processes, with the losses that docs/emulator.md names."""
    RECORDS = "records"
    """No processes: a session is a record. For benchmarks with thousands of sessions."""


class EmulatorSettings(Strict):
    """What is set at the start and stays."""

    port: Annotated[int, Field(ge=0, le=65535)] = 0
    """0 takes a free one. The address is loopback always: `/_lab/` runs commands for anybody who reaches it."""
    tokens: tuple[str, ...] = ()
    """One organization each, named by the part before the first slash. Empty: one is made up at the start."""
    isolation: Isolation = Isolation.AUTO
    runtime_version: str = "v0.0.1-rc48"
    request_log_entries: Annotated[int, Field(ge=1)] = 200_000
    input_log_entries: Annotated[int, Field(ge=1)] = 200_000
    folder: Path | None = None
    """Where the sprites' homes lie, by a short path; None: a temporary folder, removed at the end."""
    switches: Switches = Switches()
    random_lies: Annotated[int, Field(ge=0)] | None = None
    """The seed of a mix of lies; what `switches` sets stays as it is there. None: no mix."""

    def draw_mix(self) -> Mix | None:
        """Draw the mix, if one is wanted."""
        return None if self.random_lies is None else draw_mix(self.random_lies)

    def build_switches(self) -> Switches:
        """Tell how the emulator behaves at its start."""
        mix = self.draw_mix()
        return self.switches if mix is None else mix.build_switches(self.switches)
