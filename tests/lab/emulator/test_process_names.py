"""Every process of a sprite has a name in the table of its processes."""

import pytest

from tests.lab.emulator.talking import Client, wait_until
from tests.support.emulator import EmulatorProcess

pytestmark = pytest.mark.sprites


async def test_a_process_without_a_command_line_is_listed_by_its_name(
    client: Client, emulator: EmulatorProcess
) -> None:
    # The shell becomes another program, which does not wait for its child: a zombie has a name and nothing else, and
    # so has, for an instant, a process that becomes another program.
    await client.start("sh", "-c", "true & exec sleep 1000")

    wait_until(
        lambda: sorted(entry["argv"] for entry in emulator.processes("my-sprite")),
        lambda found: found == [["[sh]"], ["sleep", "1000"]],
    )
