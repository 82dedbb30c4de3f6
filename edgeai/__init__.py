"""The `edgeai` command: a local cluster to try things on, its status, and the demos."""
