"""What this package raises on purpose.

ClusterError        this and its subclasses tell the user what is wrong
├── StateError      the state directory cannot be used; only at start
└── APIError        a refusal of the API, in `objects.errors`
"""


class ClusterError(Exception):
    """Root of what this package raises on purpose."""


class StateError(ClusterError):
    """The state directory is unusable: read-only, full, corrupt, or held by another cluster."""
