"""The typed objects are the structs of the kinds, and lose nothing of what a user has written."""

import copy
import pickle
import re
from pathlib import Path
from string import Template
from typing import Any, Final

import msgspec
import pytest
import yaml

from edgeai.api.model import ModelSpec
from edgeai.api.resources import POD_CONTROLLERS
from edgeai.client import InvalidObject, JointInferenceService, Model, UnknownKind, WaitTimeout
from edgeai.client.objects import CLASSES, plain
from edgeai.client.words import check_document, parse_job, resource, types_named
from edgeai.errors import EdgeAIError, InvalidName, Overloaded, SettingsError
from edgeai.kube import errors
from globalmanager.kinds import KINDS
from tests.globalmanager.kinds.edge.samples import PROPOSAL, SEDNA_STYLE

MODEL: Final = Model.of("small", ModelSpec(url="/m"))
EXAMPLES: Final = Path(__file__).parents[3] / "edgeai" / "demo"


class Filled(dict[str, str]):
    """Numbers where a name says so, as the examples' own programs fill them in."""

    def __missing__(self, key: str) -> str:
        return (
            "1" if re.search("REPLICAS|WORKERS|ROUNDS|SECONDS|MINIMUM|MAXIMUM|STEPS", key) else "a"
        )


def documents() -> list[Any]:
    found: list[Any] = [yaml.safe_load(text) for text in (PROPOSAL, SEDNA_STYLE)]
    for file in sorted(EXAMPLES.rglob("*.yaml")):
        filled = Filled(ATTACH_MODE="ssh", SHA256="0" * 64)
        text = Template(file.read_text()).safe_substitute(filled)
        found += [each for each in yaml.safe_load_all(text) if each]
    known = [type_.kind for kind in KINDS for type_ in kind.definition.types]
    return [each for each in found if each["kind"] in known]


def test_every_kind_has_a_class_of_its_own_with_the_structs_of_the_kind() -> None:
    assert sorted(class_.__name__ for class_ in CLASSES) == sorted(
        kind.definition.name for kind in KINDS
    )
    for kind in KINDS:
        class_ = next(class_ for class_ in CLASSES if class_.__name__ == kind.definition.name)
        base, definition = class_.__orig_bases__[0], class_.DEFINITION  # type: ignore[attr-defined]
        assert definition is kind.definition
        assert base.__args__ == (definition.spec, definition.status), definition.name
        assert list(definition.pod_owners) == [
            type_ for type_ in kind.owns if type_ in POD_CONTROLLERS
        ]
        assert definition.has_workers == bool(kind.owns)


def test_the_help_of_a_spec_is_its_own() -> None:
    specs = [class_.DEFINITION.spec for class_ in CLASSES]
    assert [spec.__name__ for spec in specs if not vars(spec).get("__doc__")] == []


@pytest.mark.parametrize("document", documents(), ids=lambda each: each["kind"])
def test_a_spec_that_was_read_is_written_as_it_was(document: Any) -> None:
    found = resource(document)
    again = type(found).of(found.name, found.spec, group=found.type.group)
    assert msgspec.convert(again.object["spec"], type(found.spec)) == found.spec
    assert nulls(again.object) == []


def nulls(value: Any) -> list[Any]:
    """What a real API server refuses in a field that is no null."""
    if isinstance(value, dict):
        return [each for inner in value.values() for each in nulls(inner)]
    if isinstance(value, list):
        return [each for inner in value for each in nulls(inner)]
    return [value] if value is None else []


def test_a_default_is_not_written_and_a_value_is() -> None:
    assert plain(ModelSpec(url="/a", format="")) == {"url": "/a"}
    assert plain(ModelSpec(url="/a", format="onnx")) == {"url": "/a", "format": "onnx"}


def test_an_object_without_a_status_has_the_defaults() -> None:
    model = Model.of("small", ModelSpec(url="/a"))
    assert (model.status.conditions, model.uid, model.namespace) == ([], "", "")


def test_a_wrong_field_is_named_only_when_it_is_read() -> None:
    head = {"apiVersion": "edgeai.io/v1alpha1", "kind": "Model", "metadata": {"name": "m"}}
    wrong = Model({**head, "spec": {"format": "onnx"}})
    assert wrong.name == "m"
    with pytest.raises(InvalidObject, match=r"Model m: spec\.url is missing; set it"):
        _ = wrong.spec


def test_an_object_of_another_kind_is_refused() -> None:
    with pytest.raises(InvalidObject, match=r"use JointInferenceService of edgeai\.io/v1alpha1 or"):
        JointInferenceService(Model.of("m", ModelSpec(url="/a")).object)
    with pytest.raises(InvalidObject, match=r"'x\.io' is not its; use edgeai\.io, sedna\.io"):
        Model.of("m", ModelSpec(url="/a"), group="x.io")


@pytest.mark.parametrize(
    ("word", "groups"),
    [
        ("jis", ["edgeai.io"]),
        ("ji", ["sedna.io"]),
        ("JointInferenceService", ["edgeai.io", "sedna.io"]),
        ("jointinferenceservices.sedna.io", ["sedna.io"]),
        ("pytorchjob", ["kubeflow.org"]),
    ],
)
def test_the_words_of_a_kind(word: str, groups: list[str]) -> None:
    assert [type_.group for type_ in types_named(word, "JOB")] == groups


@pytest.mark.parametrize("word", ["pods", "", "jis.sedna.io", "\x1b[31m", "x" * 1000])
def test_an_unknown_kind_is_named_with_the_known_ones(word: str) -> None:
    with pytest.raises(UnknownKind) as raised:
        types_named(word, "JOB")
    assert "jointinferenceservice (jis, ji)" in str(raised.value)
    assert str(raised.value).isprintable()
    assert len(str(raised.value)) < 600


@pytest.mark.parametrize("text", ["", "a b", "jis/", "jis/A", "x" * 300, "\x1b[0m"])
def test_a_name_that_is_no_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidName, match="JOB"):
        parse_job(text)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (None, "is not a mapping"),
        ([1], "is not a mapping"),
        ({"kind": "Pod", "apiVersion": "v1"}, "'Pod of v1' is not a kind of edgeai"),
        ({"kind": "Model", "apiVersion": "edgeai.io/v9"}, "Model of edgeai.io/v1alpha1"),
        ({"kind": "Model", "apiVersion": "edgeai.io/v1alpha1"}, "metadata.name is missing"),
        ({"kind": {}, "apiVersion": [], "metadata": 3}, "is not a kind of edgeai"),
    ],
)
def test_a_document_that_is_no_object_is_refused(document: Any, words: str) -> None:
    with pytest.raises((InvalidObject, UnknownKind)) as raised:
        check_document(document, "document 2 of job.yaml")
    assert words in str(raised.value)
    assert str(raised.value).startswith("document 2 of job.yaml: ")


ERRORS: Final[tuple[EdgeAIError, ...]] = (
    errors.ServerError("get", "models.edgeai.io", code=500, reason="InternalError", message="m"),
    SettingsError("flag --a", "is wrong"),
    Overloaded("the API", 3.0),
    InvalidObject("document 1", "spec", "is missing", "write it"),
    WaitTimeout(MODEL.ref, "condition Running", 3.0, "for a node"),
)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_comes_whole_out_of_another_process(error: EdgeAIError) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.__dict__) == (type(error), str(error), error.__dict__)
    assert str(copy.copy(error)) == str(error)


def test_an_object_is_shown_by_its_name_and_not_by_what_it_holds() -> None:
    assert repr(MODEL) == "<Model small of edgeai.io/v1alpha1>"
    there = Model.of("small", ModelSpec(url="/m"), namespace="team", group="sedna.io")
    assert f"{there!r} {there}" == "<Model team/small of sedna.io/v1alpha1> Model team/small"
    again = pickle.loads(pickle.dumps(there))
    assert (again.object, again.spec, again.type) == (there.object, there.spec, there.type)
