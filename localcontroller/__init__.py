"""The LocalController: one process on each edge node.

It holds the node's tasks durably, hears and watches their workers, and keeps the GlobalManager
informed through one WebSocket. It is blind to kinds: what a task is about never matters here.
"""
