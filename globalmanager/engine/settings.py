"""The settings of the engine, which the settings of the GlobalManager contain."""

import msgspec

from globalmanager.cache.informer import InformerSettings
from globalmanager.engine.pod_security import Level


class EngineSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of the engine."""

    namespace: str = ""
    """The engine watches only this namespace; "" means all namespaces."""
    groups: tuple[str, ...] | None = None
    """API groups to serve; None means all groups of the kinds."""
    reconcilers: int = 16
    """Number of resources that are reconciled at the same time. Each of them has at most one stage
    of actions under way."""
    pod_security_default: Level = Level.PRIVILEGED
    """The Pod Security Standard of namespaces that name none by their label."""
    rest_s: float = 0.2
    """Shortest pause between two plans of one resource, in seconds. The writes of a plan, the
    reactions of controllers and the reports of an edge change a resource many times within a short
    time."""
    counts_s: float = 10.0
    """Longest time in seconds until a job is planned of which reports changed only counts, where
    the kind says that its plan does not need these at once. Such a plan corrects what somebody else
    may have written."""
    stale_after_s: float = 60.0
    """Seconds without contact after which an informer makes the process not ready."""
    informer: InformerSettings = InformerSettings()
