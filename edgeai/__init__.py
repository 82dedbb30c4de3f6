"""The package of users: client, worker SDK, Kubernetes client, local cluster and the command.

Any package may import the small modules at the top. This one imports nothing: every node loads it.
"""
