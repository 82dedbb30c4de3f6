"""Runs pods as processes of this machine: volumes, containers, probes, logs, status."""
