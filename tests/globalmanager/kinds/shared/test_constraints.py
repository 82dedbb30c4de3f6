"""One table of constraints: the API server's schema and the reconciler refuse the same specs."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgeai.api.specs import InvalidSpec
from edgeai.localcluster.objects import schemas
from globalmanager.contract import Kind
from globalmanager.kinds.shared.constraints import Constraint, validations
from globalmanager.kinds.training.pytorchjob import KIND as PYTORCH
from globalmanager.kinds.training.pytorchjob.spec import CONSTRAINTS as OF_PYTORCH
from globalmanager.kinds.training.tfjob import KIND as TF
from globalmanager.kinds.training.tfjob.spec import CONSTRAINTS as OF_TF
from globalmanager.manifests import crds
from tests.globalmanager.kinds.training.samples import pytorch_spec, template, tf_spec
from tests.support.world import job

EXAMPLES = Path(__file__).parents[4] / "edgeai" / "demo"
TABLES = ((PYTORCH, OF_PYTORCH), (TF, OF_TF))


def schema_of(kind: Kind) -> dict[str, Any]:
    version = crds.crd(kind, kind.definition.resources[0])["spec"]["versions"][0]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def refusals(kind: Kind, object_: dict[str, Any]) -> list[str]:
    """What the API server says."""
    return [str(fault) for fault in schemas.validate(schema_of(kind), object_)]


# ---- what both refuse ----


def with_policy(**policy: Any) -> dict[str, Any]:
    return pytorch_spec(run=policy)


POLICY = "spec.runPolicy"
BAD = [
    (PYTORCH, {"pytorchReplicaSpecs": {}}, "spec.pytorchReplicaSpecs"),
    (
        PYTORCH,
        {"pytorchReplicaSpecs": {key: {"template": {}} for key in ("Master", "Worker", "PS")}},
        "spec.pytorchReplicaSpecs",
    ),
    (PYTORCH, pytorch_spec(1001), "spec.pytorchReplicaSpecs.Worker.replicas"),
    (PYTORCH, pytorch_spec(-1), "spec.pytorchReplicaSpecs.Worker.replicas"),
    (PYTORCH, pytorch_spec(policy="Sometimes"), "spec.pytorchReplicaSpecs.Master.restartPolicy"),
    (PYTORCH, pytorch_spec(nprocPerNode="many"), "spec.nprocPerNode"),
    (PYTORCH, with_policy(cleanPodPolicy="Some"), f"{POLICY}.cleanPodPolicy"),
    (PYTORCH, with_policy(ttlSecondsAfterFinished=-1), f"{POLICY}.ttlSecondsAfterFinished"),
    (PYTORCH, with_policy(activeDeadlineSeconds=0), f"{POLICY}.activeDeadlineSeconds"),
    (PYTORCH, with_policy(backoffLimit=-1), f"{POLICY}.backoffLimit"),
    (PYTORCH, with_policy(backoffLimit=2**31), f"{POLICY}.backoffLimit"),
    (PYTORCH, with_policy(restartScope="Pod"), f"{POLICY}.restartScope"),
    (PYTORCH, with_policy(managedBy="me"), f"{POLICY}.managedBy"),
    (
        PYTORCH,
        with_policy(schedulingPolicy={"minAvailable": -1}),
        f"{POLICY}.schedulingPolicy.minAvailable",
    ),
    (
        PYTORCH,
        with_policy(schedulingPolicy={"scheduleTimeoutSeconds": -1}),
        f"{POLICY}.schedulingPolicy.scheduleTimeoutSeconds",
    ),
    (TF, tf_spec(), "spec.tfReplicaSpecs"),
    (TF, tf_spec(Worker=1) | {"successPolicy": "Any"}, "spec.successPolicy"),
    (TF, tf_spec(Worker=1) | {"cleanPodPolicy": "Some"}, "spec.cleanPodPolicy"),
]


@pytest.mark.parametrize(("kind", "spec", "field"), BAD)
def test_schema_and_reconciler_refuse_the_same_field(
    kind: Kind, spec: dict[str, Any], field: str
) -> None:
    object_ = job("mnist", spec)
    with pytest.raises(InvalidSpec) as error:
        kind.read(object_)
    assert error.value.path == field
    assert any(fault.startswith(field) for fault in refusals(kind, object_))


def test_each_row_with_a_schema_has_an_example_that_both_refuse() -> None:
    shown = {(kind.definition.name, _with_any(field)) for kind, _, field in BAD}
    shared = {field for _, field in shown if field.startswith(POLICY)}
    for kind, table in TABLES:
        named = {row.field for row in table if row.schema}
        known = {field for name, field in shown if name == kind.definition.name} | shared
        assert {f for f in named if "ReplicaSpecs.*" not in f} <= known
    assert {row.field for row in OF_PYTORCH if row.schema} <= {
        field for name, field in shown if name == "PyTorchJob"
    }


def _with_any(field: str) -> str:
    return field.replace(".Worker.", ".*.").replace(".Master.", ".*.")


@pytest.mark.parametrize("junk", [None, 5, "x", [], [1], {"a": None}, {"*": {"replicas": "x"}}])
@pytest.mark.parametrize("kind", [PYTORCH, TF], ids=lambda kind: kind.definition.name)
def test_junk_is_refused_and_nothing_else_happens(kind: Kind, junk: Any) -> None:
    field = "pytorchReplicaSpecs" if kind is PYTORCH else "tfReplicaSpecs"
    for spec in (junk, {field: junk}, {field: {"Worker": junk}}, {field: {}, "runPolicy": junk}):
        with pytest.raises(InvalidSpec):
            kind.read(job("mnist", spec))


# ---- what must stay accepted ----


GOOD = [
    (TF, {"tfReplicaSpecs": {"worker": {"template": template("tensorflow")}}}),
    (TF, {"tfReplicaSpecs": {"WORKER": {"template": template("tensorflow")}}}),
    (TF, {"tfReplicaSpecs": {"Eval": {"template": template("tensorflow")}}}),
    (TF, tf_spec(Worker=0, PS=1)),
    (TF, tf_spec(Chief=1, Evaluator=1, PS=1, Worker=2) | {"successPolicy": ""}),
    (PYTORCH, pytorch_spec(nprocPerNode="4")),
    (PYTORCH, pytorch_spec(nprocPerNode="auto")),
    (PYTORCH, pytorch_spec(run={"managedBy": "kubeflow.org/training-operator"})),
    (PYTORCH, pytorch_spec(run={"schedulingPolicy": {"queue": "q", "minAvailable": 0}})),
    (PYTORCH, pytorch_spec(1000)),
]


@pytest.mark.parametrize(("kind", "spec"), GOOD)
def test_what_users_write_stays_accepted(kind: Kind, spec: dict[str, Any]) -> None:
    object_ = job("mnist", spec)
    assert refusals(kind, object_) == []
    kind.read(object_)


def test_a_number_and_a_text_of_processes_mean_the_same() -> None:
    as_number, as_text = (
        PYTORCH.read(job("mnist", pytorch_spec(nprocPerNode=value))) for value in (4, "4")
    )
    assert as_number == as_text


def test_the_examples_are_accepted() -> None:
    kinds = {"PyTorchJob": PYTORCH, "TFJob": TF}
    for path in EXAMPLES.rglob("*.yaml"):
        for document in yaml.safe_load_all(path.read_text()):
            if isinstance(document, dict) and (kind := kinds.get(document.get("kind", ""))):
                assert refusals(kind, copy.deepcopy(document)) == [], path
                kind.read(document)


# ---- the rules in CEL ----


@pytest.mark.parametrize(("kind", "table"), TABLES, ids=["PyTorchJob", "TFJob"])
def test_each_cel_rule_stands_in_the_definition(kind: Kind, table: tuple[Constraint, ...]) -> None:
    expected = {each.message for each in validations(table)}
    for version in crds.crd(kind, kind.definition.resources[0])["spec"]["versions"]:
        text = str(version["schema"])
        assert all(message in text for message in expected)
    assert any("managedBy" in message and "same" in message for message in expected)
    assert any("schedulingPolicy.queue" in message for message in expected)
