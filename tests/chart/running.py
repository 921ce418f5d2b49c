"""
The processes of an installation, as a kubelet would start them.

What a Deployment stores is taken from it: the environment, and the files of a mounted Secret; the login is a token of
its service account. Two things are the test's own: where a process listens, since a machine is shared, and the
namespace of its Lease, which a pod would be told by a file.
"""

import base64
from pathlib import Path
from typing import Any, Final

from tests.chart.installing import RELEASE
from tests.chart.site import Site
from tests.support.gateway import GatewayProcess
from tests.support.operator import OperatorProcess

HERE: Final = {"ADDRESS", "PORT"}
"""What a test that shares a machine chooses itself."""
TLS_FOLDER: Final = "/run/tls"
TLS_FILES: Final = ("tls.crt", "tls.key")


def read_environment(site: Site, namespace: str, name: str) -> dict[str, str]:
    """The settings that a Deployment gives its process, but for where it listens."""
    (container,) = _read_pod(site, namespace, name)["containers"]
    variables = {entry["name"].removeprefix("AGENTTERMINAL_"): entry["value"] for entry in container["env"]}
    return {name: value for name, value in variables.items() if name.rsplit("_", 1)[-1] not in HERE}


def start_operator(site: Site, namespace: str, sprites_url: str, **settings: str) -> OperatorProcess:
    """Start an operator of the release in a namespace."""
    login = site.service_account_kubeconfig(namespace, _read_pod(site, namespace, RELEASE)["serviceAccountName"])
    told = {"ELECTION": "1", "LEASE_NAMESPACE": namespace, **read_environment(site, namespace, RELEASE)}
    return OperatorProcess(login, sprites_url, told.pop("NAMESPACES", ""), **{**told, **settings})


def start_gateway(site: Site, namespace: str, sprites_url: str, *, mounts: Path, **settings: str) -> GatewayProcess:
    """Start a gateway of the release in a namespace; the Secret with its certificate is mounted below a folder."""
    name = f"{RELEASE}-gateway"
    pod = _read_pod(site, namespace, name)
    told = {"LEASE_NAMESPACE": namespace, **read_environment(site, namespace, name)}
    for volume in pod["volumes"]:
        if volume["name"] == "tls":
            _mount(site, namespace, volume["secret"]["secretName"], mounts)
            told = {key: value.replace(TLS_FOLDER, str(mounts)) for key, value in told.items()}
    return GatewayProcess(
        site.service_account_kubeconfig(namespace, pod["serviceAccountName"]), sprites_url, **{**told, **settings}
    )


def _read_pod(site: Site, namespace: str, name: str) -> Any:
    status, deployment = site.request("GET", f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}")
    assert status == 200, deployment
    return deployment["spec"]["template"]["spec"]


def _mount(site: Site, namespace: str, secret: str, folder: Path) -> None:
    status, answer = site.request("GET", f"/api/v1/namespaces/{namespace}/secrets/{secret}")
    assert status == 200, answer
    for name in TLS_FILES:
        (folder / name).write_bytes(base64.b64decode(answer["data"][name]))
