"""Tests of `edgeai credentials`."""
