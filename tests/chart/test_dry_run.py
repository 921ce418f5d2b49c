"""The ten installations, told to a real API server that is asked to change nothing."""

from pathlib import Path

import pytest

from tests.chart.helm import VALUES, Helm, find
from tests.chart.site import Site
from tests.house.chart_page import CHART


@pytest.mark.parametrize("values", sorted(VALUES.iterdir()), ids=lambda path: path.stem)
def test_a_real_api_server_takes_everything_that_is_rendered(helm: Helm, site: Site, values: Path) -> None:
    # With --validate helm asks this very cluster which kinds it has.
    rendered = helm.run(
        "template",
        "r",
        str(CHART),
        "--namespace=agents",
        "--validate",
        f"--values={values}",
        kubeconfig=site.kubeconfig,
    ).stdout

    # Unknown fields are refused, not only dropped.
    words = ("apply", "--dry-run=server", "--validate=strict", "--filename=-", "--output=name")
    taken = site.kubectl(*words, stdin=rendered)

    assert taken.stderr == ""
    assert len(taken.stdout.split()) == rendered.count("\nkind: ")
    assert "deployment.apps/r-operator" in taken.stdout.split()


@pytest.mark.parametrize("name", ["as-it-comes", "extended", "gateway-with-a-secret"])
def test_every_pod_is_admitted_where_only_restricted_pods_are(helm: Helm, site: Site, name: str) -> None:
    for deployment in helm.render(VALUES / f"{name}.yaml", apis=["monitoring.coreos.com/v1/PodMonitor"]):
        if deployment["kind"] == "Deployment":
            pod = {"metadata": {"name": "a"}, "spec": deployment["spec"]["template"]["spec"]}
            code, answer = site.request("POST", "/api/v1/namespaces/agents/pods?dryRun=All", body=pod)
            assert code == 201, answer


def test_a_pod_that_is_not_restricted_is_refused_there(helm: Helm, site: Site) -> None:
    loose = {"podSecurityContext.runAsNonRoot": "false"}
    deployment = find(helm.render(settings=loose), "Deployment")
    pod = {"metadata": {"name": "a"}, "spec": deployment["spec"]["template"]["spec"]}

    code, answer = site.request("POST", "/api/v1/namespaces/agents/pods?dryRun=All", body=pod)

    assert code == 403
    assert "violates PodSecurity" in answer["message"]


def test_a_dry_run_changes_nothing(helm: Helm, site: Site) -> None:
    found = site.kubectl("get", "deployments,roles,clusterroles", "--all-namespaces", "--output=name").stdout

    assert "agents:r-operator" not in found
    assert "r-operator" not in found


def test_a_field_that_the_kind_does_not_have_would_be_refused(site: Site) -> None:
    wrong = '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "date": {"a": "b"}}'

    refused = site.kubectl("apply", "--dry-run=server", "--validate=strict", "--filename=-", stdin=wrong, check=False)

    assert refused.code != 0
    assert 'unknown field "date"' in refused.stderr
