"""The kind on a real API server: the same table as in `tests/api`, and how kubectl and Git live with it."""

import json
import ssl
import urllib.request
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from controller.api.conditions import ConditionStatus, ConditionType
from controller.api.names import API_VERSION, FINALIZER, KIND
from controller.api.rules import RULES
from controller.api.situations import Phase
from controller.api.terminal import (
    UNKNOWN_CONDITIONS,
    Fault,
    TerminalStatus,
    judge_object,
    read_spec,
    read_status,
    render_status,
)
from tests.api.kind_table import ADOPT, CHANGES, CLAIMED, CREATIONS, FINISHED, INHERITED, LAUNCH, Changed, Created
from tests.api.test_status import FULL
from tests.cluster import older_crd
from tests.cluster.plane import Cluster
from tests.support.process import await_true

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SENTENCES = {rule.message for rule in RULES}
NUMBERS = count(1)


def build_path(namespace: str, name: str = "", api_version: str = API_VERSION) -> str:
    """The address of one terminal, or of all of a namespace."""
    return f"/apis/{api_version}/namespaces/{namespace}/agentterminals" + (f"/{name}" if name else "")


def build_object(name: str, spec: Any, api_version: str = API_VERSION) -> dict[str, Any]:
    """A terminal with our finalizer; None leaves the spec out."""
    terminal = {"apiVersion": api_version, "kind": KIND, "metadata": {"name": name, "finalizers": [FINALIZER]}}
    return terminal if spec is None else {**terminal, "spec": spec}


def find_causes(answer: Any) -> list[tuple[str, str]]:
    """What the API server holds against an object: field and sentence, its note about unchecked rules aside."""
    causes = answer.get("details", {}).get("causes", [])
    return [(cause.get("field", ""), cause["message"]) for cause in causes if cause.get("field") != "<nil>"]


def assert_same_verdict(status: int, answer: Any, faults: list[Fault], refused_at: tuple[str, ...]) -> None:
    """The server, the models and the table agree on verdict and fields, and on the sentence where a rule speaks."""
    causes = find_causes(answer) if status >= 400 else []
    assert (status >= 400) == bool(refused_at), answer
    assert status in {200, 201, 422}, answer
    assert {field for field, _ in causes} == {fault.path for fault in faults} == set(refused_at)
    for fault in faults:
        if fault.message in SENTENCES:
            assert any(field == fault.path and fault.message in sentence for field, sentence in causes), causes
    for field, sentence in causes:
        spoken = [rule for rule in SENTENCES if sentence.endswith(f": {rule}") and "evaluating rule" not in sentence]
        assert all(Fault(field, rule) in faults for rule in spoken)


@pytest.fixture(scope="module")
def room(cluster: Cluster) -> Iterator[str]:
    """One namespace for all rows of the table."""
    name = f"kind-{next(NUMBERS)}"
    assert cluster.request("POST", "/api/v1/namespaces", body={"metadata": {"name": name}})[0] == 201
    yield name
    cluster.empty_namespace(name)


@pytest.mark.parametrize("row", CREATIONS, ids=str)
def test_a_creation_has_the_verdict_of_the_table(cluster: Cluster, room: str, row: Created) -> None:
    name = f"row-{next(NUMBERS)}"
    status, answer = cluster.request("POST", build_path(room), body=build_object(name, row.spec))
    assert_same_verdict(status, answer, judge_object(row.spec), row.refused_at)
    if not row.refused_at:
        assert read_spec(answer["spec"]) == read_spec(row.spec)
        assert judge_object(answer["spec"]) == []


@pytest.mark.parametrize("row", CHANGES, ids=str)
def test_a_change_has_the_verdict_of_the_table_and_the_finalizer_still_goes(
    cluster: Cluster, room: str, row: Changed
) -> None:
    name = f"row-{next(NUMBERS)}"
    path = build_path(room, name)
    status, answer = cluster.request("POST", build_path(room), body=build_object(name, row.before))
    assert status == 201, answer
    status, answer = cluster.request("PATCH", path, body={"spec": row.patch}, content_type=MERGE)
    assert_same_verdict(status, answer, judge_object(row.after, row.before), row.refused_at)
    assert_finalizer_goes(cluster, path)


def assert_finalizer_goes(cluster: Cluster, path: str) -> None:
    """A terminal takes a status, is deleted, and goes with its finalizer."""
    status, answer = cluster.request(
        "PATCH", f"{path}/status", body={"status": {"phase": "Running"}}, content_type=MERGE
    )
    assert status == 200, answer
    status, answer = cluster.request("DELETE", path)
    assert status == 200, answer
    tested = [
        {"op": "test", "path": "/metadata/uid", "value": cluster.request("GET", path)[1]["metadata"]["uid"]},
        {"op": "remove", "path": "/metadata/finalizers"},
    ]
    status, answer = cluster.request("PATCH", path, body=tested, content_type=JSON_PATCH)
    assert status == 200, answer
    assert cluster.request("GET", path)[0] == 404


@pytest.fixture(scope="module")
def inherited(cluster: Cluster, room: str) -> Iterator[dict[str, Any]]:
    """
    Objects that were stored under looser limits, now under ours: from the title to the name.

    What even the looser version refused is not in it.
    """
    install_crd(cluster, older_crd.render_looser(), room, probe_answer=201)
    specs = {row.title: row.spec for row in CREATIONS if row.refused_at} | {row.title: row.before for row in INHERITED}
    stored = {}
    for title, spec in specs.items():
        name = f"row-{next(NUMBERS)}"
        terminal = build_object(name, spec, older_crd.API_VERSION)
        status, answer = cluster.request("POST", build_path(room, api_version=older_crd.API_VERSION), body=terminal)
        if status == 201:
            stored[title] = name
        else:
            assert status == 422, answer
    install_crd(cluster, older_crd.render_today(), room, probe_answer=422)
    yield stored
    for name in stored.values():
        path = build_path(room, name, older_crd.API_VERSION)
        cluster.request("PATCH", path, body={"metadata": {"finalizers": None}}, content_type=MERGE)
    assert cluster.request("DELETE", f"{CRDS}/{older_crd.NAME}")[0] == 200


def install_crd(cluster: Cluster, crd: dict[str, Any], namespace: str, *, probe_answer: int) -> None:
    """Create or replace a CRD, and wait until an object that only the looser one takes gets the expected answer."""
    await_true(lambda: put_crd(cluster, crd), "the CRD to be taken")
    probe = build_object("probe", ADOPT | {"spriteName": "A"}, older_crd.API_VERSION)
    path = build_path(namespace, api_version=older_crd.API_VERSION) + "?dryRun=All"
    await_true(
        lambda: cluster.request("POST", path, body=probe)[0] == probe_answer,
        "the CRD to be served",
        tell=lambda: str(cluster.request("POST", path, body=probe)),
    )


def put_crd(cluster: Cluster, crd: dict[str, Any]) -> bool:
    """Create or replace a CRD, unless the API server writes into its status at the same moment."""
    status, answer = cluster.request("GET", f"{CRDS}/{older_crd.NAME}")
    if status == 404:
        status, answer = cluster.request("POST", CRDS, body=crd)
    else:
        crd["metadata"]["resourceVersion"] = answer["metadata"]["resourceVersion"]
        status, answer = cluster.request("PUT", f"{CRDS}/{older_crd.NAME}", body=crd)
    assert status in {200, 201, 409}, answer
    return status != 409


@pytest.mark.parametrize("row", INHERITED, ids=str)
def test_what_an_older_version_stored_keeps_its_right_while_it_is_unchanged(
    cluster: Cluster, room: str, inherited: dict[str, str], row: Changed
) -> None:
    path = build_path(room, inherited[row.title], older_crd.API_VERSION)
    status, answer = cluster.request("PATCH", path, body={"spec": row.patch}, content_type=MERGE)
    assert_same_verdict(status, answer, judge_object(row.after, row.before), row.refused_at)


def test_every_refused_object_that_an_older_version_stored_can_lose_its_finalizer(
    cluster: Cluster, room: str, inherited: dict[str, str]
) -> None:
    refused = [row.title for row in CREATIONS if row.title in inherited]
    assert len(refused) >= 40
    for title in refused:
        assert_finalizer_goes(cluster, build_path(room, inherited[title], older_crd.API_VERSION))


def test_a_new_object_has_its_status_in_the_answer_already(cluster: Cluster, room: str) -> None:
    _, answer = cluster.request("POST", build_path(room), body=build_object("new", ADOPT))
    assert answer["status"] == render_status(TerminalStatus())
    status = read_status(answer["status"])
    assert (status.observed_generation, status.phase, status.conditions) == (-1, Phase.PENDING, UNKNOWN_CONDITIONS)
    assert all(condition.observed_generation is None for condition in status.conditions)


def test_a_new_object_has_its_defaults_and_no_others(cluster: Cluster, room: str) -> None:
    _, answer = cluster.request("POST", build_path(room), body=build_object("defaults", LAUNCH | {"hold": {}}))
    assert answer["spec"] == LAUNCH | {
        "launch": {"command": ["bash", "-l"], "columns": 80, "rows": 24},
        "hold": {"mode": "WhileActive"},
        "holdWanted": False,
        "terminated": False,
        "idleTimeoutSeconds": 1_800,
        "idlePolicy": "Detached",
        "relaunch": "Never",
        "deletionPolicy": "Terminate",
        "suspend": False,
    }


def test_a_token_key_has_a_default_where_a_secret_is_named(cluster: Cluster, room: str) -> None:
    terminal = build_object("token-key", ADOPT | {"tokenSecretRef": {"name": "t"}})
    _, answer = cluster.request("POST", build_path(room), body=terminal)
    assert answer["spec"]["tokenSecretRef"] == {"name": "t", "key": "token"}


def test_every_field_of_the_status_is_stored(cluster: Cluster, room: str) -> None:
    cluster.request("POST", build_path(room), body=build_object("full", ADOPT))
    path = f"{build_path(room, 'full')}/status"
    full = render_status(FULL)
    status, answer = cluster.request(
        "PATCH", f"{path}?fieldValidation=Strict", body={"status": full}, content_type=MERGE
    )
    assert (status, answer.get("status")) == (200, full), answer
    assert read_status(cluster.request("GET", path)[1]["status"]) == FULL


@pytest.mark.parametrize("status_before", [{"phase": "Dreaming"}, {"session": {"origin": "Dreamt"}}])
def test_a_word_of_a_newer_operator_is_not_refused(cluster: Cluster, room: str, status_before: dict[str, Any]) -> None:
    name = f"row-{next(NUMBERS)}"
    cluster.request("POST", build_path(room), body=build_object(name, ADOPT))
    path = f"{build_path(room, name)}/status"
    assert cluster.request("PATCH", path, body={"status": status_before}, content_type=MERGE)[0] == 200


def test_a_status_write_does_not_reach_the_spec_and_a_spec_write_not_the_status(cluster: Cluster, room: str) -> None:
    cluster.request("POST", build_path(room), body=build_object("split", ADOPT))
    path = build_path(room, "split")
    both = {"spec": {"suspend": True}, "status": {"phase": "Running"}}
    cluster.request("PATCH", path, body=both, content_type=MERGE)
    answer = cluster.request(
        "PATCH", f"{path}/status", body={"spec": {"suspend": False}, "status": {}}, content_type=MERGE
    )[1]
    assert (answer["spec"]["suspend"], answer["status"]["phase"]) == (True, "Pending")


def test_the_raw_api_drops_an_unknown_field_with_a_warning(cluster: Cluster, room: str) -> None:
    terminal = build_object("warned", ADOPT | {"colour": "red"})
    request = urllib.request.Request(
        f"{cluster.url}{build_path(room)}",
        data=json.dumps(terminal).encode(),
        headers={"Authorization": f"Bearer {cluster.admin_token}", "Content-Type": "application/json"},
    )
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}),
        urllib.request.HTTPSHandler(context=ssl.create_default_context(cafile=str(cluster.ca_file))),
    )
    with opener.open(request, timeout=30) as answer:
        assert answer.headers["Warning"] == r'299 - "unknown field \"spec.colour\""'
        assert "colour" not in json.load(answer)["spec"]


def test_kubectl_refuses_an_unknown_field(cluster: Cluster, room: str) -> None:
    manifest = json.dumps(build_object("strict", ADOPT | {"hold": {"until": "noon"}}))
    done = cluster.kubectl("-n", room, "apply", "-f", "-", stdin=manifest, check=False)
    assert done.code != 0
    assert 'unknown field "spec.hold.until"' in done.stderr
    done = cluster.kubectl("-n", room, "apply", "--validate=warn", "-f", "-", stdin=manifest)
    assert 'Warning: unknown field "spec.hold.until"' in done.stderr


def claim(cluster: Cluster, namespace: str, name: str) -> None:
    """Write the gateway's two fields, as a gateway does."""
    claimed = [
        {"op": "add", "path": "/spec/attached", "value": True},
        {"op": "add", "path": "/spec/activeSocketId", "value": "at1.2.i.r"},
    ]
    status, answer = cluster.request("PATCH", build_path(namespace, name), body=claimed, content_type=JSON_PATCH)
    assert status == 200, answer


def test_kubectl_replace_after_a_claim_has_to_revoke(cluster: Cluster, room: str) -> None:
    manifest = build_object("replaced", ADOPT)
    cluster.kubectl("-n", room, "create", "-f", "-", stdin=json.dumps(manifest))
    claim(cluster, room, "replaced")
    done = cluster.kubectl("-n", room, "replace", "-f", "-", stdin=json.dumps(manifest), check=False)
    assert done.code != 0
    assert 'write "" to revoke every socket' in done.stderr
    manifest["spec"] = ADOPT | {"activeSocketId": ""}
    cluster.kubectl("-n", room, "replace", "-f", "-", stdin=json.dumps(manifest))
    spec = cluster.request("GET", build_path(room, "replaced"))[1]["spec"]
    assert (spec["activeSocketId"], "attached" in spec) == ("", False)


def apply_from_git(cluster: Cluster, namespace: str, name: str, spec: Any) -> tuple[int, Any]:
    """Apply a manifest on the server, as a GitOps pipeline does; it has no finalizer of ours."""
    manifest = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": name}, "spec": spec}
    path = f"{build_path(namespace, name)}?fieldManager=git&fieldValidation=Strict"
    return cluster.request("PATCH", path, body=manifest, content_type="application/apply-patch+yaml")


def test_git_leaves_the_fields_of_the_gateway_alone(cluster: Cluster, room: str) -> None:
    assert apply_from_git(cluster, room, "from-git", LAUNCH)[0] == 201
    claim(cluster, room, "from-git")
    for spec in (LAUNCH, LAUNCH | {"holdWanted": True}, LAUNCH):
        status, answer = apply_from_git(cluster, room, "from-git", spec)
        assert status == 200, answer
        assert answer["spec"]["holdWanted"] is ("holdWanted" in spec)
        assert (answer["spec"]["attached"], answer["spec"]["activeSocketId"]) == (True, "at1.2.i.r")


@pytest.mark.parametrize(
    ("declared", "field"),
    [
        (LAUNCH | {"terminated": True}, "spec.terminated"),
        (LAUNCH | {"activeSocketId": "s"}, "spec.activeSocketId"),
        (LAUNCH | ADOPT, "spec.sessionId"),
    ],
)
def test_git_cannot_drop_what_it_declared_once(cluster: Cluster, room: str, declared: Any, field: str) -> None:
    name = f"row-{next(NUMBERS)}"
    assert apply_from_git(cluster, room, name, declared)[0] == 201
    status, answer = apply_from_git(cluster, room, name, LAUNCH)
    assert status == 422
    assert [at for at, _ in find_causes(answer)] == [field]


def test_git_that_never_declared_terminated_keeps_a_terminated_object(cluster: Cluster, room: str) -> None:
    apply_from_git(cluster, room, "ended-by-hand", LAUNCH)
    cluster.kubectl("-n", room, "patch", "aterm", "ended-by-hand", "--type=merge", '-p={"spec":{"terminated":true}}')
    status, answer = apply_from_git(cluster, room, "ended-by-hand", LAUNCH | {"holdWanted": True})
    assert (status, answer["spec"]["terminated"]) == (200, True)


def test_an_object_that_is_being_deleted_may_still_be_orphaned(cluster: Cluster, room: str) -> None:
    cluster.request("POST", build_path(room), body=build_object("orphan", FINISHED))
    path = build_path(room, "orphan")
    cluster.request("DELETE", path)
    answer = cluster.request("PATCH", path, body={"spec": {"deletionPolicy": "Orphan"}}, content_type=MERGE)[1]
    assert answer["spec"]["deletionPolicy"] == "Orphan"
    assert "deletionTimestamp" in answer["metadata"]


def test_kubectl_shows_the_columns_and_knows_the_short_names(cluster: Cluster, room: str) -> None:
    cluster.request("POST", build_path(room), body=build_object("shown", CLAIMED))
    cluster.request(
        "PATCH", f"{build_path(room, 'shown')}/status", body={"status": render_status(FULL)}, content_type=MERGE
    )
    narrow = cluster.kubectl("-n", room, "get", "aterm", "shown").stdout.splitlines()
    assert narrow[0].split() == ["NAME", "SPRITE", "SESSION", "PHASE", "HELD", "ATTACHED", "AGE"]
    assert narrow[1].split()[:6] == ["shown", "my-sprite", "812", "Exited", "True", "True"]
    wide = cluster.kubectl("-n", room, "get", "agents", "shown", "-o", "wide").stdout.splitlines()
    assert wide[0].split("AGE")[1].split() == ["SOCKET", "IDLE", "SINCE", "REASON"]
    assert (wide[1].split()[7], wide[1].split()[-1]) == ("socket-1", "Reaped")


def test_the_selectable_fields_select(cluster: Cluster, namespace: str) -> None:
    for name, spec in (("claimed", CLAIMED), ("quiet", ADOPT), ("left", ADOPT | {"attached": False})):
        cluster.request("POST", build_path(namespace), body=build_object(name, spec))
    lock = {"status": {"socket": render_status(FULL)["socket"]}}
    cluster.request("PATCH", f"{build_path(namespace, 'claimed')}/status", body=lock, content_type=MERGE)

    def select(selector: str) -> set[str]:
        answer = cluster.request("GET", f"{build_path(namespace)}?fieldSelector={selector}")[1]
        return {terminal["metadata"]["name"] for terminal in answer["items"]}

    assert select("spec.attached%3Dtrue") == {"claimed"}
    assert select("spec.attached!%3Dtrue") == {"quiet", "left"}
    assert select("spec.attached%3Dfalse") == {"left"}
    assert select("status.socket.incarnation%3Di") == {"claimed"}


def test_kubectl_explains_every_field_of_the_spec(cluster: Cluster) -> None:
    explained = cluster.kubectl("explain", "agentterminals.spec").stdout
    assert "Adopt this exec session" in explained
    assert "<no description>" not in explained
    assert "ENUM:" in cluster.kubectl("explain", "agentterminals.spec.idlePolicy").stdout


def test_kubectl_wait_reads_our_conditions(cluster: Cluster, room: str) -> None:
    cluster.request("POST", build_path(room), body=build_object("waited", ADOPT))
    wait = ("-n", room, "wait", "aterm/waited", "--for=condition=Terminated")
    assert cluster.kubectl(*wait, "--timeout=1s", check=False).code != 0
    conditions = tuple(
        condition.model_copy(
            update={"status": ConditionStatus.TRUE, "observed_generation": 1}
            if condition.type is ConditionType.TERMINATED
            else {}
        )
        for condition in UNKNOWN_CONDITIONS
    )
    ended = render_status(TerminalStatus(observed_generation=1, conditions=conditions))
    cluster.request("PATCH", f"{build_path(room, 'waited')}/status", body={"status": ended}, content_type=MERGE)
    assert "condition met" in cluster.kubectl(*wait, "--timeout=30s").stdout
