"""The objects of the cluster: their resources, defaults, checks and patches, and the store."""
