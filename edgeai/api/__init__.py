"""The types of what the Kubernetes API holds: msgspec only, no I/O."""
