"""The relay: byte streams between workers of an edge node and Services of the cluster.

A worker connects to the proxy of its LocalController (localcontroller/workers/proxy.py). The
LocalController carries each connection as one stream over a WebSocket of its own, beside the
session. The GlobalManager dials the Service (globalmanager/edge/sessions/relay.py). `frames` is the
protocol, `session` the Sans-I/O end of it, and `carrier` joins a session to sockets.
"""
