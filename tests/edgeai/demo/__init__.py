"""Tests of the demos and of the programs that they run."""
