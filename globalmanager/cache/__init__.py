"""What the Kubernetes API holds, kept in memory: informers, stores, indices."""
