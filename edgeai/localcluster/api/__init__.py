"""The Kubernetes API over HTTP: requests, verbs, watches, discovery, tables."""
