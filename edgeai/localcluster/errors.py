"""The errors that this package raises on purpose. The text of each error is for the user.

ClusterError
├── StateError      the cluster cannot use the state directory; only at start
└── APIError        an error of the API, in `objects.errors`
"""


class ClusterError(Exception):
    """Root of the errors that this package raises on purpose."""


class StateError(ClusterError):
    """The state directory is read-only, full or corrupt, or another cluster uses it."""
