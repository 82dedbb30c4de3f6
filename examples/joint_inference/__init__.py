"""Handwritten digits: a small model on the edge, a big one in the cloud, real figures."""
