"""The definitions of the chart match the kinds, and reject specs of no use; tests/cluster/test_crds
lets the API server judge whether their schemas are structural.
"""

import copy
import functools
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

from edgeai.api.definitions import Definition
from edgeai.api.resources import ResourceType
from edgeai.api.schemas import Column, structural
from edgeai.localcluster.objects import schemas
from globalmanager.contract import Kind, Plan
from globalmanager.kinds import KINDS
from globalmanager.kinds.edge.jointinferenceservice import KIND as JOINT
from globalmanager.manifests import crds
from tests.globalmanager.kinds.edge.samples import PROPOSAL, SEDNA_STYLE, small_service
from tests.support.manifests import documents
from tests.support.world import from_yaml, report

DIRECTORY = Path(__file__).parents[3] / "deploy" / "chart" / "definitions"
ALL = [
    pytest.param(kind, type_, id=str(type_)) for kind in KINDS for type_ in kind.definition.types
]


(VERSION,) = crds.crd(JOINT, JOINT.definition.resources[0])["spec"]["versions"]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]


def faults(object_: Any) -> list[str]:
    return [str(fault) for fault in schemas.validate(SCHEMA, object_)]


def assert_kept(object_: Any) -> None:
    """All fields."""
    assert faults(object_) == []
    _, unknown = schemas.prune(SCHEMA, object_, root=True)
    assert unknown == []


@functools.cache
def generated() -> dict[str, str]:
    return crds.manifests()


def texts(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text(encoding="utf-8") for path in directory.iterdir()}


def test_the_files_are_up_to_date(tmp_path: Path) -> None:
    """When this fails: make crds"""
    crds.write(tmp_path / "new")
    assert texts(DIRECTORY) == texts(tmp_path / "new") == generated()


@pytest.mark.parametrize(("kind", "type_"), ALL)
def test_the_manifest_is_plain_yaml(kind: Kind, type_: Any) -> None:
    text = generated()[f"{type_.group}_{type_.plural}.yaml"]
    assert documents(text) == [crds.crd(kind, type_)]
    assert "&id" not in text


@pytest.mark.parametrize(("kind", "type_"), ALL)
def test_a_resource_has_columns_names_and_a_status_subresource(kind: Kind, type_: Any) -> None:
    spec = crds.crd(kind, type_)["spec"]
    assert spec["names"]["categories"] == ["edgeai"]
    for version in spec["versions"]:
        assert version["subresources"]["status"] == {}
        assert "Age" in [column["name"] for column in version["additionalPrinterColumns"]]
        status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
        assert status["conditions"]["x-kubernetes-list-map-keys"] == ["type"]


def test_no_two_kinds_share_a_name_within_a_group() -> None:
    short = [
        name for kind in KINDS for names in kind.definition.short_names.values() for name in names
    ]
    names = short + [kind.definition.singular for kind in KINDS]
    names += {type_.plural for kind in KINDS for type_ in kind.definition.types}
    assert len(names) == len(set(names))
    assert "ds" not in names  # the DaemonSet's


@pytest.mark.parametrize("text", [PROPOSAL, SEDNA_STYLE], ids=["proposal", "Sedna"])
def test_the_schema_keeps_every_field_of_users_manifests(text: str) -> None:
    assert_kept(from_yaml(text))


def test_the_schema_keeps_every_field_of_a_planned_status() -> None:
    world = small_service().contact("edge0").settle()
    world.receive(report(counts={"seen": 4, "loss": 0.5}, details={"note": "x"}))
    world.settle().available("edge", "cloud").settle()
    assert_kept(world.object)


EDGE = ("spec", "edgeWorker")


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        pytest.param((*EDGE, "hardExampleAlgorithm", "name"), "Guess", "supported", id="mining"),
        pytest.param((*EDGE, "model", "name"), "", "at least 1 chars", id="empty model"),
        pytest.param((*EDGE, "model"), {}, "Required value", id="no model"),
        pytest.param(
            (*EDGE, "template"), {"spec": {"containers": []}}, "1 items", id="no container"
        ),
        pytest.param((*EDGE, "template"), {"spec": {}}, "Required value", id="no containers"),
        pytest.param(("spec", "cloudWorker", "hpa"), {"maxReplicas": 0}, "than", id="replicas"),
        pytest.param(("spec", "cloudWorker", "nodeName"), 5, "type string", id="wrong type"),
    ],
)
def test_the_api_server_refuses_specs_that_cannot_work(
    path: tuple[str, ...], value: Any, told: str
) -> None:
    object_ = copy.deepcopy(from_yaml(PROPOSAL))
    target = object_
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    (fault,) = faults(object_)
    assert told in fault


class Union(msgspec.Struct):
    either: bool | str


class Number(msgspec.Struct):
    count: int | str | None = None


def test_a_number_that_may_be_a_text_has_the_schema_that_kubernetes_has_for_it() -> None:
    schema = structural(Number)["properties"]["count"]
    assert schema == {"x-kubernetes-int-or-string": True}
    assert [schemas.validate(schema, value) for value in (4, "4")] == [[], []]
    assert schemas.validate(schema, 4.5)


class Empty(msgspec.Struct):
    """As Go's struct{}."""


class Holder(msgspec.Struct):
    empty: Empty


def test_a_struct_without_fields_keeps_no_unknown_field() -> None:
    """A Go client could not read them."""
    assert structural(Holder)["properties"]["empty"]["type"] == "object"
    assert "x-kubernetes-preserve-unknown-fields" not in structural(Holder)["properties"]["empty"]


def test_a_field_of_several_types_is_refused_when_generating() -> None:
    with pytest.raises(ValueError, match="several types"):
        structural(Union)


class Above(msgspec.Struct):
    share: Annotated[float, msgspec.Meta(gt=0)]


def test_a_bound_that_leaves_its_number_out_is_refused_when_generating() -> None:
    with pytest.raises(ValueError, match="use ge or le"):
        structural(Above)


# ---- several versions of one resource -----------------------------------------------------------


class Status(msgspec.Struct):
    phase: str = ""


class Spec(msgspec.Struct, rename="camel"):
    replicas: int = 0
    """How many; `workers` in v1."""
    workers: int | None = None


def test_versions_of_one_resource_are_one_crd_and_the_first_is_stored() -> None:
    types = tuple(
        ResourceType("edgeai.io", version, "trains", "Train") for version in ("v1", "v1alpha1")
    )
    kind = Kind(
        definition=Definition(types=types, spec=Spec, status=Status),
        columns=(Column("Phase", "string", ".status.phase"),),
        read=lambda _object: None,
        plan=lambda _observed, _now: Plan(),
    )
    document = crds.crd(kind, types[0])
    first, second = document["spec"]["versions"]
    assert document["metadata"]["name"] == "trains.edgeai.io"
    assert [first[key] for key in ("name", "served", "storage")] == ["v1", True, True]
    assert [second[key] for key in ("name", "served", "storage")] == ["v1alpha1", True, False]
    schema = first["schema"]["openAPIV3Schema"]
    assert {*schema["properties"]["spec"]["properties"]} == {"replicas", "workers"}
    for version in (first, second):
        assert version["schema"]["openAPIV3Schema"] == schema
        assert version["subresources"] == {"status": {}}
        (column,) = version["additionalPrinterColumns"]
        assert column["name"] == "Phase"
    assert all(crds.crd(kind, type_) == document for type_ in types)
