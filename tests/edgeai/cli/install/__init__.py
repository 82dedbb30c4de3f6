"""Tests of edgeai/install."""
