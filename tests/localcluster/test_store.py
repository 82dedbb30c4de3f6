"""The store: what a write makes of an object, what it refuses, what survives a restart."""

import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from localcluster import errors
from localcluster.resources import (
    CONFIGMAPS,
    CUSTOMRESOURCEDEFINITIONS,
    DEPLOYMENTS,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    SERVICES,
    Object,
    Resource,
)
from localcluster.store import Store
from tests.localcluster.conftest import FakeClock, configmap, pod, widget, widget_crd


def define(store: Store, group: str = "edgeai.io", **version: Any) -> Resource:
    store.create(CUSTOMRESOURCEDEFINITIONS, widget_crd(group, **version))
    resource = store.registry.find(group, "v1alpha1", "widgets")
    assert resource is not None
    return resource


def deployment(**spec: Any) -> Object:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod()["spec"]}
    selector = {"matchLabels": {"app": "web"}}
    metadata = {"name": "web", "namespace": "default"}
    return {"metadata": metadata, "spec": {"selector": selector, "template": template, **spec}}


def test_create_stamps_what_identifies_an_object(store: Store) -> None:
    created = store.create(CONFIGMAPS, configmap())
    metadata = created["metadata"]
    assert (created["apiVersion"], created["kind"]) == ("v1", "ConfigMap")
    assert metadata["creationTimestamp"] == "2030-01-02T03:04:05Z"
    assert metadata["resourceVersion"] == str(store.resource_version)
    assert re.fullmatch(r"[0-9a-f-]{36}", metadata["uid"])
    assert store.get(CONFIGMAPS, "default", "one") == created


def test_generate_name_makes_a_new_name_each_time(store: Store) -> None:
    object_ = {"metadata": {"generateName": "run-", "namespace": "default"}}
    names = {store.create(CONFIGMAPS, object_)["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(re.fullmatch(r"run-[a-z0-9]{5}", name) for name in names)


def test_objects_that_come_out_are_copies(store: Store) -> None:
    store.create(CONFIGMAPS, configmap())["data"]["a"] = "changed"
    store.get(CONFIGMAPS, "default", "one")["data"]["a"] = "changed"
    assert store.get(CONFIGMAPS, "default", "one")["data"] == {"a": "1"}


REFUSED: dict[str, tuple[Resource, Object, type[errors.APIError], str]] = {
    "no name": (CONFIGMAPS, configmap(""), errors.Invalid, "metadata.name: Required value"),
    "name with a path": (CONFIGMAPS, configmap("../x"), errors.Invalid, "RFC 1123"),
    "name with capitals": (CONFIGMAPS, configmap("A"), errors.Invalid, "RFC 1123"),
    "no namespace": (CONFIGMAPS, configmap(namespace=""), errors.BadRequest, "namespace"),
    "namespace missing": (
        CONFIGMAPS,
        configmap(namespace="nowhere"),
        errors.NotFound,
        'namespaces "nowhere" not found',
    ),
    "cluster scope in a namespace": (
        NODES,
        {"metadata": {"name": "n", "namespace": "default"}},
        errors.BadRequest,
        "cluster-scoped",
    ),
    "resource version": (
        CONFIGMAPS,
        configmap(resourceVersion="1"),
        errors.BadRequest,
        "should not be set",
    ),
    "another kind": (
        CONFIGMAPS,
        {**configmap(), "kind": "Secret"},
        errors.BadRequest,
        "not the expected v1 ConfigMap",
    ),
    "label that is no text": (
        CONFIGMAPS,
        configmap(labels={"a": 1}),
        errors.Invalid,
        "metadata.labels",
    ),
    "label value": (CONFIGMAPS, configmap(labels={"a": "-"}), errors.Invalid, "metadata.labels"),
    "owner without uid": (
        CONFIGMAPS,
        configmap(ownerReferences=[{"apiVersion": "v1", "kind": "Pod", "name": "p"}]),
        errors.Invalid,
        "metadata.ownerReferences[0].uid: Required value",
    ),
    "pod without containers": (
        PODS,
        pod(containers=[]),
        errors.Invalid,
        "spec.containers: Required value",
    ),
    "container without image": (
        PODS,
        pod(containers=[{"name": "a"}]),
        errors.Invalid,
        "spec.containers[0].image: Required value",
    ),
    "mount without volume": (
        PODS,
        pod(
            containers=[
                {"name": "a", "image": "b", "volumeMounts": [{"name": "v", "mountPath": "/v"}]}
            ]
        ),
        errors.Invalid,
        'volumeMounts[0].name: Not found: "v"',
    ),
    "deployment of other pods": (
        DEPLOYMENTS,
        deployment(selector={"matchLabels": {"app": "other"}}),
        errors.Invalid,
        "does not match template",
    ),
    "service without ports": (
        SERVICES,
        {"metadata": {"name": "s", "namespace": "default"}, "spec": {}},
        errors.Invalid,
        "spec.ports: Required value",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_create_refuses(store: Store, case: str) -> None:
    resource, object_, error, text = REFUSED[case]
    before = store.resource_version
    with pytest.raises(error, match=re.escape(text)):
        store.create(resource, object_)
    assert store.resource_version == before


def test_a_name_is_taken_once(store: Store) -> None:
    store.create(CONFIGMAPS, configmap())
    with pytest.raises(errors.AlreadyExists, match='configmaps "one" already exists'):
        store.create(CONFIGMAPS, configmap())


def test_dry_run_checks_and_changes_nothing(store: Store) -> None:
    before = store.resource_version
    assert store.create(CONFIGMAPS, configmap(), dry_run=True)["metadata"]["uid"]
    store.delete(NAMESPACES, "", "default", dry_run=True)
    assert store.resource_version == before
    assert store.get(NAMESPACES, "", "default")["status"] == {"phase": "Active"}


def test_a_stale_update_is_a_conflict(store: Store) -> None:
    old = store.create(CONFIGMAPS, configmap())
    store.update(CONFIGMAPS, {**old, "data": {"a": "2"}})
    with pytest.raises(errors.Conflict, match="the object has been modified"):
        store.update(CONFIGMAPS, {**old, "data": {"a": "3"}})


def test_an_update_of_another_uid_is_a_conflict(store: Store) -> None:
    store.create(CONFIGMAPS, configmap())
    with pytest.raises(errors.Conflict, match="uid"):
        store.update(CONFIGMAPS, configmap(uid="of-the-one-before"))


def test_an_update_without_version_wins(store: Store) -> None:
    store.create(CONFIGMAPS, configmap())
    assert store.update(CONFIGMAPS, {**configmap(), "data": {}})["data"] == {}


def test_a_write_that_changes_nothing_leaves_no_trace(store: Store) -> None:
    created = store.create(CONFIGMAPS, configmap())
    watch = store.watch(CONFIGMAPS, since=store.resource_version)
    assert store.update(CONFIGMAPS, configmap()) == created
    assert watch.poll() is None


GENERATIONS: dict[str, tuple[Object, str, int]] = {
    "spec": ({"spec": {"size": 4}}, "", 2),
    "labels": ({"metadata": {"labels": {"a": "b"}}}, "", 1),
    "status": ({"status": {"seen": 1}}, "status", 1),
    "nothing": ({}, "", 1),
}


@pytest.mark.parametrize("case", GENERATIONS)
def test_generation_counts_changes_of_the_spec(store: Store, case: str) -> None:
    patch, subresource, generation = GENERATIONS[case]
    resource = define(store)
    store.create(resource, widget())
    patched = store.patch(resource, "default", "one", patch, subresource=subresource)
    assert patched["metadata"]["generation"] == generation


def test_status_and_the_rest_are_written_apart(store: Store) -> None:
    resource = define(store)
    created = store.create(resource, {**widget(), "status": {"from": "user"}})
    assert "status" not in created
    both = {"spec": {"size": 9}, "status": {"from": "worker"}}
    by_status = store.patch(resource, "default", "one", both, subresource="status")
    assert (by_status["spec"]["size"], by_status["status"]) == (3, {"from": "worker"})
    by_spec = store.patch(resource, "default", "one", {"spec": {"size": 9}, "status": {"x": 1}})
    assert (by_spec["spec"]["size"], by_spec["status"]) == (9, {"from": "worker"})


def test_what_only_the_api_sets_cannot_be_changed(store: Store) -> None:
    created = store.create(CONFIGMAPS, configmap())
    forged = {"creationTimestamp": "1999-01-01T00:00:00Z", "generation": 7, "labels": {"a": "b"}}
    metadata = store.patch(CONFIGMAPS, "default", "one", {"metadata": forged})["metadata"]
    assert metadata["creationTimestamp"] == created["metadata"]["creationTimestamp"]
    assert "generation" not in metadata
    assert metadata["labels"] == {"a": "b"}


def test_built_in_defaults_are_filled_in(store: Store) -> None:
    spec = store.create(PODS, pod())["spec"]
    assert (spec["restartPolicy"], spec["terminationGracePeriodSeconds"]) == ("Always", 30)
    template = store.create(DEPLOYMENTS, deployment())["spec"]
    assert (template["replicas"], template["template"]["spec"]["restartPolicy"]) == (1, "Always")


def test_string_data_of_a_secret_is_kept_as_data(store: Store) -> None:
    metadata = {"name": "s", "namespace": "default"}
    secret = store.create(SECRETS, {"metadata": metadata, "stringData": {"key": "value"}})
    assert secret["data"] == {"key": "dmFsdWU="}
    assert "stringData" not in secret


def test_a_service_keeps_its_address_when_applied_again(store: Store) -> None:
    manifest = {
        "metadata": {"name": "s", "namespace": "default"},
        "spec": {"ports": [{"port": 80}]},
    }
    store.create(SERVICES, manifest)
    store.patch(SERVICES, "default", "s", {"spec": {"clusterIP": "127.9.1.1"}})
    assert store.update(SERVICES, manifest)["spec"]["clusterIP"] == "127.9.1.1"


IMMUTABLE: dict[str, tuple[Resource, Object, Object]] = {
    "pod command": (PODS, pod(), pod(containers=[{"name": "main", "image": "b", "args": ["x"]}])),
    "deployment selector": (
        DEPLOYMENTS,
        deployment(),
        deployment(
            selector={"matchLabels": {"app": "b"}},
            template={"metadata": {"labels": {"app": "b"}}, "spec": pod()["spec"]},
        ),
    ),
}


@pytest.mark.parametrize("case", IMMUTABLE)
def test_what_must_not_change_does_not(store: Store, case: str) -> None:
    resource, before, after = IMMUTABLE[case]
    store.create(resource, before)
    with pytest.raises(errors.Invalid):
        store.update(resource, after)


def test_a_pod_is_bound_once(store: Store) -> None:
    store.create(PODS, pod())
    store.patch(PODS, "default", "one", {"spec": {"nodeName": "edge-1"}})
    with pytest.raises(errors.Invalid, match="nodeName"):
        store.patch(PODS, "default", "one", {"spec": {"nodeName": "edge-2"}})


def test_an_object_with_finalizers_waits_for_the_last_one(store: Store) -> None:
    store.create(CONFIGMAPS, configmap(finalizers=["a/1", "a/2"]))
    marked = store.delete(CONFIGMAPS, "default", "one")
    assert marked["metadata"]["deletionTimestamp"] == "2030-01-02T03:04:05Z"
    store.patch(CONFIGMAPS, "default", "one", {"metadata": {"finalizers": ["a/2"]}})
    with pytest.raises(errors.Invalid, match="no new finalizers"):
        store.patch(CONFIGMAPS, "default", "one", {"metadata": {"finalizers": ["a/2", "a/3"]}})
    store.patch(CONFIGMAPS, "default", "one", {"metadata": {"finalizers": None}})
    with pytest.raises(errors.NotFound):
        store.get(CONFIGMAPS, "default", "one")


def test_a_pod_on_a_node_goes_when_the_kubelet_says_so(store: Store) -> None:
    store.create(PODS, pod(nodeName="edge-1", terminationGracePeriodSeconds=7))
    marked = store.delete(PODS, "default", "one")["metadata"]
    assert marked["deletionGracePeriodSeconds"] == 7
    assert marked["deletionTimestamp"] == "2030-01-02T03:04:12Z"
    store.delete(PODS, "default", "one", grace_period_s=60)  # a longer grace changes nothing
    assert store.get(PODS, "default", "one")["metadata"]["deletionGracePeriodSeconds"] == 7
    store.delete(PODS, "default", "one", grace_period_s=0)
    with pytest.raises(errors.NotFound):
        store.get(PODS, "default", "one")


@pytest.mark.parametrize(
    ("spec", "phase"), [({}, ""), ({"nodeName": "n"}, "Succeeded"), ({"nodeName": "n"}, "Failed")]
)
def test_a_pod_that_does_not_run_goes_at_once(store: Store, spec: Object, phase: str) -> None:
    store.create(PODS, pod(**spec))
    if phase:
        store.patch(PODS, "default", "one", {"status": {"phase": phase}}, subresource="status")
    store.delete(PODS, "default", "one")
    with pytest.raises(errors.NotFound):
        store.get(PODS, "default", "one")


def test_delete_checks_its_preconditions(store: Store) -> None:
    created = store.create(CONFIGMAPS, configmap())["metadata"]
    with pytest.raises(errors.Conflict):
        store.delete(CONFIGMAPS, "default", "one", uid="another")
    with pytest.raises(errors.Conflict):
        store.delete(CONFIGMAPS, "default", "one", resource_version="1")
    store.delete(CONFIGMAPS, "default", "one", uid=created["uid"])


def test_pages_of_a_list_are_complete_and_ordered(store: Store) -> None:
    names = [f"c{index}" for index in range(7)]
    for name in reversed(names):
        store.create(CONFIGMAPS, configmap(name))
    seen, token, remaining = [], "", []
    while True:
        page = store.list(CONFIGMAPS, limit=3, continue_token=token)
        seen += [item["metadata"]["name"] for item in page.items]
        remaining.append(page.remaining)
        if not (token := page.continue_token):
            break
    assert seen == names
    assert remaining == [4, 1, None]


def test_later_pages_have_the_version_of_the_first(store: Store) -> None:
    for index in range(3):
        store.create(CONFIGMAPS, configmap(f"c{index}"))
    first = store.list(CONFIGMAPS, limit=2)
    store.create(CONFIGMAPS, configmap("a-late"))
    second = store.list(CONFIGMAPS, limit=2, continue_token=first.continue_token)
    assert second.resource_version == first.resource_version
    event = store.watch(CONFIGMAPS, since=second.resource_version).poll()
    assert event is not None
    assert event.object["metadata"]["name"] == "a-late"


def test_a_continue_token_expires_with_the_history(tmp_path: Path) -> None:
    store = Store(tmp_path / "small.db", history=2)
    for index in range(3):
        store.create(CONFIGMAPS, configmap(f"c{index}"))
    token = store.list(CONFIGMAPS, limit=1).continue_token
    for index in range(5):
        store.patch(CONFIGMAPS, "default", "c0", {"data": {"a": str(index)}})
    with pytest.raises(errors.Gone):
        store.list(CONFIGMAPS, limit=1, continue_token=token)
    with pytest.raises(errors.BadRequest, match="continue token"):
        store.list(CONFIGMAPS, continue_token="garbage")
    store.close()


def test_the_state_survives_a_restart(tmp_path: Path, clock: FakeClock) -> None:
    store = Store(tmp_path / "state.db", now=clock)
    created = store.create(define(store), widget())
    version = store.resource_version
    store.close()
    again = Store(tmp_path / "state.db", now=clock)
    resource = again.registry.find("edgeai.io", "v1alpha1", "widgets")
    assert resource is not None
    assert again.get(resource, "default", "one") == created
    assert again.resource_version == version
    again.close()


def test_versions_of_one_kind_show_the_same_objects(store: Store) -> None:
    crd = widget_crd()
    first = crd["spec"]["versions"][0]
    crd["spec"]["versions"].append({**first, "name": "v1", "storage": False})
    store.create(CUSTOMRESOURCEDEFINITIONS, crd)
    old = store.registry.find("edgeai.io", "v1alpha1", "widgets")
    new = store.registry.find("edgeai.io", "v1", "widgets")
    assert old is not None
    assert new is not None
    store.create(old, widget())
    shown = store.get(new, "default", "one")
    assert shown["apiVersion"] == "edgeai.io/v1"
    watch = store.watch(new, since=store.resource_version)
    store.patch(old, "default", "one", {"spec": {"size": 8}})
    event = watch.poll()
    assert event is not None
    assert event.object["apiVersion"] == "edgeai.io/v1"


def test_two_groups_may_have_the_same_plural(store: Store) -> None:
    ours, theirs = define(store, "edgeai.io"), define(store, "sedna.io")
    store.create(ours, widget())
    store.create(theirs, widget(group="sedna.io", size=9))
    assert store.get(ours, "default", "one")["spec"]["size"] == 3
    assert store.get(theirs, "default", "one")["spec"]["size"] == 9


def test_a_crd_is_established_at_once(store: Store) -> None:
    define(store)
    crd = store.get(CUSTOMRESOURCEDEFINITIONS, "", "widgets.edgeai.io")
    states = {condition["type"]: condition["status"] for condition in crd["status"]["conditions"]}
    assert states == {"NamesAccepted": "True", "Established": "True"}
    assert crd["status"]["storedVersions"] == ["v1alpha1"]
    assert crd["spec"]["names"]["listKind"] == "WidgetList"


def _changed(path: str, value: Any) -> Object:
    crd = widget_crd()
    *parents, last = path.split(".")
    container: Any = crd
    for step in parents:
        container = container[int(step)] if step.isdecimal() else container[step]
    container[last] = value
    return crd


_SCHEMA = "spec.versions.0.schema.openAPIV3Schema.properties.spec"
BAD_CRDS: dict[str, tuple[Object, str]] = {
    "name": (_changed("metadata.name", "wrong.edgeai.io"), 'that is "widgets.edgeai.io"'),
    "scope": (_changed("spec.scope", "Everywhere"), "spec.scope: Unsupported value"),
    "no schema": (_changed("spec.versions.0.schema", {}), "openAPIV3Schema: Required value"),
    "no storage": (_changed("spec.versions.0.storage", False), "exactly one version"),
    "no type": (
        _changed(f"{_SCHEMA}.properties.size", {"minimum": 1}),
        "properties[spec].properties[size].type: Required value",
    ),
    "array without items": (
        _changed(f"{_SCHEMA}.properties.size", {"type": "array"}),
        "items: Required value",
    ),
    "reference": (_changed(f"{_SCHEMA}.$ref", "#/x"), "$ref: Forbidden"),
    "properties and additionalProperties": (
        _changed(f"{_SCHEMA}.additionalProperties", {"type": "string"}),
        "must not be used together",
    ),
    "default of a wrong type": (
        _changed(f"{_SCHEMA}.properties.size", {"type": "integer", "default": "x"}),
        "must be of type integer",
    ),
    "conversion": (_changed("spec.conversion", {"strategy": "Webhook"}), "conversion.strategy"),
}


@pytest.mark.parametrize("case", BAD_CRDS)
def test_a_crd_that_cannot_be_served_is_refused(store: Store, case: str) -> None:
    crd, text = BAD_CRDS[case]
    with pytest.raises(errors.Invalid, match=re.escape(text)):
        store.create(CUSTOMRESOURCEDEFINITIONS, crd)
    assert store.registry.find("edgeai.io", "v1alpha1", "widgets") is None


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ({"kind": "Widget", "plural": "others"}, "spec.names.kind"),
        ({"kind": "Other", "plural": "wd"}, "spec.names.plural"),
        ({"kind": "Other", "plural": "others", "shortNames": ["wd"]}, "spec.names.shortNames"),
    ],
)
def test_names_of_a_group_mean_one_kind(store: Store, names: Object, text: str) -> None:
    define(store)
    crd = widget_crd()
    crd["metadata"]["name"] = f"{names['plural']}.edgeai.io"
    crd["spec"]["names"] = names
    with pytest.raises(errors.Invalid, match=re.escape(f"{text}: Invalid value")):
        store.create(CUSTOMRESOURCEDEFINITIONS, crd)


def test_a_crd_that_became_stricter_blocks_no_status(store: Store) -> None:
    resource = define(store)
    store.create(resource, widget(size=1))
    schema = widget_crd()["spec"]["versions"][0]["schema"]
    schema["openAPIV3Schema"]["properties"]["spec"]["properties"]["size"]["minimum"] = 5
    stricter = widget_crd(schema=schema)
    store.update(CUSTOMRESOURCEDEFINITIONS, stricter)
    resource = store.registry.stored("widgets.edgeai.io") or resource
    patched = store.patch(resource, "default", "one", {"status": {"a": 1}}, subresource="status")
    assert patched["status"] == {"a": 1}
    with pytest.raises(errors.Invalid, match="greater than or equal to 5"):
        store.patch(resource, "default", "one", {"spec": {"size": 2}})


def test_a_full_disk_refuses_writes_and_serves_reads(tmp_path: Path) -> None:
    store = Store(tmp_path / "state.db", max_bytes=200_000)
    big = {**configmap("big"), "data": {"x": "x" * 300_000}}
    created = store.create(CONFIGMAPS, configmap())
    with pytest.raises(errors.OutOfSpace, match="full"):
        store.create(CONFIGMAPS, big)
    assert store.get(CONFIGMAPS, "default", "one") == created
    store.delete(CONFIGMAPS, "default", "one")
    assert store.list(CONFIGMAPS).items == []
    store.close()


def test_an_unusable_file_is_named_at_start(tmp_path: Path) -> None:
    with pytest.raises(errors.StateError, match=r"missing/state\.db"):
        Store(tmp_path / "missing" / "state.db")
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(b"this is no database, by any stretch of imagination" * 100)
    with pytest.raises(errors.StateError, match="damaged: move it away"):
        Store(damaged)


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(errors.StateError, match="format 99"):
        Store(path)


def test_one_cluster_at_a_time_uses_a_file(tmp_path: Path, store: Store) -> None:
    with pytest.raises(errors.StateError, match="another cluster uses it"):
        Store(tmp_path / "state.db")


def test_a_start_on_a_full_disk_says_so(tmp_path: Path) -> None:
    with pytest.raises(errors.StateError, match="full"):
        Store(tmp_path / "state.db", max_bytes=4096)


def test_events_of_a_namespace_can_be_found_by_their_object(store: Store) -> None:
    for name in ("a", "b"):
        event = {
            "metadata": {"name": f"event-{name}", "namespace": "default"},
            "involvedObject": {"kind": "Pod", "name": name},
        }
        store.create(EVENTS, event)
    page = store.list(EVENTS, field_selector="involvedObject.name=b,involvedObject.kind=Pod")
    assert [event["metadata"]["name"] for event in page.items] == ["event-b"]
