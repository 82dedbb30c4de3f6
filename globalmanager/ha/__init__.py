"""Several GlobalManagers at the same time: which leads, which are alive, and which serves a
node.
"""
