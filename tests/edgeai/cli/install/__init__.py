"""Tests of edgeai/cli/install."""
