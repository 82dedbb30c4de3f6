"""Several GlobalManagers at once: who leads, who lives, who serves which node."""
