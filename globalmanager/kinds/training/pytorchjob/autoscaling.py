"""The HorizontalPodAutoscaler of an elastic PyTorchJob. It changes the number of workers.

The autoscaler has the name of its job and writes the job's scale subresource. Source:
kubeflow/training-operator 1.9, pkg/controller.v1/pytorch/hpa.go.
"""

from edgeai.api.pytorchjob import WORKER
from edgeai.api.resources import AUTOSCALERS
from globalmanager.contract import Create, Event, Observed, Severity
from globalmanager.kinds.shared import objects
from globalmanager.kinds.training.framework import KubeflowJob

_ROLE = "autoscaler"


def companions(observed: Observed) -> list[Create]:
    """The autoscaler, when the job names metrics and the API server knows such autoscalers."""
    spec: KubeflowJob = observed.spec
    # The job trains without an autoscaler, too. An event tells what is missing.
    if not _is_wanted(spec) or AUTOSCALERS in observed.absent:
        return []
    low, high = bounds(spec)
    target = {
        "apiVersion": observed.type.api_version,
        "kind": observed.type.kind,
        "name": observed.ref.name,
    }
    content = {
        "scaleTargetRef": target,
        "minReplicas": low,
        "maxReplicas": high,
        "metrics": spec.spec.elastic_policy.metrics,
    }
    name = observed.ref.name
    return [objects.child(observed, AUTOSCALERS, name=name, role=_ROLE, content={"spec": content})]


def warnings(observed: Observed) -> tuple[Event, ...]:
    """A warning when the job wants an autoscaler that the API server does not know."""
    if not _is_wanted(observed.spec) or AUTOSCALERS not in observed.absent:
        return ()
    message = (
        f"spec.elasticPolicy.metrics: the API server does not serve {AUTOSCALERS.api_version}, so "
        "nothing scales the workers; use Kubernetes 1.23 or newer, or scale them with kubectl"
    )
    return (Event(Severity.WARNING, "AutoscalerNotServed", message),)


def _is_wanted(spec: KubeflowJob) -> bool:
    elastic = spec.spec.elastic_policy
    return elastic is not None and bool(elastic.metrics)


def bounds(spec: KubeflowJob) -> tuple[int, int]:
    """The least and the largest number of workers of an elastic job. Where an edit has made the
    limits wrong, the largest number counts: neither torchrun nor an autoscaler takes such limits.
    """
    elastic, worker = spec.spec.elastic_policy, spec.of_type(WORKER)
    count = worker.count if worker is not None else 1
    low, high = elastic.min_replicas, elastic.max_replicas
    # As upstream, the two limits fill each other, and Worker.replicas stands in for both.
    if low is None:
        low = high if high is not None else count
    high = low if high is None else high
    return min(low, high), high
