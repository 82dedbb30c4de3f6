"""The product on a Kubernetes with real nodes and containers; `make e2e` runs them, as root."""
