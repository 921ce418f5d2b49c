"""What the chart renders: ten installations, each value's effect, and every refusal with its sentence."""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.api.crd import render_crd_text
from controller.cli.worlds import RULES
from controller.lab.rights import build_rights, read_rules
from tests.chart.helm import VALUES, Document, Helm, find
from tests.house.chart_page import CHART

KINDS = [
    "cert-manager.io/v1/Certificate",
    "monitoring.coreos.com/v1/ServiceMonitor",
    "monitoring.coreos.com/v1/PodMonitor",
    "monitoring.coreos.com/v1/PrometheusRule",
]
FILES = sorted(VALUES.iterdir())
GATEWAY = {"gateway.enabled": "true", "gateway.tls.plain": "true"}


def pods(documents: list[Document]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for document in documents:
        if document["kind"] == "Deployment":
            yield document["metadata"]["name"], document["spec"]["template"]["spec"]


def environment_of(pod: Mapping[str, Any]) -> dict[str, Any]:
    variables = pod["containers"][0]["env"]
    names = [variable["name"] for variable in variables]
    assert len(names) == len(set(names)), names
    return {variable["name"].removeprefix("AGENTTERMINAL_"): variable.get("value") for variable in variables}


def test_ten_installations_are_described() -> None:
    assert len(FILES) == 10


@pytest.mark.parametrize("values", [None, *FILES], ids=lambda path: path.stem if path else "without values")
def test_helm_finds_nothing_to_say_against_it(helm: Helm, values: Path | None) -> None:
    given = [f"--values={values}"] if values else []

    done = helm.run("lint", "--strict", str(CHART), *given)

    assert "[WARNING]" not in done.stdout
    assert "[ERROR]" not in done.stdout
    assert "1 chart(s) linted, 0 chart(s) failed" in done.stdout


@pytest.mark.parametrize("values", FILES, ids=lambda path: path.stem)
def test_every_pod_is_restricted_and_asks_for_what_it_needs(helm: Helm, values: Path) -> None:
    for name, pod in pods(helm.render(values, apis=KINDS)):
        assert pod["securityContext"]["runAsNonRoot"] is True, name
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is True, "The account itself gives none."
        assert pod["enableServiceLinks"] is False
        assert pod["topologySpreadConstraints"]
        own = pod["containers"][0]
        assert own["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        # At the doors' port an address has a limit, which others behind the same address could use up.
        assert {own[f"{kind}Probe"]["httpGet"]["port"] for kind in ("liveness", "readiness")} == {"metrics"}
        assert own["resources"]["requests"]
        assert "cpu" not in own["resources"]["limits"]
        mounted = {mount["name"] for mount in own["volumeMounts"]}
        assert mounted == {volume["name"] for volume in pod["volumes"]}


@pytest.mark.parametrize("values", FILES, ids=lambda path: path.stem)
def test_every_object_bears_the_labels_and_every_selector_finds_its_pods(helm: Helm, values: Path) -> None:
    documents = helm.render(values, apis=KINDS)
    labels = [
        document["spec"]["template"]["metadata"]["labels"] for document in documents if document["kind"] == "Deployment"
    ]
    for document in documents:
        if document["metadata"]["name"] in {"beside", "r-as-text"}:
            continue
        assert document["metadata"]["labels"]["app.kubernetes.io/instance"] == "r", document["kind"]
        selector = document.get("spec", {}).get("selector") or document.get("spec", {}).get("podSelector")
        if selector:
            wanted = selector.get("matchLabels", selector).items()
            chosen = [pod for pod in labels if wanted <= pod.items()]
            assert len(chosen) == 1, (document["kind"], document["metadata"]["name"])


def test_only_accounts_of_the_chart_come_without_a_token(helm: Helm) -> None:
    accounts = [d for d in helm.render(settings=GATEWAY) if d["kind"] == "ServiceAccount"]

    assert [account["automountServiceAccountToken"] for account in accounts] == [False, False]


def test_the_gateway_is_off_by_default_and_nothing_of_it_is_there(helm: Helm) -> None:
    documents = helm.render()

    assert [name for name, _ in pods(documents)] == ["r-operator"]
    assert "gateway" not in "".join(document["metadata"]["name"] for document in documents)
    policies = [d["metadata"]["name"] for d in documents if d["kind"] == "ValidatingAdmissionPolicy"]
    assert policies == ["agents-r-operator-leases"], "The operator is held to its Leases in any case."


def test_the_kind_is_the_codes_own_and_kept_unless_somebody_says_otherwise(helm: Helm) -> None:
    crd = yaml.safe_load(render_crd_text())
    kept = find(helm.render(), "CustomResourceDefinition")
    loose = find(helm.render(settings={"crds.keep": "false"}), "CustomResourceDefinition")

    assert kept["spec"] == loose["spec"] == crd["spec"]
    assert kept["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert "helm.sh/resource-policy" not in loose["metadata"].get("annotations", {})
    assert [d for d in helm.render(settings={"crds.install": "false"}) if d["kind"] == "CustomResourceDefinition"] == []


# --- What values do ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "image"),
    [
        ({}, "agentterminal-operator:0.1.0"),
        ({"image.tag": "main"}, "agentterminal-operator:main"),
        (
            {"image.repository": "example.com/op", "image.digest": f"sha256:{'a' * 64}"},
            f"example.com/op@sha256:{'a' * 64}",
        ),
    ],
)
def test_an_image_is_named_by_version_by_tag_or_by_digest(helm: Helm, settings: dict[str, str], image: str) -> None:
    (_, operator), (_, gateway) = pods(helm.render(settings={**settings, **GATEWAY}))

    assert operator["containers"][0]["image"] == gateway["containers"][0]["image"] == image


def test_the_operators_environment_says_what_its_values_say(helm: Helm) -> None:
    (_, pod) = next(
        pods(helm.render(VALUES / "own-token.yaml", settings={"namespaces": "{team-a,team-b}", "log.level": "debug"}))
    )
    told = environment_of(pod)

    assert told == {
        "METRICS_ADDRESS": "0.0.0.0",
        "METRICS_PORT": "9464",
        "LEASE_NAME": "r-operator",
        "NAMESPACES": "team-a,team-b",
        "LOG_LEVEL": "debug",
        "LOG_FORMAT": "json",
        "SPRITES_URL": "https://sprites.example.com",
        "SPRITES_TOKEN_FILE": "/run/agentterminal/token",
        "OWN_TOKEN_NAMESPACES": "team-a,preview-*",
        "OWN_TOKEN_SPRITES": "bot-*",
        "WORKERS": "8",
        "HOLD_EXPIRE_SECONDS": "120",
    }
    secret = next(volume for volume in pod["volumes"] if volume["name"] == "own-token")["secret"]
    assert (secret["secretName"], secret["items"]) == ("sprites", [{"key": "api", "path": "token"}])


def test_the_gateways_environment_says_what_its_values_say(helm: Helm) -> None:
    _, (_, pod) = pods(helm.render(VALUES / "gateway-with-a-secret.yaml"))
    told = environment_of(pod)

    names = ["r-operator-gateway"]
    names += [f"r-operator-gateway.agents{end}" for end in ("", ".svc", ".svc.cluster.local")]
    assert told["GATEWAY_HOSTS"].split(",") == ["localhost", "127.0.0.1", *names, "terminals.example.com"]
    assert told["GATEWAY_ORIGINS"] == "https://console.example.com"
    assert told["GATEWAY_AUDIENCES"] == "terminals"
    assert told["GATEWAY_OWN_AUDIENCE_ONLY"] == "1"
    assert told["GATEWAY_TLS_CERT_FILE"] == "/run/tls/tls.crt"
    assert "GATEWAY_PLAIN_ANYWHERE" not in told
    tls = next(volume for volume in pod["volumes"] if volume["name"] == "tls")["secret"]
    assert tls["secretName"] == "gateway-certificate"


def test_a_gateway_behind_a_proxy_serves_plain_and_reads_no_authority_for_certificates(helm: Helm) -> None:
    documents = helm.render(VALUES / "gateway-behind-a-proxy.yaml")
    _, (_, pod) = pods(documents)

    assert environment_of(pod)["GATEWAY_PLAIN_ANYWHERE"] == "1"
    assert "GATEWAY_TLS_CERT_FILE" not in environment_of(pod)
    assert [d for d in documents if d["metadata"].get("namespace") == "kube-system"] == []


def test_a_certificate_is_for_the_service_and_for_every_host(helm: Helm) -> None:
    documents = helm.render(VALUES / "gateway-with-cert-manager.yaml", apis=KINDS)
    certificate = find(documents, "Certificate")["spec"]
    _, (_, pod) = pods(documents)

    assert certificate["issuerRef"] == {"name": "internal", "kind": "ClusterIssuer", "group": "cert-manager.io"}
    assert {"terminals.example.com", "r-operator-gateway.agents.svc"} <= set(certificate["dnsNames"])
    mounted = next(volume for volume in pod["volumes"] if volume["name"] == "tls")["secret"]
    assert mounted["secretName"] == certificate["secretName"] == "r-operator-gateway-tls"


def test_two_releases_in_two_namespaces_share_no_name_cluster_wide(helm: Helm) -> None:
    def names(namespace: str) -> set[tuple[str, str]]:
        documents = helm.render(
            VALUES / "extended.yaml", namespace=namespace, apis=KINDS, settings={"priorityClass.create": "true"}
        )
        return {(d["kind"], d["metadata"]["name"]) for d in documents if "namespace" not in d["metadata"]}

    shared = names("one") & names("two")
    assert shared == {("ConfigMap", "beside"), ("ConfigMap", "r-as-text")}, "They have no namespace of their own."


@pytest.mark.parametrize("release", ["a", "agentterminal-operator", "x" * 53])
def test_no_name_is_too_long(helm: Helm, release: str) -> None:
    for document in helm.render(VALUES / "hardened.yaml", release=release, namespace="n" * 63):
        longest = 253 if "Role" in document["kind"] or "Validating" in document["kind"] else 63
        assert len(document["metadata"]["name"]) <= longest, document["kind"]


def test_cluster_wide_names_that_are_too_long_still_differ(helm: Helm) -> None:
    names = {
        find(helm.render(VALUES / "hardened.yaml", release=release, namespace="n" * 60), "PriorityClass")["metadata"][
            "name"
        ]
        for release in ("one", "two")
    }

    assert len(names) == 2


# --- Rights -----------------------------------------------------------------------------------------------------------


def test_the_operators_rights_are_those_that_the_tests_run_it_with(helm: Helm) -> None:
    """tests/cluster/test_rights.py runs it with `build_rights`; here that is the chart, object by object."""
    secrets = {"team-a": ["one", "two"], "team-b": ["three"]}
    given = helm.render(
        release="agentterminal-operator",
        namespace="agentterminal",
        settings={
            **{f"secretAccess[{n}].namespace": namespace for n, namespace in enumerate(secrets)},
            **{f"secretAccess[{n}].names": f"{{{','.join(names)}}}" for n, names in enumerate(secrets.values())},
        },
    )
    component = "app.kubernetes.io/component"
    rendered = [
        (document["kind"], document["metadata"].get("namespace", ""), simplify(document))
        for document in given
        if "Role" in document["kind"] and document["metadata"]["labels"].get(component) == "operator"
    ]
    built = [
        (kind_of(path), path.split("/namespaces/")[1].split("/")[0] if "/namespaces/" in path else "", simplify(body))
        for path, body in build_rights(read_rules(RULES), secrets=secrets)
    ]

    def key(entry: Any) -> str:
        return yaml.safe_dump(entry)

    assert sorted(rendered, key=key) == sorted(built, key=key)


def kind_of(path: str) -> str:
    plural = path.rsplit("/", 1)[1]
    kinds = {"clusterroles": "ClusterRole", "clusterrolebindings": "ClusterRoleBinding"}
    return kinds.get(plural) or {"roles": "Role", "rolebindings": "RoleBinding"}[plural]


def simplify(document: Mapping[str, Any]) -> Any:
    """What a role permits, or to whom a binding gives what; names of cluster-wide roles differ."""
    if "rules" in document:
        return document["rules"]
    return [document["subjects"], document["roleRef"]["kind"]]


def test_the_gateway_reads_only_secrets_that_are_named_for_it(helm: Helm) -> None:
    documents = helm.render(VALUES / "gateway-with-a-secret.yaml")
    secrets = {
        d["metadata"]["name"]: d["rules"][0]["resourceNames"]
        for d in documents
        if d["kind"] == "Role" and d["rules"][0]["resources"] == ["secrets"]
    }

    assert secrets == {
        "r-operator-gateway-secrets": ["sprites-token"],
        "r-operator-secrets": ["sprites-token", "bot-keys"],
    }


def test_with_namespaces_the_rights_of_both_end_there(helm: Helm) -> None:
    documents = helm.render(VALUES / "two-teams.yaml", settings=GATEWAY)
    everywhere = {d["roleRef"]["name"] for d in documents if d["kind"] == "ClusterRoleBinding"}
    somewhere = {
        (d["metadata"]["namespace"], d["roleRef"]["name"])
        for d in documents
        if d["kind"] == "RoleBinding" and d["roleRef"]["kind"] == "ClusterRole"
    }

    ending = "agents:r-operator:ending"
    assert everywhere == {"agents:r-operator:crd", "agents:r-operator-gateway:reviews", ending}
    # With it a namespace that is deleted comes to its end; the admission policy keeps it to these namespaces.
    assert {(rule["resources"][0], *rule["verbs"]) for rule in find(documents, "ClusterRole", ending)["rules"]} == {
        ("agentterminals", "patch"),
        ("agentterminals/status", "patch"),
    }
    policy = find(documents, "ValidatingAdmissionPolicy", "agents-r-operator-namespaces")
    assert policy["spec"]["validations"][0]["expression"] == 'request.namespace in ["team-a","team-b"]'
    roles = ("agents:r-operator", "agents:r-operator-gateway")
    assert somewhere == {(namespace, role) for namespace in ("team-a", "team-b") for role in roles}


# --- Refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"replicas": "-1"}, "at '/replicas': minimum: got -1, want 0"),
        ({"replicas": "many"}, "at '/replicas': got string, want integer"),
        ({"unknown": "1"}, "at '': additional properties 'unknown' not allowed"),
        ({"gateway.tls.unknown": "1"}, "at '/gateway/tls': additional properties 'unknown' not allowed"),
        ({"image.digest": "sha256:abc"}, "at '/image/digest': 'sha256:abc' does not match pattern"),
        ({"image.tag": "a b"}, "at '/image/tag': 'a b' does not match pattern"),
        ({"namespaces": "{Team}"}, "at '/namespaces/0': 'Team' does not match pattern"),
        ({"log.level": "loud"}, "at '/log/level': value must be one of"),
        ({"settings.WORKER": "8"}, "at '/settings': additional properties 'WORKER' not allowed"),
        ({"settings.WORKERS": "8"}, "at '/settings/WORKERS': got number, want string"),
        ({"ownToken.secretName": "sprites"}, "at '/ownToken/namespaces': minItems: got 0, want 1"),
        ({"ownToken.namespaces": "{a}"}, "at '/ownToken/namespaces': maxItems: got 1, want 0"),
        ({"secretAccess[0].namespace": "a"}, "at '/secretAccess/0': missing property 'names'"),
        ({"secretAccess[0].namespace": "a", "secretAccess[0].names": "{}"}, "at '/secretAccess/0/names/0': minLength"),
        ({"spritesUrl": "ftp://x"}, "at '/spritesUrl': 'ftp://x' does not match pattern"),
        ({"gateway.service.type": "Ingress"}, "at '/gateway/service/type': value must be one of"),
        ({"gateway.origins": "{console.example.com}"}, "at '/gateway/origins/0'"),
        ({"gateway.tls.certManager.enabled": "true"}, "at '/gateway/tls/certManager/issuerRef/name': minLength"),
        ({"networkPolicy.egressPorts": "{70000}"}, "at '/networkPolicy/egressPorts/0': maximum: got 70,000"),
        ({"podDisruptionBudget.maxUnavailable": "half"}, "at '/podDisruptionBudget/maxUnavailable'"),
        ({"resources.request.cpu": "1"}, "at '/resources': additional properties 'request' not allowed"),
        ({"monitoring.prometheusRule.runbookUrl": "docs/runbooks"}, "at '/monitoring/prometheusRule/runbookUrl'"),
        ({"monitoring.prometheusRule.runbookUrl": "https://a/?page=1"}, "at '/monitoring/prometheusRule/runbookUrl'"),
    ],
    ids=str,
)
def test_a_wrong_value_is_refused_with_its_place(helm: Helm, settings: dict[str, str], sentence: str) -> None:
    assert sentence in helm.refuse(settings)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"gateway.enabled": "true"}, "The gateway needs exactly one of gateway.tls.secretName"),
        ({**GATEWAY, "gateway.tls.secretName": "one"}, "The gateway needs exactly one of gateway.tls.secretName"),
        ({"serviceAccount.create": "false"}, "serviceAccount.name must name an existing ServiceAccount"),
        ({**GATEWAY, "gateway.serviceAccount.create": "false"}, "gateway.serviceAccount.name must name an existing"),
        (
            {"monitoring.serviceMonitor.enabled": "true"},
            "needs the kind monitoring.coreos.com/v1/ServiceMonitor, which this cluster does not have. Install the",
        ),
        ({"monitoring.podMonitor.enabled": "true"}, "needs the kind monitoring.coreos.com/v1/PodMonitor"),
        ({"monitoring.prometheusRule.enabled": "true"}, "needs the kind monitoring.coreos.com/v1/PrometheusRule"),
        (
            {
                "gateway.enabled": "true",
                "gateway.tls.certManager.enabled": "true",
                "gateway.tls.certManager.issuerRef.name": "x",
            },
            "gateway.tls.certManager.enabled needs the kind cert-manager.io/v1/Certificate, which this cluster does",
        ),
    ],
    ids=str,
)
def test_what_cannot_work_is_refused_with_a_sentence(helm: Helm, settings: dict[str, str], sentence: str) -> None:
    assert sentence in helm.refuse(settings)


def test_scraping_everything_twice_is_refused(helm: Helm) -> None:
    both = {"monitoring.serviceMonitor.enabled": "true", "monitoring.podMonitor.enabled": "true"}

    assert "would scrape every pod twice; turn on one of them." in helm.refuse(both, apis=KINDS)


# --- Alerts and dashboard ---------------------------------------------------------------------------------------------

ALERTS = """groups:
  - name: agentterminal
    rules:
      - alert: Something
        expr: up == 0
        annotations:
          summary: "{{ $labels.pod }} is gone."
"""
DASHBOARD = '{"title": "Terminals of {{pod}}"}\n'


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """A copy of the chart, whose files may be changed."""
    return Path(shutil.copytree(CHART, tmp_path / "agentterminal-operator"))


def test_alerts_and_dashboard_are_taken_as_they_are_templates_of_their_own_included(helm: Helm, chart: Path) -> None:
    (chart / "files/alerts.yaml").write_text(ALERTS)
    (chart / "files/dashboard.json").write_text(DASHBOARD)
    switches = {
        "monitoring.prometheusRule.enabled": "true",
        "monitoring.prometheusRule.labels.role": "alerts",
        "monitoring.dashboard.enabled": "true",
    }
    documents = helm.render(chart=chart, apis=KINDS, settings=switches)

    rule = find(documents, "PrometheusRule")
    assert rule["spec"] == yaml.safe_load(ALERTS)
    assert rule["metadata"]["labels"]["role"] == "alerts"
    board = find(documents, "ConfigMap")
    assert board["data"]["agentterminal.json"] == DASHBOARD
    assert board["metadata"]["labels"]["grafana_dashboard"] == "1"


@pytest.mark.parametrize("folder", ["https://docs.example.com/runbooks", "https://docs.example.com/runbooks/"])
def test_every_alert_points_to_its_page_where_a_company_keeps_its_runbooks(helm: Helm, folder: str) -> None:
    switches = {"monitoring.prometheusRule.enabled": "true", "monitoring.prometheusRule.runbookUrl": folder}

    told = find(helm.render(apis=KINDS, settings=switches), "PrometheusRule")["spec"]

    pages = {page.name for page in (CHART.parents[1] / "docs/runbooks").glob("*.md")} - {"README.md"}
    rules = [rule for group in told["groups"] for rule in group["rules"]]
    assert {rule["annotations"].pop("runbook_url") for rule in rules} == {
        f"https://docs.example.com/runbooks/{page}" for page in pages
    }
    assert told == yaml.safe_load((CHART / "files/alerts.yaml").read_text()), "Nothing else is changed."


@pytest.mark.parametrize(
    ("switch", "file"), [("prometheusRule", "files/alerts.yaml"), ("dashboard", "files/dashboard.json")]
)
def test_a_chart_that_lacks_them_says_so(helm: Helm, chart: Path, switch: str, file: str) -> None:
    (chart / file).unlink(missing_ok=True)

    told = helm.refuse({f"monitoring.{switch}.enabled": "true"}, chart=chart, apis=KINDS)

    assert f"monitoring.{switch}.enabled: this version of the chart brings no" in told
    assert file in told
