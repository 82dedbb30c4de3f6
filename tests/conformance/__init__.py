"""What a cluster promises its users, asserted of the local one and of a genuine Kubernetes alike.

The real one is right: where the local cluster fails a test of this folder, it is wrong.
"""
