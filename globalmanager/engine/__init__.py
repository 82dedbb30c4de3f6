"""Runs every kind: informers observe, a keyed queue orders, the loop plans and applies."""
