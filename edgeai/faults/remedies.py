"""What a person can do about a condition that is not good: reason -> one sentence.

The message of a condition names the object and the fault; the sentences here say what to do, in
the same words everywhere. A reason can come from a kind, from a LocalController that counts a
Dataset, from the Kubernetes API, or from the status of a pod. Pure and total.
"""

import enum
import re
from collections.abc import Mapping
from typing import Any, Final

from edgeai.api.status import STARTING, SUCCEEDED, WAITING


class Cause(enum.IntEnum):
    """What a fault comes from, in causal order: a fault can only be the reason of later ones."""

    SPEC = enum.auto()
    REFERENCES = enum.auto()
    """A Model, Dataset, Secret, ConfigMap or Node that is missing or wrong."""
    QUOTA = enum.auto()
    ADMISSION = enum.auto()
    IMAGE = enum.auto()
    CRASH = enum.auto()
    UNSCHEDULABLE = enum.auto()
    NODE = enum.auto()
    """The node does not start, run or end the pod."""
    EDGE = enum.auto()
    """An edge node has no session, or the cloud worker or the master does not answer it."""
    WAITING = enum.auto()
    """The worker waits for another worker, or for its init container."""
    OTHER = enum.auto()
    """Nothing that keeps a worker from running."""


_LOGS: Final = "read its last words with `edgeai logs`"
_TEMPLATE: Final = "correct the worker's template in the job"
_NODE: Final = "check that the node has power and network, and that its kubelet runs"
_IMAGE: Final = (
    "check the image's name and tag in the job, and that the node reaches the registry and may "
    "pull from it (imagePullSecrets)"
)
_ROOM: Final = (
    "make room, add a node, or ask for less in the worker's resources; check nodeName, "
    "nodeSelector and tolerations too"
)
_CRASH: Final = (
    f"{_LOGS}; correct the program, its arguments or its memory limit, and apply the job"
)
_CONTAINER: Final = "check the command, volumes and environment in the worker's template"
_SPEC: Final = "correct the field that the message names, and apply the object again"
_CONTACT: Final = (
    "check the node, its network and its LocalController: `edgeai doctor` says what it sees"
)

BY_CAUSE: Final[Mapping[Cause, Mapping[str, str]]] = {
    Cause.SPEC: {
        "InvalidSpec": _SPEC,
        "PathNotAllowed": (
            "move the data below an allowed prefix, or let an administrator add the prefix to "
            "node_path_prefixes of the GlobalManager"
        ),
        "FrameworkImageNotConfigured": (
            "use a template with an image, or let an administrator add the framework to "
            "framework_images of the GlobalManager"
        ),
        "CredentialsDiffer": "put all keys that the job needs into one Secret",
        "NameConflict": "rename the job, or delete the object that has the name already",
        "TooLarge": "make the worker's template smaller",
        "ManagedByOthers": (
            "see the controller that spec.runPolicy.managedBy names, or create the job again "
            "without this field"
        ),
        "NoIndexLeft": "start a new job: this one has used all the indexes of its workers",
        "InvalidURL": _SPEC,
        "UnknownFormat": "set spec.format to txt, csv, jsonl or dir",
        "NotADirectory": "set spec.format to the format of the file, or spec.url to a directory",
        "IsADirectory": "set spec.format to dir, or spec.url to a file",
        ".+FailedValidation": (
            "correct the field that the message names, and create the job again"
        ),
        "Scale(Out|In)Failed": "correct what the message names, and create another scaler",
    },
    Cause.REFERENCES: {
        "NoNodes": "give a node the labels of `edgeWorker.nodeSelector`, or correct the selector",
        "ModelNotFound": "create the Model that the message names, or correct the name in the job",
        "ModelInvalid": "correct the Model that the message names",
        "WrongDigest": "publish the content that spec.sha256 names, or correct spec.sha256",
        "NoSpace": "free the node's disk, or start its LocalController with more --model-max-bytes",
        "DiskFailed": "check the disk of the node that the message names",
        "ManyNodes": "look at the nodes' own LocalControllers: the status names 100 nodes at most",
        "DatasetNotFound": (
            "create the Dataset that the message names, or correct the name in the job"
        ),
        "DatasetInvalid": "correct the Dataset that the message names",
        "NotCounted": "see the condition Counted of the Dataset that the message names",
        "OutputElsewhere": (
            "give the workers of the job one node, or set outputDir to an s3 URL that all reach"
        ),
        "DatasetElsewhere": "give the worker and its Dataset the same node",
        "NodeNotFound": "join the node that the message names, or correct the name",
        "SecretNotFound": "create the Secret that the message names, or correct credentialName",
        "SecretInvalid": "correct the annotations of the Secret that the message names",
        # The kubelet's word for a missing ConfigMap or Secret that a variable refers to.
        "CreateContainerConfigError": (
            "create the ConfigMap or Secret that the message names, or correct the template"
        ),
        "NotFound": "put the data where the spec says, or correct spec.url",
        "Unreadable": "give the LocalController the right to read the data, or correct spec.url",
        "Unavailable": "check the URL in the spec, and whether its server answers the node",
        "NoCredential": "create the Secret of spec.credentialName, and put its keys onto the node",
        "SourceFailed": "check the data, spec.url and spec.format",
    },
    Cause.ADMISSION: {
        "Forbidden": "ask who limits the namespace, by a quota, by a policy or by rights",
        "Invalid": _TEMPLATE,
        "PodGroupsNotServed": (
            "install the scheduler's definitions, or start the GlobalManager without "
            "--gang-scheduler-name"
        ),
        "SchedulingGated": (
            "wait for who set the gate in the pod's schedulingGates, or remove the gate"
        ),
        "Violates[A-Z][a-z]+": (
            "set what the message names in the worker's securityContext, or let an administrator "
            "label the namespace for a weaker Pod Security Standard"
        ),
    },
    Cause.IMAGE: {
        "ImagePullBackOff": _IMAGE,
        "ErrImagePull": _IMAGE,
        "InvalidImageName": _IMAGE,
        "ErrImageNeverPull": "load the image onto the node, or let imagePullPolicy pull it",
    },
    Cause.CRASH: {
        "ModelNotLoaded": "correct the model that the message names, and publish it again",
        "CrashLoopBackOff": _CRASH,
        "Error": _CRASH,
        "PodFailed": _CRASH,
        # Where the reason of a pod has no valid form, `pod_fault` puts this one.
        "PodFault": "see the pod's status: `kubectl describe pod`",
        "OOMKilled": "raise the worker's memory limit, or lower what the program needs",
        "ContainerCannotRun": _CONTAINER,
        "StartError": _CONTAINER,
        "RunContainerError": _CONTAINER,
        "CreateContainerError": _CONTAINER,
        "DeadlineExceeded": "raise activeDeadlineSeconds or make the work shorter, in a new job",
        "InternalError": "read the LocalController's log on that node, and report the fault",
        "MetricMissing": "let evaluate() return the metric that deploySpec.trigger names",
        "(Train|Eval|Deploy)Failed": (
            f"{_LOGS}, correct the job, and add samples: the next round begins with them"
        ),
        "TooFewWorkers": "make room for minReplicas workers, or lower minReplicas in a new job",
        ".+Restarting": f"wait: the job starts again by itself; if it repeats, {_LOGS}",
        ".+Failed": f"{_LOGS}; correct the job, and create it again",
    },
    Cause.UNSCHEDULABLE: {
        "Unschedulable": _ROOM,
        "Preempting": "give the job a higher priority class, or more room to the cluster",
        "OutOfcpu": _ROOM,
        "OutOfmemory": _ROOM,
        "OutOfpods": _ROOM,
        "NodeAffinity": "correct nodeSelector or affinity: the node's labels do not fit",
        "NotScheduled": "check that a scheduler runs, and schedulerName in the worker's template",
        "PodGroupPending": "make room for all replicas at once, or ask the gang scheduler's log",
    },
    Cause.NODE: {
        "Pending": (
            "check that the node exists, that it has power and network, and that its kubelet runs"
        ),
        "ContainerCreating": (
            "see the events of the pod (`kubectl describe pod`): the registry may be slow, or a "
            "volume, ConfigMap or Secret may be missing"
        ),
        "Evicted": (
            "make room on the node or lower what the worker uses; Kubernetes gives the reason in "
            "the message"
        ),
        "NodeLost": _NODE,
        # Of a pod, and of the edge worker of a service whose node is silent.
        "NodeNotReady": _NODE,
        "NodeRestarted": (
            f"wait until the node starts the container again; if it does not, {_NODE}; a job whose "
            "restartPolicy is Never must be created again"
        ),
        "NodeShutdown": "start the node again, or give the worker another node",
        "Terminated": "start the node again, or give the worker another node",
        "Terminating": (
            "wait for the node to confirm the end of the pod; where the node is lost for good, "
            "delete the Node"
        ),
        "UnexpectedAdmissionError": "check the devices of the node (GPUs) and its kubelet's log",
        "LauncherMissing": "see who deleted the launcher's pod; start a new job if it stays away",
        "WorkersMissing": "see who deletes the workers' pods; the job creates them again",
        ".+WorkerLost": "wait: the job replaces the worker where its restartPolicy says so",
    },
    Cause.EDGE: {
        "NoContact": _CONTACT,
        "AwaitingContact": _CONTACT,
        "ReplicasOutOfContact": _CONTACT,
        "MasterUnreachable": (
            "train on nodes of one network: this node does not reach the cluster's Services "
            "(KubeEdge without EdgeMesh); where it does, see whether the master listens on its port"
        ),
        "NoAnswer": "check the cloud worker's Service, and the network from the edge nodes to it",
    },
    Cause.WAITING: {
        "AwaitingMaster": "see the master: the workers start as soon as it answers on its port",
        "Initializing": f"wait for the init container that the message names, or {_LOGS}",
        "CloudWorkerUnavailable": "see the condition Running: the cloud worker is not available",
        "LauncherPending": "make room for the launcher first: workers wait behind it",
    },
    Cause.OTHER: {
        "RolledBack": "correct the Model that the message names, and publish it as a new version",
        "VersionFailed": (
            "set spec.rollout.rejected to take the version back, spec.rollout.promoted to let it "
            "go on, or publish another one"
        ),
        "ScaleInFailed": "see the ScaleIn of the job: its message says why it failed",
        ".*Suspended": "resume the job when it is to go on",
        "SetByOthers": (
            "find who sets these fields (`kubectl get -o yaml --show-managed-fields`) and stop it, "
            "or write what it wants into the job"
        ),
    },
}
"""Cause -> reason of a condition, of a pod, or of .status.elastic -> what to do. Reasons that begin
with the name of a kind or end with a level have a pattern, of which the first that matches counts.
"""

_ENTRIES: Final = {
    key: (cause, remedy) for cause, table in BY_CAUSE.items() for key, remedy in table.items()
}
REMEDIES: Final = {key: remedy for key, (_, remedy) in _ENTRIES.items() if key.isalnum()}
_PATTERNS: Final = tuple(key for key in _ENTRIES if not key.isalnum())

_NOTHING_TO_DO: Final = re.compile(
    rf"{STARTING}|{WAITING}|{SUCCEEDED}|Failed|Valid|Resolved|Connected|Counted|Complete(d)?"
    r"|Watching|Training|Evaluating|Deploying|Deployed|NotDeployed"
    r"|Workers(Running|Available)|CloudAnswers"
    r"|.+(Created|(?<!Not)Ready|Running|Scaled?|Scaling|ScriptExecuted|Succeeded|Resumed)"
)
"""Reasons of the normal course of things. "Failed" is the reason of Training when the job has
ended; its condition Failed says why."""

_QUOTA: Final = (
    "raise the ResourceQuota of the namespace, delete what uses it up, or ask for less in the "
    "worker's resources"
)
_FINALIZERS: Final = (
    "see the controllers of the finalizers that the message names; where they are gone for good, "
    "remove the finalizers from the pod"
)
_DATA: Final = "give the node the right to read the data (keys of the bucket, or file modes)"
UNKNOWN: Final = (
    "the message has the words of Kubernetes; `kubectl describe` of the pod and its events say more"
)
"""For a reason that no version of Kubernetes had when this table was written."""

# Others may put conditions into a status. A type in neither set is good, for nobody knows it.
_BAD_WHEN_TRUE: Final = frozenset({"Failed", "Stalled", "Overridden", "Restarting", "ScaleFailed"})
_BAD_UNLESS_TRUE: Final = frozenset(
    {"Accepted", "ResolvedRefs", "Counted", "EdgeConnected", "CloudReachable", "Running"}
    | {"Learning", "Training"}
)


def remedy_of(reason: str, message: str = "") -> str:
    """What a person can do about a condition with this reason; "" when there is nothing to do.

    Args: message: of the same condition. It tells the meanings of a reason apart
    """
    return _entry(reason, message)[1]


def cause_of(reason: str, message: str = "") -> Cause:
    """The cause of a condition that is not good. Args: as of `remedy_of`"""
    return _entry(reason, message)[0]


def _entry(reason: str, message: str) -> tuple[Cause, str]:
    if not reason or _is_normal(reason):
        return Cause.OTHER, ""
    if reason == "Forbidden" and message.startswith("spec."):  # a LocalController reads data
        return Cause.REFERENCES, _DATA
    if reason == "Forbidden" and "exceeded quota" in message:  # the words of the API server
        return Cause.QUOTA, _QUOTA
    if reason == "Terminating" and "has the finalizers" in message:  # the words of `deletions`
        return Cause.NODE, _FINALIZERS
    if reason in REMEDIES:
        return _ENTRIES[reason]
    pattern = next((one for one in _PATTERNS if re.fullmatch(one, reason)), "")
    # A later Kubernetes has reasons that no table knows. Their faults show all the same.
    return _ENTRIES.get(pattern, (Cause.CRASH, UNKNOWN))


def _is_normal(reason: str) -> bool:
    """Whether the reason is of the normal course of things. NodeNotReady ends like one that is."""
    return reason not in REMEDIES and bool(_NOTHING_TO_DO.fullmatch(reason))


def is_good(condition: Mapping[str, Any]) -> bool:
    """Whether nobody needs to look at this condition of a job. The conditions of a training job are
    a history, so there False is good but for the types that tell of the present.
    """
    type_, truth = str(condition.get("type")), str(condition.get("status"))
    if truth == "True":
        return type_ not in _BAD_WHEN_TRUE
    is_normal = _is_normal(str(condition.get("reason")))
    # The user has suspended the job, so that it does not run is no fault.
    is_stopped = str(condition.get("reason")).endswith("Suspended")
    return type_ not in _BAD_UNLESS_TRUE or is_normal or is_stopped
