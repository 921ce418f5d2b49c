"""
The kind `AgentTerminal` in one import: its models, how an object is read, judged and written.

Problem: an object in the cluster was stored under some CRD, older or newer than this program, and its limits may have
been others; refusing to read it would leave its session without anybody. Promise: reading asks only for what cannot be
done without (fields that are required, their types, the words of enums); limits and rules are the matter of
`judge_object`, which answers as the API server would.
"""

import contextlib
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from pydantic import ValidationError

from controller.api.judging import Fault, judge_object, render_path
from controller.api.model import Model
from controller.api.spec import (
    DeletionPolicy,
    EnvVar,
    HoldMode,
    HoldSpec,
    IdlePolicy,
    Launch,
    Relaunch,
    SecretKeyRef,
    TerminalSpec,
    TokenSecretRef,
    ValueFrom,
)
from controller.api.status import (
    EPOCH,
    UNKNOWN_CONDITIONS,
    ActivityStatus,
    Condition,
    ExitStatus,
    GatewayStatus,
    HoldStatus,
    KillStatus,
    KillTrigger,
    LaunchIntent,
    LeftoverProcess,
    LeftoversResult,
    LeftoversStatus,
    Origin,
    SeenExit,
    SessionEnd,
    SessionStatus,
    SocketStatus,
    SpriteStatus,
    TerminalStatus,
    render_status,
)
from controller.errors import AgentTerminalError

__all__ = [
    "EPOCH",
    "FRAME",
    "UNKNOWN_CONDITIONS",
    "ActivityStatus",
    "Condition",
    "DeletionPolicy",
    "EnvVar",
    "ExitStatus",
    "Fault",
    "GatewayStatus",
    "HoldMode",
    "HoldSpec",
    "HoldStatus",
    "IdlePolicy",
    "KillStatus",
    "KillTrigger",
    "Launch",
    "LaunchIntent",
    "LeftoverProcess",
    "LeftoversResult",
    "LeftoversStatus",
    "ObjectUnreadable",
    "Origin",
    "Relaunch",
    "SecretKeyRef",
    "SeenExit",
    "SessionEnd",
    "SessionStatus",
    "SocketStatus",
    "SpriteStatus",
    "TerminalSpec",
    "TerminalStatus",
    "TokenSecretRef",
    "ValueFrom",
    "judge_object",
    "read_frame",
    "read_spec",
    "read_status",
    "render_status",
]


class ObjectUnreadable(AgentTerminalError):
    """
    A stored object does not fit this operator's models: the CRD is of another version.

    Args:
        path: The field.
        rule: What is asked of it. Neither carries the value itself, which may be secret.
    """

    def __init__(self, path: str, rule: str) -> None:
        super().__init__(f"{path} cannot be read: {rule}. Correct the object, or install this operator's own CRD.")
        self.path = path
        self.rule = rule


M = TypeVar("M", bound=Model)

_UNSEEN: Final = TerminalStatus()

FRAME: Final = ("observedGeneration", "phase", "lastHandledReconcileAt", "conditions")
"""The parts of a status that tell how far the operator got, and nothing about a session."""


def read_spec(raw: Mapping[str, Any] | None) -> TerminalSpec:
    """
    Read the `spec` of a stored object.

    Unknown fields are ignored and limits are not asked for.

    Raises:
        ObjectUnreadable: A required field is missing, a type is another, or an enum has a word we do not know.
    """
    return _read(TerminalSpec, raw if raw is not None else {}, "spec")


def read_status(raw: Mapping[str, Any] | None) -> TerminalStatus:
    """
    Read the `status` of a stored object; nothing there reads as nothing seen.

    Missing conditions read as Unknown, an unknown phase as Pending, unknown fields and conditions are ignored.

    Raises:
        ObjectUnreadable: A value has another type, or a part lacks what makes it that part.
    """
    if not raw:
        return _UNSEEN
    return _read(TerminalStatus, raw, "status")


def read_frame(raw: Mapping[str, Any]) -> TerminalStatus:
    """
    Read of a stored `status` what tells how far the operator got, whatever stands beside it.

    A part that cannot be read counts as absent, so that something can be said of any object.
    """
    readable: dict[str, Any] = {}
    for part in FRAME:
        with contextlib.suppress(ObjectUnreadable):
            read_status({part: raw.get(part)})
            readable[part] = raw.get(part)
    return read_status(readable)


def _read(model: type[M], raw: Mapping[str, Any], root: str) -> M:
    """Read with a model, and tell of the first thing that cannot be read."""
    try:
        return model.model_validate(raw)
    except ValidationError:
        pass
    try:
        # Only now, since the API server stores no null: a null is an absent field.
        return model.model_validate(_drop_nulls(raw))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False, include_context=False)[0]
        raise ObjectUnreadable(render_path(root, first["loc"]), first["msg"]) from None


def _drop_nulls(value: Any) -> Any:
    """Copy JSON without the fields that are null."""
    if isinstance(value, Mapping):
        return {name: _drop_nulls(field) for name, field in value.items() if field is not None}
    if isinstance(value, list):
        return [_drop_nulls(entry) for entry in value]
    return value
