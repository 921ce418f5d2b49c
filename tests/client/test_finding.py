"""The gateway's Service is found by its labels: exactly one is taken, anything else is a sentence with the way out."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.client.finding import DOORS, LABELS, LabelledForward, choose_service, find_service
from controller.client.settings import SERVICE_PATTERN
from controller.client.way import Address, Reached, Service, Way, WayClosed
from controller.kube.calls import Call
from controller.kube.errors import Forbidden

CHART = Path(__file__).parents[2] / "charts/agentterminal-operator"


def build_service(namespace: str, name: str, *, port: int = 443, port_name: str = DOORS) -> dict[str, Any]:
    return {
        "metadata": {"namespace": namespace, "name": name},
        "spec": {"ports": [{"name": "other", "port": 1}, {"name": port_name, "port": port}]},
    }


METRICS = build_service("infra", "gw-metrics", port=9090, port_name="metrics")


class Kube:
    """An API server that lists Services, or refuses to."""

    def __init__(self, *services: dict[str, Any], refuses: bool = False) -> None:
        self.services = services
        self.refuses = refuses
        self.calls: list[Call] = []

    async def read(self, call: Call) -> dict[str, Any]:
        self.calls.append(call)
        if self.refuses:
            raise Forbidden("services is forbidden", status=403)
        return {"items": list(self.services)}


def test_the_one_that_has_the_doors_is_taken_with_its_port_and_the_metrics_are_not() -> None:
    found = [METRICS, build_service("infra", "gw", port=8443), {"metadata": {}}, {"spec": {"ports": "none"}}]

    assert choose_service(found, None) == Service("infra", "gw", 8443)


@pytest.mark.parametrize(
    ("found", "namespace", "sentence"),
    [
        ([], None, "no Service in any namespace has its labels"),
        ([METRICS], "infra", "no Service in namespace infra has its labels"),
        (
            [build_service("b", "two"), build_service("a", "one")],
            None,
            "2 Services in any namespace have its labels: a/one, b/two. Name it (--gateway-service NAMESPACE/NAME",
        ),
        ([build_service("a", f"s{number}") for number in range(7)], "a", "a/s0, a/s1, a/s2, a/s3, a/s4 and 2 more."),
    ],
)
def test_none_and_more_than_one_are_told_with_the_way_out(
    found: list[dict[str, Any]], namespace: str | None, sentence: str
) -> None:
    with pytest.raises(WayClosed) as closed:
        choose_service(found, namespace)

    assert sentence in str(closed.value)
    assert "--gateway-service NAMESPACE/NAME" in str(closed.value)


@pytest.mark.parametrize(
    ("namespace", "path", "where"),
    [(None, "/api/v1/services?", "in all namespaces"), ("infra", "/api/v1/namespaces/infra/services?", "in namespace")],
)
async def test_whoever_may_not_list_reads_what_to_do(namespace: str | None, path: str, where: str) -> None:
    kube = Kube(refuses=True)

    with pytest.raises(WayClosed) as closed:
        await find_service(kube, namespace)

    assert f"you may not list Services {where}" in str(closed.value)
    assert ("--gateway-service NAMESPACE." in str(closed.value)) == (namespace is None)
    assert kube.calls[0].path.startswith(path)
    assert "agentterminal-operator" in kube.calls[0].query["labelSelector"]


async def test_it_is_looked_for_once_and_told_before_the_way_opens() -> None:
    kube, told = Kube(build_service("infra", "gw")), list[object]()

    def build(service: Service) -> Way:
        told.append("built")
        return Address(f"https://{service.name}")

    way = LabelledForward(kube, None, build, told.append)
    await way.aclose()

    assert await way.reach() == await way.reach() == Reached("https://gw")
    await way.aclose()
    assert told == [Service("infra", "gw"), "built"]
    assert len(kube.calls) == 1


def test_the_labels_and_the_port_are_those_of_the_chart() -> None:
    helpers = (CHART / "templates/_helpers.tpl").read_text()
    (selector,) = re.findall(r'define "gateway\.selector".*?-}}\n(.*?)\{\{- end', helpers, re.DOTALL)
    name = yaml.safe_load((CHART / "Chart.yaml").read_text())["name"]

    for label, value in LABELS.items():
        assert f"{label}: {value}\n" in selector.replace("{{ .Chart.Name }}", name)
    assert f"- name: {DOORS}\n" in (CHART / "templates/gateway-service.yaml").read_text()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("infra", ("infra", None, None)),
        ("infra/gw", ("infra", "gw", None)),
        ("infra/gw:8443", ("infra", "gw", "8443")),
        ("infra/", None),
        ("infra:443", None),
        ("/gw", None),
        ("infra/gw:0", None),
    ],
)
def test_a_service_is_written_with_its_namespace_and_may_lack_the_rest(
    text: str, parts: tuple[str | None, ...] | None
) -> None:
    match = re.fullmatch(SERVICE_PATTERN, text)

    assert (match and (match["namespace"], match["name"], match["port"])) == parts
