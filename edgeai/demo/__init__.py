"""The demos, one module for each demo. A demo starts a cluster and ends with a result table."""
