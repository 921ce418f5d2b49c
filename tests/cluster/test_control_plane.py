"""The lab's control plane is the real thing, and its rights are real."""

from tests.cluster.plane import Cluster


def test_our_kind_is_served(cluster: Cluster) -> None:
    status, answer = cluster.request("GET", "/apis/agentterminal.dev/v1alpha1/agentterminals")
    assert (status, answer["kind"]) == (200, "AgentTerminalList")


async def test_a_service_account_has_no_rights_of_its_own(cluster: Cluster, namespace: str) -> None:
    kubeconfig = cluster.service_account_kubeconfig(namespace, "nobody")
    assert cluster.kubectl("auth", "can-i", "list", "secrets", check=False, kubeconfig=kubeconfig).stdout == "no\n"
