"""The `edgeai` command, the Python client, and small modules that every other package may import.

This module imports nothing: every node loads it.
"""
