"""
The CRD that is installed, read once at the start.

Problem: an operator that is newer than the installed CRD writes fields which the API server drops without a word, and
one without any CRD lists in vain for ever. Promise: a missing CRD, or one that cannot hold what must be remembered,
ends the start with one sentence that says how to install it; a field that merely goes missing is named in the log and
left out of every write. Source: design 4.2.
"""

import logging
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, Protocol

from controller.api.lacking import find_lacking
from controller.api.names import CRD_NAME, VERSION
from controller.clock import Clock
from controller.errors import AgentTerminalError, Failure, OutsideError
from controller.kube.errors import Forbidden, NotFound

log = logging.getLogger(__name__)

PATIENCE: Final = timedelta(seconds=30)
"""For an API server that starts, or has just taken a CRD and answers 429 for up to 5 s; then this process ends."""
AGAIN_AFTER: Final = timedelta(seconds=2)

INSTALL: Final = "agentterminal crd | kubectl apply --server-side -f -"

_PASSING: Final = frozenset({Failure.THROTTLED, Failure.SERVER, Failure.TIMED_OUT, Failure.UNREACHABLE})


class Definitions(Protocol):
    """What reads a CRD."""

    async def get_crd(self, name: str) -> dict[str, Any]:
        """Read a CustomResourceDefinition."""


class CrdUnfit(AgentTerminalError):
    """The installed CRD is missing, or too old to work with."""


async def observe_lacking(definitions: Definitions, clock: Clock) -> frozenset[str]:
    """
    Read the installed CRD, and tell which fields of the status it cannot hold.

    Raises:
        CrdUnfit: There is none, or it cannot hold what must be remembered.
        OutsideError: The API server did not answer in time, or does not know us.
    """
    try:
        crd = await _read(definitions, clock)
    except NotFound:
        raise CrdUnfit(f"The cluster has no CRD {CRD_NAME}. Install it: {INSTALL}") from None
    except Forbidden as error:
        log.warning(
            "The installed CRD may not be read, so it is taken for this operator's own.", extra={"fault": error.message}
        )
        return frozenset()
    lacking = find_lacking(crd)
    if lacking is None:
        raise CrdUnfit(f"The installed CRD {CRD_NAME} does not serve {VERSION}. Install this version's: {INSTALL}")
    if lacking.essential:
        raise CrdUnfit(
            f"The installed CRD {CRD_NAME} is too old: it lacks {', '.join(lacking.essential)}, without which a "
            f"session could be started twice. Install this version's: {INSTALL}"
        )
    if lacking.spec or lacking.status:
        log.warning(
            "The installed CRD is older than this operator; the fields that it lacks are ignored in spec and left out "
            "of status. Install this version's CRD, and start the operator anew.",
            extra={"lacking": [*lacking.spec, *lacking.status], "install": INSTALL},
        )
    return frozenset(lacking.status)


async def _read(definitions: Definitions, clock: Clock) -> Mapping[str, Any]:
    """Read it, and be patient with a server that is not ready."""
    end = clock.monotonic() + PATIENCE
    while True:
        try:
            return await definitions.get_crd(CRD_NAME)
        except OutsideError as error:
            if error.failure not in _PASSING or clock.monotonic() >= end:
                raise
            log.warning("The installed CRD could not be read yet.", extra={"fault": error.message})
            await clock.sleep(error.retry_after or AGAIN_AFTER)
