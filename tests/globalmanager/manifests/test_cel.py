"""The CEL rules of the definitions in deploy/crds-cel take and refuse what the documentation says.

No API server here evaluates CEL, so a CEL library does (`cel`). What Kubernetes demands of a rule
beside that is tested too: kubernetes.io, Extend the Kubernetes API with CustomResourceDefinitions,
sections Validation rules and Resource use by validation functions.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

import pytest

from edgeai.api.resources import Object, ResourceType
from globalmanager.contract import Kind
from globalmanager.kinds import KINDS
from globalmanager.kinds.elastic.trainingjob import KIND as TRAINING
from globalmanager.kinds.training.pytorchjob import KIND as PYTORCH
from globalmanager.kinds.training.tfjob import KIND as TF
from globalmanager.manifests import crds
from tests.globalmanager.kinds.elastic.world import example
from tests.globalmanager.kinds.training.samples import pytorch_spec, template, tf_spec
from tests.globalmanager.manifests.cel import Program, Rule, rules
from tests.support.world import job

REPLICAS: Final = "spec.pytorchReplicaSpecs"
TF_REPLICAS: Final = "spec.tfReplicaSpecs"
MANAGER: Final = "spec.runPolicy.managedBy"
QUEUE: Final = "spec.runPolicy.schedulingPolicy.queue"

RULES: Final = [
    pytest.param(kind, type_, rule, id=f"{type_}/{type_.version} {'.'.join(rule.path)} {number}")
    for kind in KINDS
    for type_ in kind.definition.types
    for number, rule in enumerate(
        rule
        for version in crds.crd(kind, type_, has_cel=True)["spec"]["versions"]
        if version["name"] == type_.version
        for rule in rules(version["schema"]["openAPIV3Schema"])
    )
]


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
    pytorch("a number of processes", {"Master": ONE}, nprocPerNode=2),
    pytorch("the same as a text", {"Master": ONE}, nprocPerNode="2"),
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


def programs(type_: ResourceType) -> list[tuple[Rule, Program]]:
    """The rules of one version of a resource."""
    return [(rule, Program(rule)) for _, of, rule in _rules() if of == type_]


def _rules() -> list[tuple[Kind, ResourceType, Rule]]:
    return [param.values for param in RULES]  # type: ignore[misc]


def refused(type_: ResourceType, case: Case) -> list[str]:
    """The fields that the messages of the violated rules begin with."""
    old = None if case.old is None else {"spec": case.old}
    return [
        rule.message.partition(" must be ")[0]
        for rule, program in programs(type_)
        if not program.allows({"spec": case.spec}, old)
    ]


@pytest.mark.parametrize(
    ("kind", "type_", "case"),
    [
        pytest.param(kind, type_, case, id=f"{type_.kind}/{type_.version} {case.about}")
        for kind, cases in CASES
        for type_ in kind.definition.types
        for case in cases
    ],
)
def test_a_rule_takes_and_refuses(kind: Kind, type_: ResourceType, case: Case) -> None:
    found = refused(type_, case)
    assert sorted(found) == sorted(case.refused)
    if case.old is None:  # the GlobalManager, too, refuses what a rule refuses
        decoded = kind.decode(type_, job(spec=case.spec))
        is_wrong = decoded.invalid is not None
        # A TrainingJob that runs goes on; one that is created with this spec has failed.
        assert is_wrong or getattr(decoded.spec, "start_fault", None) or not found


@pytest.mark.parametrize(("kind", "type_", "rule"), RULES)
def test_every_rule_is_in_the_table_with_what_it_takes_and_what_it_refuses(
    kind: Kind, type_: ResourceType, rule: Rule
) -> None:
    program = Program(rule)
    (table,) = (cases for one, cases in CASES if one is kind)
    cases = [case for case in table if case.old is not None or not rule.is_about_an_edit]
    found = {
        program.allows({"spec": case.spec}, None if case.old is None else {"spec": case.old})
        for case in cases
    }
    assert found == {True, False}


# ---- what an API server demands of a rule -------------------------------------------------------


@pytest.mark.parametrize(("kind", "type_", "rule"), RULES)
def test_a_rule_has_the_form_that_kubernetes_demands(
    kind: Kind, type_: ResourceType, rule: Rule
) -> None:
    assert Program(rule).type.name() == "BOOL"
    assert rule.path[:1] == ("spec",), "of metadata a rule sees only name and generateName"
    assert 0 < len(rule.message) <= 2048
    assert "\n" not in rule.message
    assert "[]" not in rule.path, "the entry of a list before an edit cannot be found again"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("has(self.replicas)", "undefined field"),
        ("self.elasticPolicy.minReplicas == ''", "no matching overload"),
        ("self.minReplicas <= ", "Syntax error"),
        ("older == self", "undeclared reference"),
    ],
)
def test_a_rule_that_an_api_server_would_not_compile_does_not_compile_here(
    text: str, problem: str
) -> None:
    (version,) = crds.crd(PYTORCH, PYTORCH.definition.resources[0])["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    with pytest.raises(Exception, match=problem):
        Program(Rule(("spec",), spec, text, "spec must be right"))


RULE_COST: Final = 10_000_000
"""StaticEstimatedCostLimit of the API server, for one rule."""
CRD_COST: Final = 100_000_000
"""StaticEstimatedCRDCostLimit, for all rules of a definition."""
_REQUEST_BYTES: Final = 3 * 1024 * 1024  # the longest text that a request can bring
_MACRO: Final = re.compile(r"(\[[^\]]*\])?\.(?:all|exists|exists_one|map|filter)\(")


def cost(rule: Rule) -> float:
    """More than the API server estimates: as if every word of the rule walked through the longest
    text of the field, a tenth of a unit a character, in every round of every loop.
    """
    rounds = 1
    for looped in _MACRO.findall(rule.text):
        assert looped, f"{rule.text}: a loop over anything but a list of constants is not bounded"
        rounds *= looped.count(",") + 1
    words = len(re.findall(r"\w+|[^\w\s]+", rule.text))
    assert "*" not in rule.path, f"{rule.path}: is evaluated once for each entry of a map"
    return words * rounds * max(1.0, 0.1 * _longest_text(rule))


def _longest_text(rule: Rule) -> int:
    """Of the texts that the rule compares: the field itself, or the fields that the rule names."""
    texts = [rule.schema] if rule.schema.get("type") == "string" else []
    texts += [
        schema
        for name, schema in _fields(rule.schema)
        if schema.get("type") == "string" and re.search(rf"\.{name}\s*(==|!=|\?|:)", rule.text)
    ]
    return max(map(_length, texts), default=0)


def _fields(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, inner in (schema.get("properties") or {}).items():
        yield name, inner
        yield from _fields(inner)


def _length(schema: Mapping[str, Any]) -> int:
    if "enum" in schema:
        return max(map(len, schema["enum"]))
    return int(schema.get("maxLength", _REQUEST_BYTES))


@pytest.mark.parametrize(
    ("kind", "type_"),
    [
        pytest.param(kind, type_, id=f"{type_}/{type_.version}")
        for kind in KINDS
        if kind.validations
        for type_ in kind.definition.types
    ],
)
def test_the_rules_cost_less_than_an_api_server_allows(kind: Kind, type_: ResourceType) -> None:
    costs = [cost(rule) for _, of, rule in _rules() if of == type_]
    assert max(costs) < RULE_COST
    assert sum(costs) * len(kind.definition.types) < CRD_COST
