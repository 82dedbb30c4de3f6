"""Addresses of pods and Services on loopback, and the proxy of the Services."""
