"""Custom resources: what their schema does to objects, and which definitions are refused."""

from collections.abc import Iterator
from typing import Any, Final

import pytest

from edgeai.cli.api import Object
from tests.conformance.clusters import AnyCluster
from tests.conformance.objects import GROUP, widget, widget_crd
from tests.conformance.space import Space
from tests.support.client import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, Client
from tests.support.waiting import eventually

CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"

# Pruned and defaulted

SHAPED: dict[str, tuple[Object, Object]] = {
    "default": ({}, {"replicas": 1}),
    "given": ({"replicas": 5}, {"replicas": 5}),
    "null counts as absent": ({"replicas": None}, {"replicas": 1}),
    "null without default goes": ({"color": None}, {"replicas": 1}),
    "nullable null stays": ({"note": None}, {"replicas": 1, "note": None}),
    "default in a list": (
        {"parts": [{"name": "a"}, {"name": "b", "weight": 2}]},
        {"replicas": 1, "parts": [{"name": "a", "weight": 1.5}, {"name": "b", "weight": 2}]},
    ),
    "unknown": ({"colour": "red"}, {"replicas": 1}),
    "unknown in a list": (
        {"parts": [{"name": "a", "nam": "b", "weight": 1}]},
        {"replicas": 1, "parts": [{"name": "a", "weight": 1}]},
    ),
    "preserved": ({"free": {"any": {"thing": 1}}}, {"replicas": 1, "free": {"any": {"thing": 1}}}),
    "map of texts": ({"tags": {"a": "b"}}, {"replicas": 1, "tags": {"a": "b"}}),
}


@pytest.mark.parametrize("case", SHAPED)
def test_an_object_is_pruned_and_filled_in(space: Space, case: str) -> None:
    given, expected = SHAPED[case]
    assert space.create("widgets", widget(**given))["spec"] == {"size": 3, **expected}


def test_an_unknown_field_at_the_top_is_pruned(space: Space) -> None:
    created = space.create("widgets", {**widget(), "extra": 1})
    assert "extra" not in created


def test_a_patched_object_is_pruned_too(space: Space) -> None:
    space.create("widgets", widget())
    patched = space.patch("widgets", "one", {"spec": {"colour": "red", "color": "red"}}).ok()
    assert patched["spec"] == {"size": 3, "replicas": 1, "color": "red"}


def test_an_object_beyond_etcds_limit_is_refused_in_etcds_words(space: Space) -> None:
    space.create("widgets", widget(free={"text": "x" * 1_570_000}))
    status = {"workers": {"edge0": {"text": "y" * 8_000}}}
    answer = space.patch("widgets", "one", {"status": status}, subresource="status")
    assert answer.status == 500
    assert answer.body["message"] == "etcdserver: request is too large"


def test_a_status_is_kept_whatever_it_has_where_the_schema_says_so(space: Space) -> None:
    space.create("widgets", widget())
    status = {"workers": {"edge0": {"seen": 1}}, "list": [{"a": 1}]}
    written = space.patch("widgets", "one", {"status": status}, subresource="status").ok()
    assert written["status"] == status


# Refused

REFUSED: dict[str, tuple[Object, set[tuple[str, str]]]] = {
    "minimum": ({"size": 0}, {("spec.size", "FieldValueInvalid")}),
    "enum": ({"color": "blue"}, {("spec.color", "FieldValueNotSupported")}),
    "pattern": ({"code": "A"}, {("spec.code", "FieldValueInvalid")}),
    "required in a list": ({"parts": [{}]}, {("spec.parts.name", "FieldValueRequired")}),
    "several": (
        {"size": 0, "color": "blue"},
        {("spec.size", "FieldValueInvalid"), ("spec.color", "FieldValueNotSupported")},
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_each_wrong_field_is_named(space: Space, case: str) -> None:
    given, causes = REFUSED[case]
    answer = space.post("widgets", widget(**given))
    assert answer.refusal == (422, "Invalid")
    assert {(_unindexed(field), reason) for field, reason in answer.causes} == causes


def _unindexed(field: str) -> str:
    """Kubernetes before 1.23 leaves the index of a list's item out."""
    return field.replace("[0]", "").replace("[1]", "")


WRONG_FORM: dict[str, tuple[Object, str]] = {
    "type": ({"size": "three"}, "spec.size"),
    "boolean is no integer": ({"size": True}, "spec.size"),
    "fraction is no integer": ({"size": 1.5}, "spec.size"),
    "null in a list": ({"parts": [None]}, "spec.parts"),
    "too many items": ({"parts": [{"name": n} for n in "abc"]}, "spec.parts"),
    "too long": ({"code": "abcde"}, "spec.code"),
    "neither number nor text": ({"share": []}, "spec.share"),
    "map of texts": ({"tags": {"a": 1}}, "spec.tags.a"),
    "spec that is no map": ({}, "spec"),
}


@pytest.mark.parametrize("case", WRONG_FORM)
def test_a_value_of_the_wrong_form_is_named(space: Space, case: str) -> None:
    given, field = WRONG_FORM[case]
    object_: Object = widget(**given) if given else {**widget(), "spec": "a word"}
    answer = space.post("widgets", object_)
    assert answer.refusal == (422, "Invalid")
    assert field in {_unindexed(found) for found, _ in answer.causes}
    assert answer.body["message"].startswith('Widget.conformance.test "one" is invalid: ')


def test_the_spec_itself_can_be_required(space: Space) -> None:
    answer = space.post("widgets", {**widget(), "spec": None})
    assert answer.refusal == (422, "Invalid")
    assert "spec" in answer.body["message"]


ACCEPTED: dict[str, Object] = {
    "number or text: number": {"share": 3},
    "number or text: text": {"share": "25%"},
    "nullable": {"note": None},
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_a_schema_allows_is_accepted(space: Space, case: str) -> None:
    given = ACCEPTED[case]
    spec = space.create("widgets", widget(**given))["spec"]
    assert {field: spec[field] for field in given} == given


# Strictness, where the client asks for it


def test_unknown_fields_are_an_error_a_warning_or_nothing(space: Space) -> None:
    typo = widget(colour="red", parts=[{"name": "a", "nam": "x"}])
    refused = space.post("widgets", typo, fieldValidation="Strict")
    assert refused.refusal == (400, "BadRequest")
    for name in ("spec.colour", "spec.parts[0].nam"):
        assert f'unknown field "{name}"' in refused.body["message"]
    warned = space.post("widgets", typo, fieldValidation="Warn", dryRun="All")
    assert 'unknown field \\"spec.colour\\"' in warned.headers["Warning"]
    ignored = space.post("widgets", typo, fieldValidation="Ignore")
    assert (ignored.status, "Warning" in ignored.headers) == (201, False)


def test_unknown_fields_are_an_error_in_every_way_to_write(space: Space) -> None:
    """Where a request says so; and what was stored before stays as it was."""
    made = space.create("widgets", widget(note="a"))
    typo = {**made, "spec": {**made["spec"], "colour": "red"}}
    replaced = space.put("widgets", typo, fieldValidation="Strict")
    assert replaced.refusal == (400, "BadRequest")
    patched = space.patch("widgets", "one", {"spec": {"colour": "red"}}, fieldValidation="Strict")
    applied = space.patch(
        "widgets",
        "one",
        {**widget(), "spec": {"colour": "red"}},
        content_type=APPLY_PATCH,
        fieldManager="somebody",
        fieldValidation="Strict",
    )
    for answer in (replaced, patched, applied):
        assert answer.status >= 400
        assert "spec.colour" in answer.body["message"]
    assert space.get("widgets", "one") == made


# Scale


def test_scale_is_where_the_crd_says(space: Space) -> None:
    space.create("widgets", widget(replicas=2))
    space.patch("widgets", "one", {"status": {"replicas": 1}}, subresource="status").ok()
    scale = space.client("GET", space.path("widgets", "one", "scale")).ok()
    assert (scale["kind"], scale["spec"], scale["status"]) == (
        "Scale",
        {"replicas": 2},
        {"replicas": 1},
    )
    changed = space.patch("widgets", "one", {"spec": {"replicas": 7}}, subresource="scale").ok()
    assert changed["spec"]["replicas"] == 7
    assert space.get("widgets", "one")["spec"]["replicas"] == 7


# CRDs themselves


@pytest.fixture
def client(cluster: AnyCluster) -> Client:
    return cluster.client


def test_an_accepted_crd_is_established_under_its_names(client: Client) -> None:
    crd = client("GET", f"{CRDS}/widgets.{GROUP}").ok()
    conditions = {each["type"]: each["status"] for each in crd["status"]["conditions"]}
    assert (conditions["NamesAccepted"], conditions["Established"]) == ("True", "True")
    names = {"singular": "widget", "listKind": "WidgetList", "kind": "Widget", "plural": "widgets"}
    assert crd["status"]["acceptedNames"].items() >= names.items()
    assert crd["status"]["storedVersions"] == ["v1alpha1"]
    assert crd["spec"]["conversion"] == {"strategy": "None"}


def changed(path: str, value: Any) -> Object:
    """The CRD of gadgets with one field set."""
    crd = widget_crd("gadgets", "Gadget")
    *parents, last = path.split(".")
    at: Any = crd
    for step in parents:
        at = at[int(step)] if step.isdecimal() else at[step]
    at[last] = value
    return crd


BAD_CRDS: dict[str, tuple[Object, str]] = {
    "name": (changed("metadata.name", f"wrong.{GROUP}"), "metadata.name"),
    "scope": (changed("spec.scope", "Everywhere"), "spec.scope"),
    "no kind": (changed("spec.names.kind", ""), "spec.names.kind"),
    "no schema": (changed("spec.versions.0.schema", {}), "schema.openAPIV3Schema"),
    "no storage": (changed("spec.versions.0.storage", False), "exactly one version"),
}


@pytest.mark.parametrize("case", BAD_CRDS)
def test_a_crd_that_cannot_be_served_is_refused(client: Client, case: str) -> None:
    crd, text = BAD_CRDS[case]
    answer = client("POST", CRDS, crd)
    assert answer.refusal == (422, "Invalid")
    assert text in answer.body["message"]


@pytest.fixture
def gadgets(space: Space) -> Iterator[Space]:
    """A second kind, served, and withdrawn afterwards."""
    space.client("POST", CRDS, widget_crd("gadgets", "Gadget")).ok()
    path = f"/apis/{GROUP}/v1alpha1/gadgets"
    eventually("being served", lambda: space.client("GET", path).status == 200)
    yield space
    space.client("DELETE", f"{CRDS}/gadgets.{GROUP}")
    eventually("its end", lambda: space.client("GET", f"{CRDS}/gadgets.{GROUP}").status == 404)


def test_versions_of_one_kind_show_the_same_objects(gadgets: Space) -> None:
    crd = f"{CRDS}/gadgets.{GROUP}"
    version = {**widget_crd()["spec"]["versions"][0], "name": "v1", "storage": False}
    operations = [{"op": "add", "path": "/spec/versions/-", "value": version}]
    gadgets.client("PATCH", crd, operations, content_type=JSON_PATCH).ok()
    old, new = (
        f"/apis/{GROUP}/{name}/namespaces/{gadgets.name}/gadgets" for name in ("v1alpha1", "v1")
    )
    eventually("the new version", lambda: gadgets.client("GET", new).status == 200)
    created = gadgets.client("POST", old, widget(kind="Gadget")).ok()
    shown = gadgets.client("GET", f"{new}/one").ok()
    assert (shown["apiVersion"], shown["spec"]) == (f"{GROUP}/v1", created["spec"])
    since = created["metadata"]["resourceVersion"]
    with gadgets.client.watch(new, resourceVersion=since) as watch:
        size = {"spec": {"size": 8}}
        gadgets.client("PATCH", f"{old}/one", size, content_type=MERGE_PATCH).ok()
        assert watch.read()["object"]["apiVersion"] == f"{GROUP}/v1"


def test_a_crd_goes_with_its_objects(gadgets: Space) -> None:
    path = f"/apis/{GROUP}/v1alpha1/namespaces/{gadgets.name}/gadgets"
    made = widget(kind="Gadget")
    made["metadata"]["finalizers"] = ["test/hold"]
    gadgets.client("POST", path, made).ok()
    gadgets.client("POST", path, widget("two", kind="Gadget")).ok()
    crd = f"{CRDS}/gadgets.{GROUP}"
    gadgets.client("DELETE", crd).ok()
    eventually("the end of two", lambda: gadgets.client("GET", f"{path}/two").status == 404)
    assert gadgets.client("GET", crd).status == 200  # it waits for what is held
    free = {"metadata": {"finalizers": None}}
    gadgets.client("PATCH", f"{path}/one", free, content_type=MERGE_PATCH).ok()
    eventually("the end of the CRD", lambda: gadgets.client("GET", crd).status == 404)
    eventually("404", lambda: gadgets.client("GET", path).status == 404)


def test_a_crd_that_became_stricter_judges_what_is_written_then(gadgets: Space) -> None:
    path = f"/apis/{GROUP}/v1alpha1/namespaces/{gadgets.name}/gadgets"
    gadgets.client("POST", path, widget(kind="Gadget", size=1)).ok()
    stricter = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/size/minimum"
    operations = [{"op": "replace", "path": stricter, "value": 5}]
    crd = f"{CRDS}/gadgets.{GROUP}"
    gadgets.client("PATCH", crd, operations, content_type=JSON_PATCH).ok()

    def is_judged() -> bool:
        probe = widget("probe", kind="Gadget", size=1)
        return gadgets.client("POST", path, probe, dryRun="All").status == 422

    eventually("the new schema", is_judged)
    small = {"spec": {"size": 2}}
    answer = gadgets.client("PATCH", f"{path}/one", small, content_type=MERGE_PATCH)
    assert answer.causes == {("spec.size", "FieldValueInvalid")}
    assert gadgets.client("GET", f"{path}/one").ok()["spec"]["size"] == 1
