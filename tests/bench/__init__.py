"""Measurements; none of them is a test. Run by `make bench`."""
