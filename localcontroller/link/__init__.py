"""The connection to the cloud: dials the GlobalManager, authenticates this node, moves frames."""
