"""The errors that this package raises on purpose. Their text is for the user.

ClusterError
├── StateError      the state directory cannot be used; only at start
└── APIError        an error of the API, in `objects.errors`
"""


class ClusterError(Exception):
    """Root of the errors that this package raises on purpose."""


class StateError(ClusterError):
    """The state directory is unusable: read-only, full, corrupt, or held by another cluster."""
