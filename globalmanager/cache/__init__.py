"""A copy in memory of objects that the Kubernetes API holds: informers, stores, indices."""
