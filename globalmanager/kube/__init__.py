"""The Kubernetes client: transport, requests, errors, rate. No other code speaks to the API."""
