"""The names by which the product is known to a cluster."""

from typing import Final

GROUP: Final = "agentterminal.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"
KIND: Final = "AgentTerminal"
PLURAL: Final = "agentterminals"
SINGULAR: Final = "agentterminal"
SHORT_NAME: Final = "aterm"
CATEGORY: Final = "agents"
CRD_NAME: Final = f"{PLURAL}.{GROUP}"

FINALIZER: Final = f"{GROUP}/session"
"""Keeps a deleted object until its session is proven dead, or given up by `deletionPolicy: Orphan`."""

FIELD_MANAGER: Final = "agentterminal-operator"
"""The field manager of every write of the operator."""

REPORTING_CONTROLLER: Final = f"{GROUP}/operator"
"""Who speaks in an Event."""

RECONCILE_REQUEST: Final = f"reconcile.{GROUP}/requestedAt"
"""The annotation that asks for a look now; any value that was not handled yet does."""

FLUX_RECONCILE_REQUEST: Final = "reconcile.fluxcd.io/requestedAt"
"""The same in Flux's words; it counts where our own is absent."""

GATEWAY_FIELD_MANAGER: Final = "agentterminal-gateway"
"""The field manager of every write of a gateway, so that its share is told from the operator's and Git's."""
