"""Who may what after an installation: the gateway with its own account's token, and people by the roles they have."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from controller.api import names
from controller.plan.fence_objects import ExitEntry, GatewayEntry, Lock, ObjectView, view_object
from controller.plan.fence_patches import (
    build_claim,
    build_clear_lock,
    build_drop_entry,
    build_entry,
    build_lock,
    build_withdrawal,
    name_lease,
)
from tests.chart.helm import VALUES, Helm
from tests.chart.installing import installed
from tests.chart.site import Site
from tests.support.process import await_true

TERMINALS = f"/apis/{names.API_VERSION}/namespaces/team-a/{names.PLURAL}"
LEASES = "/apis/coordination.k8s.io/v1/namespaces"
JSON_PATCH = "application/json-patch+json"
SPEC = {"spriteName": "box", "sessionId": "812", "deletionPolicy": "Orphan"}
SOCKET = "at1.2.abc.def"
DRY = "?dryRun=All"


@dataclass(frozen=True)
class Installed:
    """An installation with a gateway, one terminal, and the tokens of its two accounts."""

    site: Site
    gateway: str = field(repr=False)
    operator: str = field(repr=False)

    def read(self) -> Any:
        status, answer = self.site.request("GET", f"{TERMINALS}/one")
        assert status == 200
        return answer

    def view(self) -> ObjectView:
        return view_object(self.read())

    def patch(
        self, operations: Sequence[Mapping[str, Any]], *, status: bool = False, query: str = ""
    ) -> tuple[int, str]:
        """Patch the terminal as the gateway; give the status and the sentence."""
        path = f"{TERMINALS}/one{'/status' if status else ''}{query}"
        code, answer = self.site.request_as(self.gateway, "PATCH", path, body=operations, content_type=JSON_PATCH)
        return code, str(answer.get("message", ""))


@pytest.fixture(scope="module")
def chart(helm: Helm, site: Site) -> Iterator[Installed]:
    with installed(helm, site, VALUES / "gateway-with-a-secret.yaml"):
        # Leases of other tests' processes outlive their release.
        site.request("DELETE", f"{LEASES}/agents/leases")
        for namespace in ("team-a", "team-b"):
            for secret in ("sprites-token", "bot-keys", "private"):
                path = f"/api/v1/namespaces/{namespace}/secrets"
                assert site.request("POST", path, body={"metadata": {"name": secret}})[0] == 201
        body = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": "one"}, "spec": SPEC}
        assert site.request("POST", TERMINALS, body=body)[0] == 201
        account = "agentterminal-operator"
        chart = Installed(site, site.token("agents", f"{account}-gateway"), site.token("agents", account))
        # A policy counts from when the API server's watch has told of it. What is tried before must not be done: the
        # next try would change nothing, and be admitted for ever.
        suspend = [{"op": "add", "path": "/spec/suspend", "value": True}]
        lose = [{"op": "add", "path": "/status/phase", "value": "Lost"}]
        await_true(lambda: "nothing else" in chart.patch(suspend, query=DRY)[1], "the policy")
        await_true(lambda: chart.patch(lose, status=True, query=DRY)[0] == 422, "the policy for the status")
        await_true(lambda: write_lease(chart, "early")[0] == 422, "the policy for Leases")
        yield chart
        site.request("DELETE", f"{TERMINALS}/one")


def write_lease(chart: Installed, name: str, *, token: str = "", namespace: str = "agents") -> tuple[int, Any]:
    body = {"metadata": {"name": name}, "spec": {"holderIdentity": "abc"}}
    return chart.site.request_as(token or chart.gateway, "POST", f"{LEASES}/{namespace}/leases", body=body)


# --- What the gateway does --------------------------------------------------------------------------------------------


def test_every_write_of_the_fence_is_admitted(chart: Installed) -> None:
    assert chart.patch(build_claim(chart.view(), SOCKET)) == (200, "")
    view = chart.view()
    lock = Lock(uid=view.uid, epoch=view.generation, socket_id=SOCKET, incarnation="abc", since="2026-11-30T10:00:00Z")
    assert chart.patch(build_lock(view, lock), status=True) == (200, "")
    assert chart.patch(build_entry(chart.view(), GatewayEntry("abc", viewers=2)), status=True) == (200, "")
    exited = GatewayEntry("abc", viewers=1, exit=ExitEntry("41", "sprite-1", "2026-11-30T10:00:00Z", 3))
    assert chart.patch(build_entry(chart.view(), exited), status=True) == (200, "")
    assert chart.read()["status"]["gateways"][0]["exit"]["code"] == 3
    assert (chart.read()["status"]["socket"]["socketId"], chart.read()["spec"]["attached"]) == (SOCKET, True)
    assert chart.patch(build_drop_entry(chart.view(), "abc"), status=True) == (200, "")
    assert chart.patch(build_clear_lock(lock, uid=view.uid), status=True) == (200, "")
    assert chart.patch(build_withdrawal(view.uid, SOCKET)) == (200, "")


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "/spec/terminated", "value": True},
        {"op": "add", "path": "/spec/holdWanted", "value": True},
        {"op": "add", "path": "/spec/suspend", "value": True},
        {"op": "replace", "path": "/spec/deletionPolicy", "value": "Terminate"},
        {"op": "replace", "path": "/spec/idleTimeoutSeconds", "value": 0},
        {"op": "add", "path": "/spec/tokenSecretRef", "value": {"name": "private"}},
        {"op": "add", "path": "/spec/launch", "value": {"command": ["sh"]}},
    ],
    ids=lambda operation: operation["path"],
)
def test_nothing_else_of_the_spec_is_the_gateways(chart: Installed, operation: dict[str, Any]) -> None:
    both = [{"op": "add", "path": "/spec/attached", "value": False}, operation]

    code, sentence = chart.patch(both)

    assert code == 422
    assert "Of the spec the gateway may write attached and activeSocketId, and nothing else." in sentence


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "/metadata/labels", "value": {"a": "b"}},
        {"op": "add", "path": "/metadata/annotations", "value": {"a": "b"}},
        {"op": "add", "path": "/metadata/finalizers", "value": ["example.com/stay"]},
        {
            "op": "add",
            "path": "/metadata/ownerReferences",
            "value": [{"apiVersion": "v1", "kind": "Secret", "name": "a", "uid": "b"}],
        },
    ],
    ids=lambda operation: operation["path"],
)
def test_nothing_of_the_metadata_is_the_gateways(chart: Installed, operation: dict[str, Any]) -> None:
    code, sentence = chart.patch([operation])

    assert code == 422
    assert "The gateway may change no labels, annotations, finalizers and owners." in sentence


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "add", "path": "/status/phase", "value": "Terminated"},
        {"op": "add", "path": "/status/observedGeneration", "value": 9},
        {"op": "remove", "path": "/status/conditions"},
        {"op": "add", "path": "/status/session", "value": {"id": "1"}},
    ],
    ids=lambda operation: operation["path"],
)
def test_nothing_else_of_the_status_is_the_gateways(chart: Installed, operation: dict[str, Any]) -> None:
    code, sentence = chart.patch([operation], status=True)

    assert code == 422
    assert "Of the status the gateway may write socket and gateways, and nothing else." in sentence


def test_others_are_not_held_to_the_gateways_rules(chart: Installed) -> None:
    change = [{"op": "add", "path": "/metadata/labels", "value": {"team": "a"}}]

    code, _ = chart.site.request("PATCH", f"{TERMINALS}/one", body=change, content_type=JSON_PATCH)

    assert code == 200


def test_the_gateway_makes_and_deletes_no_terminal_and_reads_all(chart: Installed) -> None:
    def ask(method: str, path: str, body: object = None) -> int:
        return chart.site.request_as(chart.gateway, method, path, body=body)[0]

    everywhere = f"/apis/{names.API_VERSION}/{names.PLURAL}"
    made = {"apiVersion": names.API_VERSION, "kind": names.KIND, "metadata": {"name": "two"}, "spec": SPEC}
    assert ask("GET", everywhere) == 200
    assert ask("GET", f"{TERMINALS}/one") == 200
    assert ask("POST", TERMINALS, made) == 403
    assert ask("DELETE", f"{TERMINALS}/one") == 403


@pytest.mark.parametrize(
    ("account", "lease", "code"),
    [
        ("gateway", name_lease("abc"), 201),
        ("gateway", "agentterminal-operator", 422),
        ("gateway", "somebody-elses", 422),
        ("operator", "agentterminal-operator", 201),
        ("operator", "somebody-elses", 422),
    ],
)
def test_leases_are_made_by_whom_they_belong_to(chart: Installed, account: str, lease: str, code: int) -> None:
    token = chart.gateway if account == "gateway" else chart.operator

    given, answer = write_lease(chart, lease, token=token)

    assert given == code, answer
    if code == 422:
        assert "A gateway may write Leases whose names begin with atgw-" in answer["message"]


def test_a_generated_name_is_held_to_the_rule_and_no_lease_is_made_elsewhere(chart: Installed) -> None:
    def generate(prefix: str) -> int:
        body = {"metadata": {"generateName": prefix}, "spec": {}}
        return chart.site.request_as(chart.gateway, "POST", f"{LEASES}/agents/leases", body=body)[0]

    assert (generate("atgw-"), generate("other-")) == (201, 422)
    assert write_lease(chart, name_lease("elsewhere"), namespace="team-a")[0] == 403


def test_the_operator_may_break_a_gateways_lease_and_the_gateway_not_the_operators(chart: Installed) -> None:
    write_lease(chart, name_lease("dead"))
    write_lease(chart, "agentterminal-operator", token=chart.operator)

    def break_lease(token: str, name: str) -> int:
        path = f"{LEASES}/agents/leases/{name}"
        _, lease = chart.site.request_as(token, "GET", path)
        lease["spec"]["holderIdentity"] = ""
        return chart.site.request_as(token, "PUT", path, body=lease)[0]

    assert break_lease(chart.operator, name_lease("dead")) == 200
    assert break_lease(chart.gateway, "agentterminal-operator") == 422
    assert chart.site.request_as(chart.gateway, "DELETE", f"{LEASES}/agents/leases/{name_lease('dead')}")[0] == 200
    assert chart.site.request_as(chart.gateway, "DELETE", f"{LEASES}/agents/leases/agentterminal-operator")[0] == 422


@pytest.mark.parametrize(
    ("account", "namespace", "secret", "code"),
    [
        ("gateway", "team-a", "sprites-token", 200),
        ("gateway", "team-a", "bot-keys", 403),
        ("gateway", "team-a", "private", 403),
        ("gateway", "team-b", "sprites-token", 403),
        ("gateway", "team-a", "", 403),
        ("operator", "team-a", "sprites-token", 200),
        ("operator", "team-a", "bot-keys", 200),
        ("operator", "team-a", "private", 403),
        ("operator", "team-b", "sprites-token", 403),
        ("operator", "team-a", "", 403),
    ],
)
def test_secrets_are_read_one_by_one_and_by_name(
    chart: Installed, account: str, namespace: str, secret: str, code: int
) -> None:
    token = chart.gateway if account == "gateway" else chart.operator
    path = f"/api/v1/namespaces/{namespace}/secrets/{secret}".rstrip("/")

    assert chart.site.request_as(token, "GET", path)[0] == code


def test_the_gateway_may_ask_who_somebody_is_and_read_the_clusters_authority(chart: Installed) -> None:
    def ask(path: str, body: object = None) -> int:
        return chart.site.request_as(chart.gateway, "POST" if body else "GET", path, body=body)[0]

    authority = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication"
    assert ask("/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "x"}}) == 201
    what = {"user": "vera", "resourceAttributes": {"verb": "get", "resource": "pods"}}
    assert ask("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": what}) == 201
    assert ask(authority) == 200
    assert ask("/api/v1/namespaces/kube-system/configmaps") == 403


# --- People -----------------------------------------------------------------------------------------------------------

RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/team-a"
READING = ("get", "list", "watch")
WRITING = ("create", "update", "patch", "delete", "deletecollection")
DOORS = ("attach", "view", "takeover", "activity")

PEOPLE: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "view": (READING, ()),
    "edit": ((*READING, *WRITING), DOORS),
    "admin": ((*READING, *WRITING), DOORS),
    "agentterminal-viewer": (READING, ("view",)),
    "agentterminal-attacher": (READING, ("attach", "view")),
    "agentterminal-taker": (READING, ("attach", "view", "takeover")),
    "agentterminal-reporter": ((), ("activity",)),
}


@pytest.mark.parametrize("role", PEOPLE)
def test_a_role_gives_what_it_says_in_its_namespace_and_nothing_elsewhere(chart: Installed, role: str) -> None:
    verbs, doors = PEOPLE[role]
    user = f"{role}-person"
    body = {
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    assert chart.site.request("POST", f"{RBAC}/rolebindings", body=body)[0] == 201

    def given(namespace: str) -> set[tuple[str, str]]:
        asked = [(verb, names.PLURAL) for verb in (*READING, *WRITING)]
        asked += [("create", f"{names.PLURAL}/{door}") for door in DOORS]
        asked += [("patch", f"{names.PLURAL}/status"), ("update", f"{names.PLURAL}/status")]
        return {(verb, what) for verb, what in asked if chart.site.may(user, verb, what, namespace=namespace)}

    expected = {(verb, names.PLURAL) for verb in verbs} | {("create", f"{names.PLURAL}/{door}") for door in doors}
    # Aggregation, and the authorizer's own watch, take a moment.
    await_true(lambda: given("team-a") == expected, f"what {role} gives", tell=lambda: str(given("team-a") ^ expected))
    assert given("team-b") == set()


def test_a_right_to_one_named_terminal_ends_there(chart: Installed) -> None:
    rules = [
        {
            "apiGroups": [names.GROUP],
            "resources": [f"{names.PLURAL}/attach"],
            "verbs": ["create"],
            "resourceNames": ["one"],
        }
    ]
    site = chart.site
    assert site.request("POST", f"{RBAC}/roles", body={"metadata": {"name": "one"}, "rules": rules})[0] == 201
    body = {
        "metadata": {"name": "one"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "one"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "nora"}],
    }
    assert site.request("POST", f"{RBAC}/rolebindings", body=body)[0] == 201
    attach = f"{names.PLURAL}/attach"

    await_true(lambda: site.may("nora", "create", attach, namespace="team-a", name="one"), "the right")
    assert not site.may("nora", "create", attach, namespace="team-a", name="two")
    assert not site.may("nora", "create", f"{names.PLURAL}/takeover", namespace="team-a", name="one")
    assert not site.may("nora", "get", names.PLURAL, namespace="team-a", name="one")


@pytest.mark.parametrize("resources", [["agentterminals"], ["agentterminals/*"]])
def test_stars_open_no_door(chart: Installed, resources: list[str]) -> None:
    user = f"star-{len(resources[0])}"
    site = chart.site
    rules = [{"apiGroups": [names.GROUP], "resources": [*resources, "others"], "verbs": ["*"]}]
    assert site.request("POST", f"{RBAC}/roles", body={"metadata": {"name": user}, "rules": rules})[0] == 201
    body = {
        "metadata": {"name": user},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": user},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }
    assert site.request("POST", f"{RBAC}/rolebindings", body=body)[0] == 201

    # Once the role counts, which another of its rights shows.
    await_true(lambda: site.may(user, "get", "others", namespace="team-a"), "the role to count")
    assert not any(site.may(user, "create", f"{names.PLURAL}/{door}", namespace="team-a") for door in DOORS)
