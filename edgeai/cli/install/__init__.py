"""`edgeai install` and its sisters: what the cluster part of edgeai needs, rendered from deploy/
and applied over the Kubernetes API.

    values -> render -> apply, certificates -> record -> upgrade, rollback, uninstall
"""
