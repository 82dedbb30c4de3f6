"""The Kubernetes client: transport, requests, errors, rate."""
