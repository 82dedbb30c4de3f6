"""Serves the LocalControllers: admits them, sends them assignments, and takes in their reports."""
