"""The Kubernetes client: transport, requests, errors, rate. No other code calls the API."""
