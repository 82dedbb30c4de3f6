"""Speaks to the LocalControllers."""
