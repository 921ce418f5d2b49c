"""How a command logs in to the Kubernetes API where its options do not say it all."""

from controller.kube.settings import InCluster, Kubeconfig
from controller.settings import environment


def choose_login(kubeconfig: str | None, context: str | None) -> InCluster | Kubeconfig:
    """Choose how to log in: what was named, else $KUBECONFIG, else the pod's service account, else the usual file."""
    environ = environment()
    named = kubeconfig or environ.get("KUBECONFIG")
    if named:
        return Kubeconfig(paths=named, context=context)
    host, port = environ.get("KUBERNETES_SERVICE_HOST"), environ.get("KUBERNETES_SERVICE_PORT")
    if host and port and context is None:
        return InCluster(host, port)
    return Kubeconfig(context=context)
