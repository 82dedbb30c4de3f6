"""Example of federated learning: three edge nodes learn one model of handwritten digits together.

Each image stays on its node.
"""
