"""The sessions with the nodes: what goes down, what comes up."""
