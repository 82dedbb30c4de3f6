"""Several GlobalManagers: which leads, which are alive, and which serves a node."""
