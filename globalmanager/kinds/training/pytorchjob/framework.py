"""The conventions of PyTorchJob kubeflow.org/v1: names, ports, success, and the environment.

Source: kubeflow/training-operator 1.9, pkg/controller.v1/pytorch.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from edgeai.api import pod_state
from edgeai.api.pytorchjob import MASTER, WORKER
from edgeai.api.resources import PODS, Object, ObjectRef
from edgeai.api.training import CleanPods, RestartPolicy
from globalmanager.contract import Event, Observed, Severity
from globalmanager.kinds.shared.pods import literal
from globalmanager.kinds.training.framework import Counts, EnvVar, Framework, KubeflowJob
from globalmanager.kinds.training.pytorchjob import autoscaling, elasticity, master_wait
from globalmanager.kinds.training.pytorchjob.autoscaling import bounds
from globalmanager.kinds.training.replicas import name_of, names, port_of


def environment(observed: Observed, type_: str, index: int) -> list[EnvVar]:
    """The variables that torch.distributed and torchrun read."""
    spec: KubeflowJob = observed.spec
    return [
        # As upstream, so the log of a process has each line at once.
        literal("PYTHONUNBUFFERED", "1"),
        *_of_master(observed, spec, type_, index),
        *_of_torchrun(observed, spec),
    ]


def _of_master(observed: Observed, spec: KubeflowJob, type_: str, index: int) -> list[EnvVar]:
    master = spec.of_type(MASTER)
    if master is None:
        return []
    # As upstream without namespace and domain: the pods of a job share one namespace.
    address = name_of(observed.ref.name, MASTER, 0)
    port = str(port_of(spec.framework, master))
    # The process at MASTER_ADDR must have rank 0, so the workers follow the master.
    rank = str(index if type_ == MASTER else index + 1)
    return [
        # torch.distributed reads the variables without a prefix, torchrun those with PET_.
        literal("MASTER_PORT", port),
        literal("PET_MASTER_PORT", port),
        literal("MASTER_ADDR", address),
        literal("PET_MASTER_ADDR", address),
        literal("WORLD_SIZE", str(spec.total * _processes(spec))),
        literal("RANK", rank),
        literal("PET_NODE_RANK", rank),
    ]


def _processes(spec: KubeflowJob) -> int:
    """Processes in each pod, as WORLD_SIZE counts them: 1 for auto, cpu and gpu."""
    text = spec.spec.nproc_per_node
    elastic = spec.spec.elastic_policy
    # Only the node knows the number behind auto, cpu and gpu. Upstream counts 1 for them, too.
    if text is not None and text.isdecimal():
        return int(text)
    return int(elastic.n_proc_per_node or 1) if elastic is not None else 1


def _of_torchrun(observed: Observed, spec: KubeflowJob) -> list[EnvVar]:
    elastic = spec.spec.elastic_policy
    per_node = literal("PET_NPROC_PER_NODE", spec.spec.nproc_per_node or "auto")
    if elastic is None:
        return [per_node, literal("PET_NNODES", str(spec.total))]
    worker = spec.of_type(WORKER)
    assert worker is not None  # `read` has checked that an elastic job has workers
    low, high = bounds(spec)
    # As upstream, worker 0 hosts the rendezvous unless the user names another host.
    host = elastic.rdzv_host or name_of(observed.ref.name, WORKER, 0)
    port = elastic.rdzv_port or port_of(spec.framework, worker)
    conf = ",".join(f"{one.key}={one.value}" for one in elastic.rdzv_conf)
    optional = {
        "PET_MAX_RESTARTS": elastic.max_restarts,
        "PET_RDZV_ID": elastic.rdzv_id,
        "PET_RDZV_CONF": conf or None,
        "PET_STANDALONE": "" if elastic.standalone else None,
    }
    if elastic.n_proc_per_node is not None:
        per_node = literal("PET_NPROC_PER_NODE", str(elastic.n_proc_per_node))
    return [
        per_node,
        literal("PET_RDZV_ENDPOINT", f"{host}:{port}"),
        # c10d needs no service beside the job.
        literal("PET_RDZV_BACKEND", str(elastic.rdzv_backend or "c10d")),
        literal("PET_NNODES", f"{low}:{high}"),
        *(literal(name, str(value)) for name, value in optional.items() if value is not None),
    ]


def _world_warnings(observed: Observed) -> Iterator[Event]:
    """A warning after an edit of the number of replicas. A pod keeps the number with which it
    started, as with the Kubeflow operator. The agents of an elastic job find each other again.
    """
    spec: KubeflowJob = observed.spec
    # The agents of torchrun agree on another number by themselves.
    if spec.spec.elastic_policy is not None:
        return
    world = {"PET_NNODES": str(spec.total), "WORLD_SIZE": str(spec.total * _processes(spec))}
    pods = [
        observed.children.get(ObjectRef(PODS, observed.ref.namespace, name))
        for name, _, _ in names(observed.ref.name, spec)
    ]
    others = [pod for pod in pods if pod is not None and pod_state.is_active(pod)]
    number = sum(_has_other_world(pod, world) for pod in others)
    if number:
        message = (
            f"the job has {spec.total} replicas, but {number} pods started with another number in "
            "WORLD_SIZE or PET_NNODES and keep it: suspend the job (spec.runPolicy.suspend) and "
            "resume it to start all pods with the same number"
        )
        yield Event(Severity.WARNING, "WorldSizeChanged", message)


def _has_other_world(pod: Object, world: Mapping[str, str]) -> bool:
    containers = pod["spec"].get("containers") or []
    variables = [variable for one in containers for variable in one.get("env") or []]
    return any(
        name in world and value != world[name]
        for name, value in ((one.get("name"), one.get("value")) for one in variables)
    )


def has_succeeded(
    spec: KubeflowJob, counts: Mapping[str, Counts], finished: Collection[str]
) -> bool:
    """The master decides, else all workers, and of an elastic job one worker."""
    if MASTER in counts:
        return counts[MASTER].unfinished == 0
    worker = counts[WORKER]
    is_elastic = spec.spec.elastic_policy is not None
    # As upstream, where one agent that ends well ends an elastic training.
    return worker.unfinished <= 0 or (is_elastic and worker.succeeded > 0)


def deciding(spec: KubeflowJob) -> str:
    return MASTER if spec.of_type(MASTER) is not None else WORKER


PYTORCH: Final = Framework(
    kind="PyTorchJob",
    operator="pytorchjob-controller",
    replicas_field="spec.pytorchReplicaSpecs",
    types=(MASTER, WORKER),
    leaders=(MASTER,),
    container="pytorch",
    port_name="pytorchjob-port",
    port=23456,
    # Both defaults are the operator's, so its manifests mean the same here.
    restart_policy=RestartPolicy.ON_FAILURE,
    clean_pods=CleanPods.NONE,
    environment=environment,
    init_containers=master_wait.init_containers,
    companions=autoscaling.companions,
    warnings=lambda observed: (
        *autoscaling.warnings(observed),
        *elasticity.warnings(observed),
        *_world_warnings(observed),
    ),
    sets_every_container=True,
    has_succeeded=has_succeeded,
    deciding=deciding,
)
