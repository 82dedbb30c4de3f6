"""The ways in which a job can be broken, and what its first line must say.

Each way changes a small job (`drafts`). Most ways are real on the local cluster: its API, its
scheduler and its kubelet meet the fault themselves. A few need a container runtime or a machine
that the local cluster does not have; there the pod goes to a node without a kubelet, and `feed` is
the status that a real kubelet writes. tests/cluster judges the words of real kubelets.
"""

import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from edgeai.cli.api import Object
from tests.support.manifests import manifest
from tests.ways.drafts import EDGE, JOB, Draft, copy_of, pod_spec

INFERENCE: Final = "JointInferenceService"
FEDERATION: Final = "FederatedLearningJob"
PYTORCH: Final = "PyTorchJob"
TENSORFLOW: Final = "TFJob"
ELASTIC: Final = "TrainingJob"
SCALERS: Final = ("ScaleOut", "ScaleIn")
REPLICATED: Final = (PYTORCH, TENSORFLOW)
TRAINING: Final = (*REPLICATED, ELASTIC)
ALL: Final = (INFERENCE, FEDERATION, *TRAINING)

IDLE_NODE: Final = "idle0"
"""Has no kubelet: a pod there has the status that a test writes."""
TAINTED_NODE: Final = "gpu0"
FULL_NODE: Final = "full0"
SILENT_NODE: Final = "edge1"
"""Its LocalController is stopped."""
PENDING_S: Final = 62.0
"""What nobody gives a reason for becomes a fault after a minute."""
_BAD_IMAGE: Final = "registry.invalid/team/train:1"


class Way(NamedTuple):
    """One way of being broken."""

    name: str
    kinds: tuple[str, ...]
    spoil: Callable[[Draft], None]
    words: tuple[str, ...]
    """All of them must be in each first line. "{culprit}" is the pod that breaks, "{namespace}" the
    namespace of the job."""
    after_s: float = 0.0
    """Age of the job before which its first line may say something else."""
    feed: Object | None = None
    """The status of the pods on IDLE_NODE."""
    log: str = ""
    """Words of the container's log that `edgeai describe` shows."""
    has_condition: bool = True
    """False where another controller owns the status."""
    is_calm: bool = False
    """Whether the job needs nobody's attention, so that it is only in the list of all jobs."""
    has_remedy: bool = True
    """False where the line itself says what to do."""
    is_queued: bool = False
    """Whether the job waits for a gang scheduler, which a cluster of its own has."""


Case = tuple[Way, str]
"""A way, and the kind of the job."""


def name_of(case: Case) -> str:
    return f"{case[0].name}-{case[1]}"


# ---- what a container runs ---------------------------------------------------------------------


def _with(part: str, **fields: Any) -> Callable[[Draft], None]:
    """Args: part: of the draft: "container", "pod" or "spec"; fields: others of it"""

    def spoil(draft: Draft) -> None:
        getattr(draft, part).update(copy_of(fields))

    return spoil


def _runs(*command: str) -> Callable[[Draft], None]:
    return _with("container", command=[*command])


def _shell(script: str) -> Callable[[Draft], None]:
    return _runs("/bin/sh", "-c", script)


def _other_architecture(draft: Draft) -> None:
    draft.container["command"] = [str(draft.place.program)]


def _init_container(draft: Draft) -> None:
    draft.pod["initContainers"] = [_container(draft, "prepare", "exit 3")]


def _sidecar(draft: Draft) -> None:
    draft.pod["containers"].append(_container(draft, "sidecar", "exit 4"))


def _container(draft: Draft, name: str, script: str) -> dict[str, Any]:
    return {"name": name, "image": draft.place.image, "command": ["/bin/sh", "-c", script]}


def _port_taken(draft: Draft) -> None:
    program = f"import socket; socket.create_server(('127.0.0.1', {draft.place.port}))"
    draft.container["command"] = [sys.executable, "-I", "-S", "-c", program]


# ---- what it refers to -------------------------------------------------------------------------


def _variable(source: str, reference: str) -> Callable[[Draft], None]:
    value = {"valueFrom": {source: {"name": reference, "key": "key"}}}
    return _with("container", env=[{"name": "VALUE", **value}])


def _configmap_volume(draft: Draft) -> None:
    draft.pod["volumes"] = [{"name": "config", "configMap": {"name": "absent"}}]
    draft.container["volumeMounts"] = [{"name": "config", "mountPath": "/etc/config"}]


def _no_model(draft: Draft) -> None:
    draft.before = [one for one in draft.before if one["metadata"]["name"] not in ("big", "result")]


def _no_dataset(draft: Draft) -> None:
    draft.before = [one for one in draft.before if one["kind"] != "Dataset"]


def _no_credential(draft: Draft) -> None:
    """Of the Model, or of the transmitter."""
    for model in draft.before:
        model["spec"] |= {"url": "s3://bucket/path", "credentialName": "absent"}


def _no_job(draft: Draft) -> None:
    draft.before = []


# ---- where it may run --------------------------------------------------------------------------


def _on(node: str) -> Callable[[Draft], None]:
    return _with("pod", nodeSelector={"kubernetes.io/hostname": node})


def _quota(pods: int) -> Callable[[Draft], None]:
    def spoil(draft: Draft) -> None:
        hard = {"hard": {"pods": str(pods)}}
        quota = manifest("v1 ResourceQuota", "small", draft.namespace, spec=hard)
        draft.before.insert(0, quota)

    return spoil


def _pod_security(draft: Draft) -> None:
    draft.labels["pod-security.kubernetes.io/enforce"] = "baseline"
    draft.container["securityContext"] = {"privileged": True}


def _on_silent_edge(draft: Draft) -> None:
    if draft.kind == FEDERATION:
        draft.before[-1]["spec"]["nodeName"] = SILENT_NODE
    else:
        draft.spec["edgeWorker"]["nodeName"] = SILENT_NODE


# ---- the job itself ----------------------------------------------------------------------------


def _master_down(draft: Draft) -> None:
    """The leader crashes; others wait for it."""
    if draft.kind == ELASTIC:
        draft.pod, draft.culprit = draft.others[0], f"{JOB}-launcher"
        draft.spec["restartPolicy"] = "OnFailure"
    _shell("echo 'no training data' >&2; exit 5")(draft)


def _never_again(draft: Draft) -> None:
    """No replica is started again, so the job ends."""
    for replicas in next(iter(draft.spec.values())).values():
        replicas["restartPolicy"] = "Never"
    _shell("exit 1")(draft)


def _deadline(draft: Draft) -> None:
    if draft.kind in REPLICATED:
        draft.spec["runPolicy"]["activeDeadlineSeconds"] = 3
    else:
        draft.pod["activeDeadlineSeconds"] = 3


def _suspended(draft: Draft) -> None:
    job = draft.before[0] if draft.kind in SCALERS else draft.object
    where = job["spec"]["runPolicy"] if job["kind"] in REPLICATED else job["spec"]
    where["suspend"] = True


def _managed_elsewhere(draft: Draft) -> None:
    draft.spec["runPolicy"]["managedBy"] = "kueue.x-k8s.io/multikueue"


def _name_taken(draft: Draft) -> None:
    if draft.kind == INFERENCE:
        labels = {"app": "other"}
        template = {"metadata": {"labels": labels}, "spec": pod_spec(draft.place.image)}
        spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
        taken = manifest("apps/v1 Deployment", draft.culprit, draft.namespace, spec=spec)
    else:
        name = f"{draft.culprit}-0" if draft.kind == ELASTIC else draft.culprit
        taken = manifest("v1 Pod", name, draft.namespace, spec=pod_spec(draft.place.image))
    draft.before.insert(0, taken)


def _refused(draft: Draft) -> None:
    """A spec that the CRD accepts and the kind does not."""
    if draft.kind == INFERENCE:
        draft.spec["cloudWorker"]["nodeName"] = "cloud0"
        draft.pod["nodeName"] = EDGE
    elif draft.kind == FEDERATION:
        draft.spec["aggregationWorker"]["nodeName"] = "cloud0"
        draft.pod["nodeName"] = EDGE
    elif draft.kind == ELASTIC:
        draft.spec["etReplicaSpecs"]["worker"] |= {"minReplicas": 2, "replicas": 1}
    elif draft.kind == "ScaleOut":
        draft.spec["toAdd"] = {"count": 5}
    elif draft.kind == "ScaleIn":
        draft.spec["toDelete"] = {"podNames": ["nobody"]}
    else:
        draft.container["name"] = "trainer"


def _unchanged(_draft: Draft) -> None:
    """The cluster breaks the job."""


def _second_scaler(draft: Draft) -> None:
    """Another scaler of the job is at work, and goes on for long."""
    first = copy_of(draft.object)
    first["metadata"] = {**first["metadata"], "name": "first"}
    first["spec"] |= {"script": "/dev/stdin", "timeout": 600}
    draft.before.append(first)


# ---- what a real kubelet writes ----------------------------------------------------------------


def _fed(state: Object, *, phase: str = "Running", **fields: Any) -> Object:
    """The status of a pod with one container in this state."""
    one = {"image": "", "imageID": "", "ready": False, "restartCount": 0, **state}
    return {"phase": phase, "containerStatuses": [one], **fields}


_KILLED: Final = {
    "exitCode": 137,
    "reason": "OOMKilled",
    "startedAt": "2026-01-02T03:04:05Z",
    "finishedAt": "2026-01-02T03:04:06Z",
}
_OOM: Final = _fed(
    {
        "restartCount": 3,
        "state": {
            "waiting": {
                "reason": "CrashLoopBackOff",
                "message": "back-off 40s restarting failed container=main pod=broken(1)",
            }
        },
        "lastState": {"terminated": _KILLED},
    }
)
_PULLING: Final = _fed({"state": {"waiting": {"reason": "ContainerCreating"}}}, phase="Pending")
_EVICTED: Final = {
    "phase": "Failed",
    "reason": "Evicted",
    "message": (
        "The node was low on resource: ephemeral-storage. Threshold quantity: 2Gi, available: 1Mi. "
    ),
}
_CUT_OFF: Final = _fed(
    {"ready": True, "state": {"running": {"startedAt": "2026-01-02T03:04:05Z"}}},
    conditions=[
        {"type": "ContainersReady", "status": "True"},
        {"type": "Ready", "status": "False"},
    ],
)


WAYS: Final = (
    Way("wrong image", ALL, _with("container", image=_BAD_IMAGE), ("{culprit}", _BAD_IMAGE)),
    Way("wrong command", ALL, _runs("/no/such/program"), ("{culprit}", "/no/such/program")),
    Way(
        "exit code 1",
        ALL,
        _shell("echo 'no training data' >&2; exit 1"),
        ("{culprit}", "exit code 1"),
        log="no training data",
    ),
    Way("exit code 1, never again", REPLICATED, _never_again, ("{culprit}", "exit code 1")),
    Way("exit code 137", ALL, _shell("kill -KILL $$$$"), ("{culprit}", "exit code 137")),
    Way("exit code 143", ALL, _shell("kill -TERM $$$$"), ("{culprit}", "exit code 143")),
    Way("out of memory", ALL, _on(IDLE_NODE), ("{culprit}", "OOMKilled"), feed=_OOM),
    Way(
        "ConfigMap missing",
        ALL,
        _variable("configMapKeyRef", "absent"),
        ("{culprit}", 'configmap "absent" not found'),
    ),
    Way("ConfigMap of a volume missing", ALL, _configmap_volume, ("{culprit}", "absent")),
    Way("quota", ALL, _quota(0), ("exceeded quota: small", "limited: pods=0")),
    Way("PodSecurity", ALL, _pod_security, ("privileged", "baseline")),
    Way("no node", ALL, _on("nowhere"), ("{culprit}", "node affinity")),
    Way("taint", ALL, _on(TAINTED_NODE), ("{culprit}", "untolerated taint {{gpu: true}}")),
    Way("master down", TRAINING, _master_down, ("{culprit}", "exit code 5"), after_s=PENDING_S),
    Way("model missing", (INFERENCE,), _no_model, ("Model {namespace}/big", "does not exist")),
    Way("model missing", (FEDERATION,), _no_model, ("Model {namespace}/result", "does not exist")),
    Way("dataset missing", (FEDERATION,), _no_dataset, ("Dataset", "images")),
    Way(
        "secret missing",
        ALL,
        _variable("secretKeyRef", "absent"),
        ("{culprit}", 'secret "absent" not found'),
    ),
    Way("credential missing", (INFERENCE, FEDERATION), _no_credential, ("Secret", "absent")),
    Way("edge out of contact", (INFERENCE, FEDERATION), _on_silent_edge, (SILENT_NODE,)),
    Way(
        "node out of contact",
        TRAINING,
        _on(IDLE_NODE),
        ("{culprit}", IDLE_NODE),
        feed=_CUT_OFF,
    ),
    Way(
        "registry slow",
        ALL,
        _on(IDLE_NODE),
        ("{culprit}", "image"),
        after_s=PENDING_S,
        feed=_PULLING,
    ),
    Way("init container", ALL, _init_container, ("{culprit}", "prepare", "exit code 3")),
    Way("sidecar", ALL, _sidecar, ("{culprit}", "sidecar", "exit code 4")),
    Way("deadline", (FEDERATION, *TRAINING), _deadline, ("deadline",)),
    Way("port taken", ALL, _port_taken, ("{culprit}", "exit code 1")),
    Way(
        "disk full",
        (FEDERATION, *TRAINING),  # a Deployment replaces an evicted pod at once
        _on(IDLE_NODE),
        ("Evicted", "ephemeral-storage"),
        feed=_EVICTED,
    ),
    Way("disk of all nodes full", ALL, _on(FULL_NODE), ("{culprit}", "disk-pressure")),
    Way(
        "wrong architecture",
        ALL,
        _other_architecture,
        ("{culprit}", "exit code 126"),
    ),
    Way("suspended", (FEDERATION, *TRAINING), _suspended, ("suspended",), is_calm=True),
    Way(
        "suspended",
        SCALERS,
        _suspended,
        ("TrainingJob", "suspended", "resume it"),
        is_calm=True,
        has_remedy=False,
    ),
    Way(
        "managed by another",
        REPLICATED,
        _managed_elsewhere,
        ("kueue.x-k8s.io/multikueue",),
        has_condition=False,
        is_calm=True,
    ),
    Way("name taken", ALL, _name_taken, ("{culprit}", "exists already")),
    Way("spec refused", (INFERENCE,), _refused, ("spec.cloudWorker.nodeName",)),
    Way("spec refused", (FEDERATION,), _refused, ("spec.aggregationWorker.nodeName",)),
    Way("spec refused", (PYTORCH,), _refused, ("spec.pytorchReplicaSpecs", "pytorch")),
    Way("spec refused", (TENSORFLOW,), _refused, ("spec.tfReplicaSpecs", "tensorflow")),
    Way("spec refused", (ELASTIC,), _refused, ("spec.etReplicaSpecs.worker", "minReplicas")),
    Way("spec refused", ("ScaleOut",), _refused, ("maxReplicas",)),
    Way("spec refused", ("ScaleIn",), _refused, ("nobody",)),
    Way(
        "job missing",
        SCALERS,
        _no_job,
        ("TrainingJob broken", "does not exist"),
        is_calm=True,
        has_remedy=False,
    ),
    Way(
        "other scaler at work",
        SCALERS,
        _second_scaler,
        ("TrainingJob broken", "scalers that were created before"),
        is_calm=True,
        has_remedy=False,
    ),
    Way("script fails", SCALERS, _with("spec", script="/no/such/script"), ("script",)),
    Way("queue full", REPLICATED, _unchanged, ("PodGroup",), after_s=PENDING_S, is_queued=True),
)

_ON_REAL_NODES: Final = {
    "wrong image": ALL,
    "wrong command": (FEDERATION, ELASTIC),
    "exit code 1": (FEDERATION, PYTORCH),
    "ConfigMap missing": ALL,
    "secret missing": (INFERENCE, ELASTIC),
    "quota": (FEDERATION, *TRAINING),
    "no node": ALL,
    "master down": (ELASTIC,),
    "init container": (INFERENCE, FEDERATION, *REPLICATED),
    "sidecar": (INFERENCE, FEDERATION),
    "deadline": REPLICATED,
}
REAL_WAYS: Final = tuple(
    way._replace(kinds=_ON_REAL_NODES[way.name]) for way in WAYS if way.name in _ON_REAL_NODES
)
"""The ways that tests/cluster tries on nodes with containers."""
