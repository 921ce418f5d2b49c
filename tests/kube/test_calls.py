"""Paths as they go over the wire, and settings that contradict themselves."""

from datetime import timedelta

import pytest

from controller.kube.calls import Call, Resource, Verb
from controller.kube.settings import KubeSettings


@pytest.mark.parametrize(
    ("call", "path"),
    [
        (
            Call(verb=Verb.GET, resource=Resource.TERMINALS, namespace="team-a", name="one"),
            "/apis/agentterminal.dev/v1alpha1/namespaces/team-a/agentterminals/one",
        ),
        (
            Call(verb=Verb.PATCH, resource=Resource.TERMINAL_STATUS, namespace="team-a", name="one"),
            "/apis/agentterminal.dev/v1alpha1/namespaces/team-a/agentterminals/one/status",
        ),
        (Call(verb=Verb.LIST, resource=Resource.TERMINALS), "/apis/agentterminal.dev/v1alpha1/agentterminals"),
        (
            Call(verb=Verb.LIST, resource=Resource.TERMINALS, query={"limit": "5", "continue": "a+b/c=&d"}),
            "/apis/agentterminal.dev/v1alpha1/agentterminals?limit=5&continue=a%2Bb%2Fc%3D%26d",
        ),
        (
            Call(verb=Verb.GET, resource=Resource.LEASES, namespace="x", name="../y"),
            "/apis/coordination.k8s.io/v1/namespaces/x/leases/..%2Fy",
        ),
        (Call(verb=Verb.GET, resource=Resource.SECRETS, namespace="x", name="y"), "/api/v1/namespaces/x/secrets/y"),
        (Call(verb=Verb.CREATE, resource=Resource.EVENTS, namespace="x"), "/apis/events.k8s.io/v1/namespaces/x/events"),
        (
            Call(verb=Verb.GET, resource=Resource.CRDS, name="a.b"),
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/a.b",
        ),
    ],
)
def test_a_call_has_its_path(call: Call, path: str) -> None:
    assert call.path == path


def test_a_call_says_itself_without_its_body() -> None:
    call = Call(verb=Verb.PATCH, resource=Resource.TERMINAL_STATUS, namespace="a", name="b", body=b"secret")
    assert str(call) == "patch agentterminals/status a/b"
    assert str(Call(verb=Verb.LIST, resource=Resource.TERMINALS)) == "list agentterminals"


@pytest.mark.parametrize("resource", list(Resource))
def test_every_kind_of_thing_has_a_place(resource: Resource) -> None:
    assert Call(verb=Verb.GET, resource=resource, name="x").path.startswith("/api")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"connections": 3}, ["connections"]),
        ({"connections": 17, "in_flight": 17}, ["connections"]),
        ({"connections": 8, "in_flight": 7}, ["in_flight"]),
        ({"page_objects": 0}, ["page_objects"]),
        ({"list_passes": 0}, ["list_passes"]),
        ({"request_timeout": timedelta(0)}, ["request_timeout", "connect_timeout"]),
        ({"expiry_margin": timedelta(seconds=-1)}, ["expiry_margin"]),
        ({"connect_timeout": timedelta(seconds=21)}, ["connect_timeout"]),
        ({"connections": 0, "list_passes": 0}, ["connections", "list_passes"]),
    ],
)
def test_settings_that_cannot_work_are_refused_all_at_once(settings: dict[str, object], named: list[str]) -> None:
    with pytest.raises(ValueError) as refused:
        KubeSettings(**settings)  # type: ignore[arg-type]  # a table of wrong values
    assert [sentence.split()[0] for sentence in str(refused.value).split(". ")] == named
