"""The door to kopf: the event pump, and nothing else."""
