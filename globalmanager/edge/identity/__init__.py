"""Finds the node of a connection by the credential alone."""
