"""The CEL rules of the definitions, on an API server: what they accept and what they refuse.

The GlobalManager decodes each object that a rule refuses, too, and refuses it as well: an object
may have come before the rule.
"""

import copy
from collections.abc import Iterator
from http.client import UNPROCESSABLE_ENTITY
from typing import Any, Final, NamedTuple

import pytest
import yaml

from edgeai.api.resources import Object, ResourceType
from edgeai.cli.api import ApiError
from globalmanager.contract import Kind
from globalmanager.kinds.elastic.trainingjob import KIND as TRAINING
from globalmanager.kinds.training.pytorchjob import KIND as PYTORCH
from globalmanager.kinds.training.tfjob import KIND as TF
from globalmanager.manifests import crds
from tests.cluster.controlplane import ControlPlane
from tests.globalmanager.kinds.elastic.world import example
from tests.globalmanager.kinds.training.samples import pytorch_spec, template, tf_spec
from tests.support.client import Client
from tests.support.waiting import eventually
from tests.support.world import job

REPLICAS: Final = "spec.pytorchReplicaSpecs"
TF_REPLICAS: Final = "spec.tfReplicaSpecs"
MANAGER: Final = "spec.runPolicy.managedBy"
QUEUE: Final = "spec.runPolicy.schedulingPolicy.queue"


class Case(NamedTuple):
    """A spec, and the fields that the messages of the violated rules begin with."""

    about: str
    spec: Object
    refused: tuple[str, ...] = ()
    old: Object | None = None
    """The spec before an edit; None when the job is created."""


def replica(count: int | None = None, container: str = "pytorch") -> Object:
    number = {} if count is None else {"replicas": count}
    return {"template": template(container), **number}


def pytorch(about: str, replicas: Object, *refused: str, **spec: Any) -> Case:
    return Case(about, {"pytorchReplicaSpecs": replicas, **spec}, refused)


def tf(about: str, *refused: str, **counts: int | None) -> Case:
    replicas = {type_: replica(count, "tensorflow") for type_, count in counts.items()}
    return Case(about, {"tfReplicaSpecs": replicas}, refused)


def edits(spec: Object) -> Iterator[Case]:
    """The rules about edits, which the kinds share. None is a job without a run policy."""
    ours = {"managedBy": "kubeflow.org/training-operator"}
    theirs = {"managedBy": "kueue.x-k8s.io/multikueue"}
    a, b = ({"schedulingPolicy": {"queue": queue}} for queue in "ab")
    no_queue = {"schedulingPolicy": {"minAvailable": 1}}
    table: tuple[tuple[str, Object | None, Object | None, tuple[str, ...]], ...] = (
        ("a policy without a manager is added", None, {"suspend": True}, ()),
        ("the manager stays", ours, {**ours, "suspend": True}, ()),
        ("a manager is added", None, ours, (MANAGER,)),
        ("a manager is added to a policy", {"suspend": True}, ours, (MANAGER,)),
        ("the manager is removed", ours, {"suspend": True}, (MANAGER,)),
        ("the policy is removed", ours, None, (MANAGER,)),
        ("another manager", ours, theirs, (MANAGER,)),
        ("the queue stays", a, {**a, "suspend": True}, ()),
        ("another queue", a, b, (QUEUE,)),
        # The API server evaluates a rule about an edit only where the field was and is.
        ("a queue is added", no_queue, a, ()),
        ("the queue is removed", a, no_queue, ()),
        ("the policy of a queue is removed", a, None, ()),
        ("another manager and queue", {**ours, **a}, {**theirs, **b}, (MANAGER, QUEUE)),
    )
    for about, before, after, refused in table:
        old, new = (spec if run is None else {**spec, "runPolicy": run} for run in (before, after))
        yield Case(about, new, refused, old)


ONE, TWO = replica(1), replica(2)
PYTORCH_CASES: Final = (
    pytorch("a master and workers", {"Master": ONE, "Worker": TWO}),
    pytorch("numbers left out", {"Master": replica(), "Worker": replica()}),
    pytorch("a master alone", {"Master": replica()}),
    pytorch("workers alone", {"Worker": TWO}),
    pytorch("two masters", {"Master": TWO}, REPLICAS),
    pytorch("no master in number", {"Master": replica(0), "Worker": ONE}, REPLICAS),
    pytorch("no worker in number", {"Master": ONE, "Worker": replica(0)}, REPLICAS),
    pytorch("another type", {"Master": ONE, "PS": ONE}, REPLICAS),
    pytorch("another spelling", {"master": ONE}, REPLICAS),
    pytorch("a number of processes", {"Master": ONE}, nprocPerNode="2"),
    pytorch(
        "the older field alone", {"Master": ONE, "Worker": TWO}, elasticPolicy={"nProcPerNode": 2}
    ),
    pytorch(
        "both fields",
        {"Master": ONE, "Worker": TWO},
        "spec.nprocPerNode",
        nprocPerNode="auto",
        elasticPolicy={"nProcPerNode": 2},
    ),
    pytorch("elastic", {"Worker": TWO}, elasticPolicy={}),
    pytorch("elastic without workers", {"Master": ONE}, "spec.elasticPolicy", elasticPolicy={}),
    pytorch("a least number", {"Worker": TWO}, elasticPolicy={"minReplicas": 3}),
    pytorch("a largest number", {"Worker": TWO}, elasticPolicy={"maxReplicas": 1}),
    pytorch("one number", {"Worker": TWO}, elasticPolicy={"minReplicas": 2, "maxReplicas": 2}),
    pytorch(
        "bounds in the wrong order",
        {"Worker": TWO},
        "spec.elasticPolicy.minReplicas",
        elasticPolicy={"minReplicas": 3, "maxReplicas": 2},
    ),
    pytorch(
        "the least bound that is wrong",
        {"Worker": TWO},
        "spec.elasticPolicy.minReplicas",
        elasticPolicy={"minReplicas": 1, "maxReplicas": 0},
    ),
    *edits(pytorch_spec()),
)
TF_CASES: Final = (
    tf("a chief and workers", Chief=1, Worker=2, PS=2),
    tf("numbers left out", Master=None, Worker=None, Evaluator=None),
    tf("no leader", Worker=5, PS=3),
    tf("no chief in number", Chief=0, Worker=2),
    tf("two leaders", TF_REPLICAS, Chief=1, Master=1),
    tf("two chiefs", TF_REPLICAS, Chief=2),
    tf("two masters", TF_REPLICAS, Master=2, Worker=2),
    tf("two leaders, one of them twice", TF_REPLICAS, TF_REPLICAS, Chief=1, Master=2),
    *edits(tf_spec(Chief=1, Worker=2)),
)
WORKER: Final = "spec.etReplicaSpecs.worker"
TRAINING_CASES: Final = (
    Case("the example", example()["spec"]),
    Case("no limits", example(worker={"minReplicas": None, "maxReplicas": None})["spec"]),
    Case("one number", example(worker={"minReplicas": 2, "maxReplicas": 2})["spec"]),
    Case(
        "limits in the wrong order",
        example(worker={"minReplicas": 3, "maxReplicas": 2})["spec"],
        (WORKER,),
    ),
    Case("elastic", example(elastic={})["spec"]),
    Case(
        "elastic without a limit",
        example(elastic={}, worker={"maxReplicas": None})["spec"],
        ("spec.elastic",),
    ),
    Case(
        "elastic and never replaced",
        example(elastic={}, worker={"restartPolicy": "Never"})["spec"],
        ("spec.elastic",),
    ),
)
CASES: Final = ((PYTORCH, PYTORCH_CASES), (TF, TF_CASES), (TRAINING, TRAINING_CASES))
TYPES: Final = [
    pytest.param(kind, type_, cases, id=f"{type_.kind}/{type_.version}")
    for kind, cases in CASES
    for type_ in kind.definition.types
]


def messages(schema: Object) -> set[str]:
    """Of the rules of a schema."""
    found = {rule["message"] for rule in schema.get("x-kubernetes-validations", ())}
    inner = [*schema.get("properties", {}).values(), schema.get("additionalProperties")]
    return found.union(*(messages(one) for one in inner if isinstance(one, dict)))


def rules(kind: Kind, type_: ResourceType) -> set[str]:
    """The messages of the rules of one version of a resource."""
    (version,) = (
        version
        for version in crds.crd(kind, type_)["spec"]["versions"]
        if version["name"] == type_.version
    )
    return messages(version["schema"]["openAPIV3Schema"])


class Resource:
    """One version of a resource in a namespace."""

    def __init__(self, client: Client, type_: ResourceType, namespace: str) -> None:
        self._client, self._type = client, type_
        self._collection = type_.path(namespace)
        self._path = type_.path(namespace, "mnist")

    def refusal(self, case: Case) -> str:
        """The message of the API server; "" when it accepts the spec."""
        if case.old is None:
            return self._send("POST", f"{self._collection}?dryRun=All", case.spec)
        self.create(case.old)
        try:
            version = self._client.get(self._path)["metadata"]["resourceVersion"]
            path = f"{self._path}?dryRun=All"
            return self._send("PUT", path, case.spec, resourceVersion=version)
        finally:
            self._client.delete(self._path)

    def create(self, spec: Object, name: str = "mnist") -> None:
        assert self._send("POST", self._collection, spec, name=name) == ""

    def _send(self, method: str, path: str, spec: Object, **metadata: str) -> str:
        head = {"apiVersion": self._type.api_version, "kind": self._type.kind}
        object_ = {**head, "metadata": {"name": "mnist"} | metadata, "spec": spec}
        try:
            self._client.request(method, path, object_)
        except ApiError as error:
            if error.code != UNPROCESSABLE_ENTITY:
                raise
            return str(error)
        return ""


@pytest.mark.parametrize(("kind", "type_", "cases"), TYPES)
def test_the_rules_accept_and_refuse(
    client: Client, namespace: str, kind: Kind, type_: ResourceType, cases: tuple[Case, ...]
) -> None:
    resource = Resource(client, type_, namespace)
    unseen = rules(kind, type_)
    for case in cases:
        refusal = resource.refusal(case)
        violated = [message for message in rules(kind, type_) if message in refusal]
        fields = sorted(message.partition(" must be ")[0] for message in violated)
        assert (case.about, fields) == (case.about, sorted(case.refused)), refusal
        unseen.difference_update(violated)
        if case.old is None:  # the GlobalManager, too, refuses what a rule refuses
            decoded = kind.decode(type_, job(spec=case.spec))
            is_wrong = decoded.invalid is not None
            # A TrainingJob that runs goes on; one that is created with this spec has failed.
            assert is_wrong or getattr(decoded.spec, "start_fault", None) or not violated
    assert not unseen, "no case breaks these rules"


def without_rules(schema: Any) -> Any:
    """A copy of a part of a definition."""
    if isinstance(schema, dict):
        names = [name for name in schema if name != "x-kubernetes-validations"]
        return {name: without_rules(schema[name]) for name in names}
    return [without_rules(one) for one in schema] if isinstance(schema, list) else schema


@pytest.mark.parametrize(
    ("kind", "case"),
    [
        (PYTORCH, pytorch("", {"Master": TWO})),
        (PYTORCH, pytorch("", {"Worker": TWO}, elasticPolicy={"minReplicas": 3, "maxReplicas": 2})),
        (TF, tf("", Chief=1, Master=1)),
        (TRAINING, Case("", example(worker={"minReplicas": 3, "maxReplicas": 2})["spec"])),
    ],
)
def test_an_object_that_is_older_than_a_rule_gets_a_status(
    control_plane: ControlPlane, client: Client, namespace: str, kind: Kind, case: Case
) -> None:
    """Kubernetes 1.30 to 1.32 evaluate the rules of the spec then, too."""
    type_ = kind.definition.resources[0]
    definition = yaml.safe_load(crds.manifests()[f"{type_.group}_{type_.plural}.yaml"])
    resource = Resource(client, type_, namespace)
    replace(control_plane, without_rules(definition))
    eventually("a definition without rules", lambda: resource.refusal(case) == "")
    resource.create(case.spec, "old")
    replace(control_plane, definition)
    eventually("the rules", lambda: resource.refusal(case) != "")
    path = type_.path(namespace, "old")
    client.patch(path, {"metadata": {"labels": {"a": "b"}}})
    client.patch(f"{path}/status", {"status": {"startTime": "2026-01-01T00:00:00Z"}})
    assert client.get(path)["status"] == {"startTime": "2026-01-01T00:00:00Z"}


def test_a_job_that_is_older_than_the_types_of_its_fields_gets_a_status(
    control_plane: ControlPlane, client: Client, namespace: str
) -> None:
    """`nprocPerNode: 2` was accepted before its type was that of the training operator, a text."""
    type_ = PYTORCH.definition.resources[0]
    definition = yaml.safe_load(crds.manifests()[f"{type_.group}_{type_.plural}.yaml"])
    resource = Resource(client, type_, namespace)
    case = pytorch("", {"Master": ONE}, nprocPerNode=2)
    loose = copy.deepcopy(definition)
    for version in loose["spec"]["versions"]:
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        spec["properties"]["nprocPerNode"] = {"x-kubernetes-int-or-string": True}
    replace(control_plane, loose)
    eventually("a definition that accepts a number", lambda: resource.refusal(case) == "")
    resource.create(case.spec, "old")
    replace(control_plane, definition)
    eventually("the type", lambda: resource.refusal(case) != "")
    path = type_.path(namespace, "old")
    client.patch(path, {"metadata": {"labels": {"a": "b"}}})
    client.patch(f"{path}/status", {"status": {"startTime": "2026-01-01T00:00:00Z"}})
    assert client.get(path)["spec"]["nprocPerNode"] == 2


def replace(plane: ControlPlane, definition: Object) -> None:
    done = plane.kubectl("apply", "-f", "-", documents=[definition])
    assert done.returncode == 0, done.stderr
