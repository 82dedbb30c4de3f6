"""Runs every kind. Informers observe, a queue orders the keys, and the loop plans and applies."""
