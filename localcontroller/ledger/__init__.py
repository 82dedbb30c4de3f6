"""What this node holds and owes, durably: SQLite, and the rules by which its rows change."""
