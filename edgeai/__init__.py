"""The `edgeai` command: runs a local cluster, shows its status, and runs the demos."""
