"""
A person's own calls to the API server, and what they read where it says no.

Problem: "403 forbidden" names no way out, and "401" not even that it is the login. Promise: whatever command asked, the
sentence says what was asked, who may not, which role has the right, and how to ask for oneself. What the API server
refuses for another reason than a missing right (a policy, a namespace that ends) is told in its own words.

Source: kubernetes.io, "Using RBAC Authorization" (read 2026-11), for the words of a refusal;
`charts/agentterminal-operator/templates/roles.yaml` for the roles. Pinned in tests/cluster/test_attach.py.
"""

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

from controller.api import names
from controller.kube.calls import READS, Call, Resource, Verb
from controller.kube.client import KubeClient
from controller.kube.errors import Forbidden, KubeError, NotFound, Unauthorized
from controller.tenure import Tenure

_NO_RIGHT: Final = re.compile(r'User "(?P<user>[^"]+)" cannot\b')
"""An authorizer's refusal. An admission's has other words."""

_ANONYMOUS: Final = "system:anonymous"

JsonObject = dict[str, Any]


class RightMissing(Forbidden):
    """The person has no right to this. The text is longer than that of other errors: it is all that they get."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, status=403)
        self.args = (sentence,)


class LoginRefused(Unauthorized):
    """The API server does not take the person's login."""

    def __init__(self, sentence: str) -> None:
        super().__init__(sentence, status=401)
        self.args = (sentence,)


class KindUnknown(NotFound):
    """The cluster has no AgentTerminals."""


class PersonKube(KubeClient):
    """The client of a person who types commands: the same calls, other sentences."""

    async def read(self, call: Call) -> JsonObject:
        """Read."""
        try:
            return await super().read(call)
        except (Unauthorized, Forbidden, NotFound) as refused:
            raise explain_refusal(call, refused) from None

    async def write(self, call: Call, *, tenure: Tenure) -> JsonObject:
        """Write."""
        try:
            return await super().write(call, tenure=tenure)
        except (Unauthorized, Forbidden) as refused:
            raise explain_refusal(call, refused) from None

    async def request_token(
        self, namespace: str, account: str, *, audiences: Sequence[str], lifetime: timedelta
    ) -> JsonObject:
        """Ask for a token of a service account."""
        try:
            return await super().request_token(namespace, account, audiences=audiences, lifetime=lifetime)
        except (Unauthorized, Forbidden) as refused:
            call = Call(verb=Verb.CREATE, resource=Resource.ACCOUNT_TOKENS, namespace=namespace, name=account)
            raise explain_refusal(call, refused) from None


def explain_refusal(call: Call, refused: Unauthorized | Forbidden | NotFound) -> KubeError:
    """Say what a person can do about an answer; one about which nobody knows more comes back as it is. Pure."""
    match refused:
        case Unauthorized():
            return LoginRefused(
                f"The API server does not know who you are (401 to {_describe(call)}): the login of your kubeconfig has"
                " run out, or is not one of this cluster. Log in again; `kubectl auth whoami` shows whether it worked."
            )
        case Forbidden():
            found = _NO_RIGHT.search(str(refused))
            return refused if found is None else RightMissing(_explain_missing(call, found["user"]))
        case NotFound() if call.resource is Resource.TERMINALS and call.verb is Verb.LIST:
            return KindUnknown(
                f"This cluster has no {names.PLURAL}.{names.GROUP}: the operator's CRD is not installed. Is it the"
                " cluster you mean? (`kubectl config current-context`)",
                status=404,
            )
        case NotFound():
            return refused


def _explain_missing(call: Call, user: str) -> str:
    sentence = f"{user} may not {_describe(call)} (403)."
    if user == _ANONYMOUS:
        return f"{sentence} That is nobody: your kubeconfig has no login for this cluster. Log in first."
    where = "a ClusterRoleBinding" if call.namespace is None else f"a RoleBinding in {call.namespace}"
    return f"{sentence} {_name_role(call)} {where} gives it to you. To ask for yourself: `{render_question(call)}`"


def _describe(call: Call) -> str:
    where = "in all namespaces" if call.namespace is None else f"in namespace {call.namespace}"
    return f"{call.verb} {call.resource} {where}"


def _name_role(call: Call) -> str:
    """Name the role that has the right, as the beginning of a sentence."""
    match call.resource:
        case Resource.TERMINALS if call.verb in READS:
            return "The chart adds that right to ClusterRole view, and agentterminal-viewer has it:"
        case Resource.TERMINALS:
            return "The chart adds that right to ClusterRole edit:"
        case Resource.EVENTS:
            return "ClusterRole view has that right:"
        case Resource.ACCOUNT_TOKENS:
            return "ClusterRole edit has that right:"
        case _:
            return "A role with that right and"


def render_question(call: Call) -> str:
    """Write the command with which a person asks the API server whether they may."""
    plural, _, subresource = call.resource.partition("/")
    group = f".{names.GROUP}" if plural == names.PLURAL else ".events.k8s.io" if plural == "events" else ""
    words = ["kubectl auth can-i", call.verb, plural + group]
    if subresource:
        words.append(f"--subresource={subresource}")
    words.append("--all-namespaces" if call.namespace is None else f"-n {call.namespace}")
    return " ".join(words)
