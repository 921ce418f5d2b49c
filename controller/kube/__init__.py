"""The client of the Kubernetes API. It does not know why it is called."""
