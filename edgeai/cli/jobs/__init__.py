"""The commands about jobs, over any kubeconfig: `edgeai describe`, `logs` and `submit`."""
