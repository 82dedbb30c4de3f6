"""Tests of the `edgeai` command."""
