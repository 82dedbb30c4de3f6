"""What a person can do about a condition that is not good: reason -> one sentence.

Called by `edgeai describe` and by whatever else shows conditions to people. The message of a
condition names the object and the fault; the sentences here say what to do, in the same words
everywhere. A reason can come from a kind, from a LocalController that counts a Dataset, from the
Kubernetes API, or from the status of a pod. Pure and total.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from globalmanager.rules.status import STARTING, SUCCEEDED, WAITING

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
_URL: Final = "check the URL in the spec, and whether its server answers the node"
_EVICTED: Final = (
    "make room on the node or lower what the worker uses; Kubernetes gives the reason in the "
    "message"
)

REMEDIES: Final[Mapping[str, str]] = {
    # ---- the spec and what it refers to
    "InvalidSpec": _SPEC,
    "ModelNotFound": "create the Model that the message names, or correct the name in the job",
    "ModelInvalid": "correct the Model that the message names",
    "DatasetNotFound": "create the Dataset that the message names, or correct the name in the job",
    "DatasetInvalid": "correct the Dataset that the message names",
    "DatasetElsewhere": "give the worker and its Dataset the same node",
    "CredentialsDiffer": "put all keys that the job needs into one Secret",
    "NodeNotFound": "join the node that the message names, or correct the name",
    "SecretNotFound": "create the Secret that the message names, or correct credentialName",
    "SecretInvalid": "correct the annotations of the Secret that the message names",
    "PathNotAllowed": (
        "move the data below an allowed prefix, or let an administrator add the prefix to "
        "node_path_prefixes of the GlobalManager"
    ),
    "FrameworkImageNotConfigured": (
        "use a template with an image, or let an administrator add the framework to "
        "framework_images of the GlobalManager"
    ),
    # ---- what the API refuses
    "NameConflict": "rename the job, or delete the object that has the name already",
    "Forbidden": "ask who limits the namespace, by a quota, by a policy or by rights",
    "Invalid": _TEMPLATE,
    "TooLarge": "make the worker's template smaller",
    "PodGroupsNotServed": (
        "install the scheduler's definitions, or start the GlobalManager without "
        "--gang-scheduler-name"
    ),
    "SetByOthers": (
        "find who sets these fields (`kubectl get -o yaml --show-managed-fields`) and stop it, or "
        "write what it wants into the job"
    ),
    # ---- the edge
    "NoContact": _CONTACT,
    "AwaitingContact": _CONTACT,
    "ReplicasOutOfContact": _CONTACT,
    "NoAnswer": "check the cloud worker's Service, and the network from the edge nodes to it",
    "CloudWorkerUnavailable": "see the condition Running: the cloud worker is not available",
    # ---- a Dataset that a node cannot count
    "NotFound": "put the data where the spec says, or correct spec.url",
    "Unreadable": "give the LocalController the right to read the data, or correct spec.url",
    "Unavailable": _URL,
    "InvalidURL": _SPEC,
    "NoCredential": "create the Secret of spec.credentialName, and put its keys onto the node",
    "UnknownFormat": "set spec.format to txt, csv, jsonl or dir",
    "NotADirectory": "set spec.format to the format of the file, or spec.url to a directory",
    "IsADirectory": "set spec.format to dir, or spec.url to a file",
    "SourceFailed": "check the data, spec.url and spec.format",
    "InternalError": "read the LocalController's log on that node, and report the fault",
    # ---- pods
    "Unschedulable": _ROOM,
    "SchedulingGated": "wait for who set the gate in the pod's schedulingGates, or remove the gate",
    "Pending": f"look at the node of the pod: {_NODE}",
    "ImagePullBackOff": _IMAGE,
    "ErrImagePull": _IMAGE,
    "InvalidImageName": _IMAGE,
    "ErrImageNeverPull": "load the image onto the node, or let imagePullPolicy pull it",
    "CrashLoopBackOff": _CRASH,
    "Error": _CRASH,
    "PodFailed": _CRASH,
    "OOMKilled": "raise the worker's memory limit, or lower what the program needs",
    "ContainerCannotRun": _CONTAINER,
    "StartError": _CONTAINER,
    "RunContainerError": _CONTAINER,
    "CreateContainerError": _CONTAINER,
    "CreateContainerConfigError": (
        "create the ConfigMap or Secret that the message names, or correct the template"
    ),
    "Evicted": _EVICTED,
    "Preempting": "give the job a higher priority class, or more room to the cluster",
    "OutOfcpu": _ROOM,
    "OutOfmemory": _ROOM,
    "OutOfpods": _ROOM,
    "NodeAffinity": "correct nodeSelector or affinity: the node's labels do not fit",
    "NodeLost": _NODE,
    "NodeShutdown": "start the node again, or give the worker another node",
    "Terminated": "start the node again, or give the worker another node",
    "UnexpectedAdmissionError": "check the devices of the node (GPUs) and its kubelet's log",
    "DeadlineExceeded": "raise activeDeadlineSeconds or make the work shorter, in a new job",
    "PodFault": "see the pod's status: `kubectl describe pod`",
    # ---- training
    "Terminating": (
        "wait for the node to confirm the end of the pod; where the node is lost for good, delete "
        "the Node"
    ),
    "NodeNotReady": _NODE,
    "PodGroupPending": "make room for all replicas at once, or ask the gang scheduler's log",
    "LauncherMissing": "see who deleted the launcher's pod; start a new job if it stays away",
    "WorkersMissing": "see who deletes the workers' pods; the job creates them again",
    "TooFewWorkers": "make room for minReplicas workers, or lower minReplicas in a new job",
    "ScaleInFailed": "see the ScaleIn of the job: its message says why it failed",
    "NoIndexLeft": "start a new job: this one has used all the indexes of its workers",
    "LauncherPending": "make room for the launcher first: workers wait behind it",
}
"""Reason of a condition, or of .status.elastic -> what to do."""

_BY_PATTERN: Final = (
    (
        "Violates[A-Z][a-z]+",
        "set what the message names in the worker's securityContext, or let an administrator label "
        "the namespace for a weaker Pod Security Standard",
    ),
    (".+FailedValidation", "correct the field that the message names, and create the job anew"),
    ("Scale(Out|In)Failed", "correct what the message names, and create another scaler"),
    (".+WorkerLost", "wait: the job replaces the worker where its restartPolicy says so"),
    (".+Restarting", f"wait: the job starts again by itself; if it repeats, {_LOGS}"),
    (".+Suspended", "resume the job when it is to go on"),
    (".+Failed", f"{_LOGS}; correct the job, and create it anew"),
)
"""Reasons that begin with the name of a kind or end with a level."""

_NOTHING_TO_DO: Final = re.compile(
    rf"{STARTING}|{WAITING}|{SUCCEEDED}|Failed|Valid|Resolved|Connected|Counted|Complete"
    r"|Workers(Running|Available)|CloudAnswers|ContainerCreating|PodInitializing"
    r"|.+(Created|Ready|Running|Scaled?|Scaling|ScriptExecuted|Succeeded|Resumed)"
)
"""Reasons of the normal course of things. "Failed" is the reason of Training when the job has
ended; its condition Failed says why."""

_OF_DATA: Final = "give the node the right to read the data (keys of the bucket, or file modes)"
UNKNOWN: Final = (
    "the message has the words of Kubernetes; `kubectl describe` of the pod and its events say more"
)
"""For a reason that no version of Kubernetes had when this table was written."""

_BAD_WHEN_TRUE: Final = frozenset({"Failed", "Stalled", "Overridden", "Restarting", "ScaleFailed"})
_BAD_UNLESS_TRUE: Final = frozenset(
    {"Accepted", "ResolvedRefs", "Counted", "EdgeConnected", "CloudReachable", "Running"}
    | {"Training"}
)


def remedy_of(reason: str, message: str = "") -> str:
    """What a person can do about a condition with this reason; "" when there is nothing to do.

    Args: message: of the same condition. One reason has two meanings: it tells them apart
    """
    if not reason or _NOTHING_TO_DO.fullmatch(reason):
        return ""
    if reason == "Forbidden" and message.startswith("spec."):  # a LocalController reads data
        return _OF_DATA
    if reason in REMEDIES:
        return REMEDIES[reason]
    found = (remedy for pattern, remedy in _BY_PATTERN if re.fullmatch(pattern, reason))
    return next(found, UNKNOWN)


def is_good(condition: Mapping[str, Any]) -> bool:
    """Whether nobody needs to look at this condition of a job. The conditions of a training job are
    a history, so there False is good but for the types that tell of the present.
    """
    type_, truth = str(condition.get("type")), str(condition.get("status"))
    if truth == "True":
        return type_ not in _BAD_WHEN_TRUE
    is_normal = bool(_NOTHING_TO_DO.fullmatch(str(condition.get("reason"))))
    is_stopped = type_ == "Running" and str(condition.get("reason")).endswith("Suspended")
    return type_ not in _BAD_UNLESS_TRUE or is_normal or is_stopped
