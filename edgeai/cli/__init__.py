"""The `edgeai` command."""
