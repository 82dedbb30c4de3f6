"""Finds the node that a connection comes from, by its credential alone."""
