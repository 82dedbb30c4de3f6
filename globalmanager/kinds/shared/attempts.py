"""How often a pod of a training job has been created again, and the label of its operator."""

from typing import Final

from edgeai.api.resources import Object

LABEL_PREFIX: Final = "training.kubeflow.org/"
OPERATOR_NAME: Final = f"{LABEL_PREFIX}operator-name"
ATTEMPT: Final = "edgeai.io/attempt"
"""Annotation of a pod: how many pods of this replica the job made before this pod."""
MAX_RESTARTS: Final = 10**6
"""A larger count in a status is ignored. The attempt of a pod is the sum of two such counts: the
restarts of the replica and those of the whole job."""


def attempt_of(pod: Object) -> int:
    """The attempt of a pod; 0 when somebody has removed the annotation or made it too large."""
    text = str((pod["metadata"].get("annotations") or {}).get(ATTEMPT, ""))
    # Anybody may have written this, and int() raises for thousands of digits: a plan is total.
    number = int(text) if text.isdecimal() and len(text) < 10 else 0
    return number if number <= 2 * MAX_RESTARTS else 0
