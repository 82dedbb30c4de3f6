"""The LocalController: one process on each edge node.

It keeps the tasks of its node in a ledger, receives the messages of their workers, watches the
workers, and reports through one WebSocket. Only the hooks in `hooks/` know a kind of job.
"""
