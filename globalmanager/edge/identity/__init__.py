"""Tells which node a connection is from, by its credential alone."""
