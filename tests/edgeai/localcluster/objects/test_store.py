"""The store: what a write makes of an object, what it refuses, what survives a restart."""

import re
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from edgeai.localcluster.errors import StateError
from edgeai.localcluster.objects import errors
from edgeai.localcluster.objects.resources import (
    CONFIGMAPS,
    CUSTOMRESOURCEDEFINITIONS,
    NAMESPACES,
    NODES,
    PODS,
    SERVICES,
    Object,
    Resource,
)
from edgeai.localcluster.objects.store import Store
from tests.edgeai.localcluster.conftest import configmap, pod, widget, widget_crd
from tests.edgeai.localcluster.running import patch
from tests.support.clock import Clock


def define(store: Store, group: str = "edgeai.io", **version: Any) -> Resource:
    store.create(CUSTOMRESOURCEDEFINITIONS, widget_crd(group, **version))
    resource = store.registry.find(group, "v1alpha1", "widgets")
    assert resource is not None
    return resource


def test_objects_that_come_out_are_copies(store: Store) -> None:
    store.create(CONFIGMAPS, configmap())["data"]["a"] = "changed"
    store.get(CONFIGMAPS, "default", "one")["data"]["a"] = "changed"
    assert store.get(CONFIGMAPS, "default", "one")["data"] == {"a": "1"}


REFUSED: dict[str, tuple[Resource, Object, type[errors.APIError], str]] = {
    "no namespace": (CONFIGMAPS, configmap(namespace=""), errors.BadRequest, "namespace"),
    "cluster scope in a namespace": (
        NODES,
        {"metadata": {"name": "n", "namespace": "default"}},
        errors.BadRequest,
        "cluster-scoped",
    ),
    "native sidecar": (
        PODS,
        pod(initContainers=[{"name": "proxy", "image": "busybox:1", "restartPolicy": "Always"}]),
        errors.Invalid,
        "initContainers[0].restartPolicy: Forbidden: the local cluster runs no native sidecars",
    ),
    "resource version": (
        CONFIGMAPS,
        configmap(resourceVersion="1"),
        errors.BadRequest,
        "should not be set",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_create_refuses(store: Store, case: str) -> None:
    resource, object_, error, text = REFUSED[case]
    before = store.resource_version
    with pytest.raises(error, match=re.escape(text)):
        store.create(resource, object_)
    assert store.resource_version == before


def test_dry_run_checks_and_changes_nothing(store: Store) -> None:
    before = store.resource_version
    assert store.create(CONFIGMAPS, configmap(), dry_run=True)["metadata"]["uid"]
    store.delete(NAMESPACES, "", "default", dry_run=True)
    assert store.resource_version == before
    assert store.get(NAMESPACES, "", "default")["status"] == {"phase": "Active"}


def test_a_service_keeps_its_address_when_applied_again(store: Store) -> None:
    manifest = {
        "metadata": {"name": "s", "namespace": "default"},
        "spec": {"ports": [{"port": 80}]},
    }
    store.create(SERVICES, manifest)
    patch(store, SERVICES, "default", "s", {"spec": {"clusterIP": "127.9.1.1"}})
    assert store.update(SERVICES, manifest)["spec"]["clusterIP"] == "127.9.1.1"


def test_a_grace_of_null_is_the_default(store: Store) -> None:
    store.create(PODS, pod(nodeName="edge-1", terminationGracePeriodSeconds=None))
    marked = store.delete(PODS, "default", "one")["metadata"]
    assert marked["deletionGracePeriodSeconds"] == 30


@pytest.mark.parametrize(
    ("spec", "asked_s"),
    [({"terminationGracePeriodSeconds": -5}, None), ({}, -5)],
    ids=["of the pod", "of the deletion"],
)
def test_a_negative_grace_is_a_second_and_the_pod_goes(
    store: Store, spec: Object, asked_s: int | None
) -> None:
    store.create(PODS, pod(nodeName="edge-1", **spec))
    marked = store.delete(PODS, "default", "one", grace_period_s=asked_s)["metadata"]
    assert marked["deletionGracePeriodSeconds"] == 1
    store.delete(PODS, "default", "one", grace_period_s=0)
    with pytest.raises(errors.NotFound):
        store.get(PODS, "default", "one")


def test_a_continue_token_expires_with_the_history(tmp_path: Path) -> None:
    store = Store(tmp_path / "small.db", history=2)
    for index in range(3):
        store.create(CONFIGMAPS, configmap(f"c{index}"))
    token = store.list(CONFIGMAPS, limit=1).continue_token
    for index in range(5):
        patch(store, CONFIGMAPS, "default", "c0", {"data": {"a": str(index)}})
    with pytest.raises(errors.Gone):
        store.list(CONFIGMAPS, limit=1, continue_token=token)
    with pytest.raises(errors.BadRequest, match="continue token"):
        store.list(CONFIGMAPS, continue_token="garbage")
    store.close()


def test_the_state_survives_a_restart(tmp_path: Path, clock: Clock) -> None:
    store = Store(tmp_path / "state.db", now=clock.utcnow)
    created = store.create(define(store), widget())
    version = store.resource_version
    store.close()
    again = Store(tmp_path / "state.db", now=clock.utcnow)
    resource = again.registry.find("edgeai.io", "v1alpha1", "widgets")
    assert resource is not None
    assert again.get(resource, "default", "one") == created
    assert again.resource_version == version
    again.close()


def test_a_crd_with_a_conversion_is_refused(store: Store) -> None:
    crd = widget_crd()
    crd["spec"]["conversion"] = {"strategy": "Webhook"}
    with pytest.raises(errors.Invalid, match="strategy"):
        store.create(CUSTOMRESOURCEDEFINITIONS, crd)
    assert store.registry.find("edgeai.io", "v1alpha1", "widgets") is None


def test_a_crd_that_became_stricter_blocks_no_status(store: Store) -> None:
    resource = define(store)
    store.create(resource, widget(size=1))
    schema = widget_crd()["spec"]["versions"][0]["schema"]
    schema["openAPIV3Schema"]["properties"]["spec"]["properties"]["size"]["minimum"] = 5
    spec = widget_crd(schema=schema)["spec"]
    patch(store, CUSTOMRESOURCEDEFINITIONS, "", "widgets.edgeai.io", {"spec": spec})
    resource = store.registry.stored("widgets.edgeai.io") or resource
    patched = patch(store, resource, "default", "one", {"status": {"a": 1}}, subresource="status")
    assert patched["status"] == {"a": 1}
    with pytest.raises(errors.Invalid, match="greater than or equal to 5"):
        patch(store, resource, "default", "one", {"spec": {"size": 2}})


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
    with pytest.raises(StateError, match=r"missing/state\.db"):
        Store(tmp_path / "missing" / "state.db")
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(b"this is no database, by any stretch of imagination" * 100)
    with pytest.raises(StateError, match="damaged: move it away"):
        Store(damaged)


def test_a_file_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(StateError, match="format 99"):
        Store(path)


def test_one_cluster_at_a_time_uses_a_file(tmp_path: Path, store: Store) -> None:
    with pytest.raises(StateError, match="another cluster uses it"):
        Store(tmp_path / "state.db")


def test_a_start_on_a_full_disk_says_so(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="full"):
        Store(tmp_path / "state.db", max_bytes=4096)
