"""The AgentTerminal operator: terminals inside Fly.io Sprites as objects one can declare."""

from typing import Final

__version__: Final = "0.1.0"
