"""Stand-ins for the outside world: a Sprites emulator and a real Kubernetes control plane."""
