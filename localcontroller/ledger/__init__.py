"""The ledger: tasks, workers and unsent reports of this node, durable in SQLite."""
