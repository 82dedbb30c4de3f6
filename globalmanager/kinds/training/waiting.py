"""Failed pods of an elastic job whose replicas wait for room again, so they are no failures."""

from edgeai.api import pod_state
from edgeai.api.resources import Object
from edgeai.api.status import mapping
from globalmanager.contract import Observed
from globalmanager.kinds.shared import status
from globalmanager.kinds.training.framework import KubeflowJob


def has_lost_room(observed: Observed, spec: KubeflowJob, type_: str, pod: Object) -> bool:
    """Whether the failed pod of an elastic job was evicted or preempted, or its node was lost. The
    replica starts again under its index when there is room, also if the job is not elastic now.
    """
    if spec.elastic is not None:
        is_elastic = spec.elastic.type == type_
    else:
        # Else an edit that takes the annotation away would turn an eviction into a failure. A job
        # that never was elastic has only the reason NotElastic in this field.
        was_elastic = "ready" in mapping(status.status_of(observed).get("elastic"))
        is_elastic = was_elastic and type_ not in spec.framework.leaders
    return is_elastic and pod_state.is_disrupted(pod)
