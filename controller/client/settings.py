"""
How a person's client is set.

Problem: an address typed at every attach is mistyped at the worst of times. Promise: what stands in the environment
serves where an option does not say otherwise; every time below says what it is for.
"""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from controller.client.keys import DEFAULT_KEYS

SERVICE_PATTERN: Final = (
    r"(?P<namespace>[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)"
    r"(/(?P<name>[a-z]([-a-z0-9]{0,61}[a-z0-9])?)(:(?P<port>[1-9][0-9]{0,4}))?)?"
)
SERVICE_SENTENCE: Final = (
    "a Service as NAMESPACE/NAME or NAMESPACE/NAME:PORT (443 where there is none), or a NAMESPACE to find it in"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachSettings:
    """What the environment says of the way to the gateway."""

    url: str | None = None
    """None: by the Service."""
    service: str | None = None
    """None: whichever has the labels of a gateway, in any namespace."""
    ca_file: Path | None = None
    """None: the system's list."""
    detach_keys: str = DEFAULT_KEYS


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachTimes:
    """How long anything may take."""

    connect: timedelta = timedelta(seconds=10)
    """TCP and TLS."""

    upgrade: timedelta = timedelta(seconds=45)
    """Until the upgrade is answered: the gateway asks the API server who somebody is and what they may."""

    forward: timedelta = timedelta(seconds=20)
    """For `kubectl port-forward` to say that it listens."""

    ping: timedelta = timedelta(seconds=15)

    pong: timedelta = timedelta(seconds=45)
    """For the answer to one. The gateway reads nothing while input waits for its lock, which takes it up to 20 s."""

    patience: timedelta = timedelta(seconds=120)
    """How long a lost connection is tried again: a replica that died keeps its place for 15 s, a rollout is longer."""

    first_patience: timedelta = timedelta(seconds=30)
    """The same before the first connection, where the gateway answered that it is not ready yet."""

    first_delay: timedelta = timedelta(milliseconds=250)
    """Before the second try; each further wait is twice as long."""

    longest_delay: timedelta = timedelta(seconds=4)

    silence: timedelta = timedelta(seconds=2)
    """How long an open connection may lack a session before that is said."""

    key_hold: timedelta = timedelta(milliseconds=700)
    """How long the first of the detach keys waits for the next before it is sent."""

    farewell: timedelta = timedelta(seconds=1)
    """For the gateway to answer our close."""
