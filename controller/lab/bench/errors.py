"""What a bench says when it cannot go on."""

from controller.errors import AgentTerminalError


class BenchFailed(AgentTerminalError):
    """A part did not start or has ended, or something did not come about in time. The text says which."""
