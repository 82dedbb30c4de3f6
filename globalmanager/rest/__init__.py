"""Read-only REST status API, health and metrics."""
