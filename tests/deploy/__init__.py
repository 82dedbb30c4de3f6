"""deploy/ against the code that it deploys, without a cluster."""
