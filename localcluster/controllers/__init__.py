"""Loops that make and remove objects: Deployments, the scheduler, garbage collection."""
