"""Releases of the chart on a real API server with controllers and two nodes."""
