"""What users, scripts and dashboards of Sedna read of jobs in group sedna.io.

In every other group the functions change nothing. Source: Sedna v0.7,
globalmanager/runtime/worker.go (labels), controllers/jointinference (metrics, condition Failed),
controllers/federatedlearning (phases).
"""

import json
from collections.abc import Mapping
from typing import Final

from edgeai.api.status import Finding, Truth
from globalmanager.contract import Observed

GROUP: Final = "sedna.io"
FAILED: Final = "Failed"
_PHASES: Final = {"Training": "Running", "Invalid": FAILED}
"""A phase of edgeai -> the phase that Sedna's users know. Both groups share the other phases."""


def labels(observed: Observed, role: str) -> dict[str, str]:
    """Labels of children and pods, in addition to edgeai's labels."""
    if observed.type.group != GROUP:
        return {}
    prefix = f"{observed.type.kind.lower()}.{GROUP}"
    return {
        f"{prefix}/name": observed.ref.name,
        f"{prefix}/uid": observed.uid,
        f"{prefix}/worker-type": role,
    }


def phase(observed: Observed, name: str) -> str:
    """The phase as users of the job's group know it."""
    return _PHASES.get(name, name) if observed.type.group == GROUP else name


def failed(observed: Observed, phase: str, because: Finding) -> tuple[Finding, ...]:
    """The condition Failed of a service with this phase. Args: because: the one that says why"""
    if observed.type.group != GROUP or phase != FAILED:
        return ()
    return (Finding(FAILED, Truth.TRUE, because.reason, because.message),)


def metrics(group: str, counts: Mapping[str, int]) -> dict[str, str]:
    """Sedna's metrics of joint inference. uploadCloudRatio has all digits, as Sedna writes it.

    Args: counts: seen, hard and uploaded, as far as a worker has told them
    """
    if group != GROUP:
        return {}
    values = {}
    if {"seen", "uploaded"} <= counts.keys():
        ratio = counts["uploaded"] / counts["seen"] if counts["seen"] else 0.0
        # Sedna stringifies the number as Go's JSON has it, where a whole number has no fraction.
        values["uploadCloudRatio"] = json.dumps(ratio).removesuffix(".0")
    # A number that no worker has told is left out: a 0 would be read as a fact.
    names = {"seen": "inferenceNumber", "hard": "hardExampleNumber"}
    return values | {names[name]: str(counts[name]) for name in names if name in counts}
