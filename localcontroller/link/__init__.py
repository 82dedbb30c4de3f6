"""The way to the cloud: dials the GlobalManager, proves who this node is, moves frames."""
