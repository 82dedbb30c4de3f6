"""Tests on a genuine Kubernetes control plane; `pytest tests/cluster` runs them."""
