"""The sessions with the nodes: assignments go down, reports come up."""
