"""Flows of the official JavaScript SDK (flows.mjs), each a process of its own."""

import json
import select
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from tests.sdk.node import Packages

FLOWS: Final = Path(__file__).with_name("flows.mjs")
FLOW_SECONDS: Final = 60.0


def run_flow(
    packages: Packages,
    name: str,
    environment: Mapping[str, str],
    meanwhile: Callable[[], Any] | None = None,
) -> Any:
    """
    Run a flow and return what it found.

    Args:
        packages: The SDK and its Node.
        name: Which one.
        environment: Where it goes: SPRITES_URL, SPRITE_TOKEN and the like.
        meanwhile: Done where the flow waits for something from outside.
    """
    with subprocess.Popen(
        [packages.node, FLOWS, name],
        env={"SDK_FOLDER": str(packages.folder), **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            if meanwhile is not None:
                assert process.stdout is not None
                assert select.select([process.stdout], [], [], FLOW_SECONDS)[0], "The flow never came to its pause."
                assert "ready" in json.loads(process.stdout.readline())
                meanwhile()
            stdout, stderr = process.communicate("go on\n" if meanwhile else None, timeout=FLOW_SECONDS)
        finally:
            process.kill()
    assert process.returncode == 0, stderr
    return json.loads(stdout)["found"]
