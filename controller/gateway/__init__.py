"""The gateway: sockets to terminals by Kubernetes identity, and the fence that lets only one of them speak."""
