"""The one way in which looking for binaries fails."""

from controller.errors import AgentTerminalError


class BinariesMissing(AgentTerminalError):
    """There are none, and they cannot be made; the text says why and the ways out."""


WAYS_OUT = (
    "Three ways out: put Go 1.26 or newer on PATH (they are then built once, in about five minutes); or set"
    " KUBEBUILDER_ASSETS to a folder that has them; or put setup-envtest on PATH where it can reach its downloads."
)
