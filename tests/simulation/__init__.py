"""The shipped code of cloud and edge in one deterministic run: see docs/simulation.md."""
