"""Whether a PyTorchJob runs with fewer workers while the cluster is full, by an annotation.

The annotation `edgeai.io/elastic: "true"` is no field of the spec, because the Kubeflow operator
takes the same manifest. Only torchrun with a rendezvous goes on with fewer or more workers.
"""

from collections.abc import Iterator
from typing import Final

from edgeai.api.pytorchjob import WORKER
from edgeai.api.resources import Object
from edgeai.api.status import mapping
from globalmanager.contract import Event, Observed, Severity
from globalmanager.kinds.training import gangs
from globalmanager.kinds.training.framework import Elastic, KubeflowJob
from globalmanager.kinds.training.pytorchjob.autoscaling import bounds
from globalmanager.kinds.training.snapshot import NOT_ELASTIC

ANNOTATION: Final = "edgeai.io/elastic"
"""Annotation of a job."""


def elastic_of(object_: Object, spec: KubeflowJob) -> Elastic | None:
    """How many workers the job needs; None for a job that needs all."""
    worker = spec.of_type(WORKER)
    if not _is_wanted(object_) or spec.spec.elastic_policy is None or worker is None:
        return None
    low, _ = bounds(spec)
    # `kubectl scale` may ask for fewer workers than minReplicas, and nobody trains with none.
    return Elastic(WORKER, max(min(low, worker.count), 1))


def fault(object_: Object, spec: KubeflowJob) -> str:
    """Why a job with the annotation is not elastic; "" when it is, or has no annotation."""
    if not _is_wanted(object_) or elastic_of(object_, spec) is not None:
        return ""
    return (
        f"the annotation {ANNOTATION} has no effect, because spec.elasticPolicy is missing: all "
        "workers must run"
    )


def _is_wanted(object_: Object) -> bool:
    marks = mapping(object_["metadata"].get("annotations"))
    return str(marks.get(ANNOTATION, "")).lower() == "true"


def warnings(observed: Observed) -> Iterator[Event]:
    """A warning when the annotation has not the whole effect."""
    spec: KubeflowJob = observed.spec
    policy = spec.policy.scheduling_policy
    together = policy.min_available if policy is not None else None
    # Without a gang scheduler, minAvailable has no effect, so nothing surprises the user.
    if spec.elastic is None or together is None or gangs.gang_of(observed.settings) is None:
        return
    if together > spec.least:
        message = (
            f"spec.runPolicy.schedulingPolicy.minAvailable: is {together}, so the job does not "
            f"start with fewer pods; remove it, and the job starts with {spec.least}"
        )
        yield Event(Severity.WARNING, NOT_ELASTIC, message)
