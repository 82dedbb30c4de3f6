"""The LocalController: one process on each edge node.

It keeps the tasks of its node in a ledger, receives the messages of their workers, watches the
workers, and reports to the GlobalManager through one WebSocket. It knows no kinds of jobs, except
the hooks in `hooks/`.
"""
