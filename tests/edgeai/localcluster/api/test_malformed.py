"""Malformed requests are refused; none makes an internal error."""

from collections.abc import Iterator
from typing import Any

import pytest

from edgeai.localcluster.objects.patches import PatchType
from edgeai.localcluster.objects.resources import CUSTOMRESOURCEDEFINITIONS, PODS, Object
from edgeai.localcluster.objects.store import Store
from tests.edgeai.localcluster.conftest import Client, pod, widget, widget_crd

CONFIGMAPS_PATH = "/api/v1/namespaces/default/configmaps"
WIDGETS_PATH = "/apis/edgeai.io/v1alpha1/namespaces/default/widgets"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"

WRONG: tuple[Any, ...] = (None, "x", -5, True, [], [1], {}, {"x": 1})


def spoiled(object_: Any) -> Iterator[Any]:
    """The object with each of its values replaced by values of wrong types."""
    yield from WRONG
    if isinstance(object_, dict):
        for key, part in object_.items():
            yield from ({**object_, key: wrong} for wrong in spoiled(part))
    elif isinstance(object_, list):
        yield from ([wrong, *object_[1:]] for wrong in spoiled(object_[0]))


TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": pod()["spec"]}
SEEDS: dict[str, tuple[str, Object]] = {
    "pod": (
        "/api/v1/namespaces/default/pods",
        {
            "metadata": {
                "name": "x",
                "labels": {"a": "b"},
                "finalizers": ["a/b"],
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}],
            },
            "spec": {
                "nodeName": "edge-1",
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 3,
                "volumes": [{"name": "v"}],
                "initContainers": [{"name": "i", "image": "x"}],
                "containers": [
                    {
                        "name": "c",
                        "image": "x",
                        "ports": [{"containerPort": 1}],
                        "volumeMounts": [{"name": "v", "mountPath": "/v"}],
                    }
                ],
            },
        },
    ),
    "deployment": (
        "/apis/apps/v1/namespaces/default/deployments",
        {
            "metadata": {"name": "x"},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"a": "b"}},
                "template": TEMPLATE,
            },
        },
    ),
    "service": (
        "/api/v1/namespaces/default/services",
        {
            "metadata": {"name": "x"},
            "spec": {"type": "ClusterIP", "selector": {"a": "b"}, "ports": [{"port": 1}]},
        },
    ),
    "secret": (
        "/api/v1/namespaces/default/secrets",
        {
            "metadata": {"name": "x", "generateName": "y"},
            "data": {"a": "eA=="},
            "stringData": {"b": "c"},
        },
    ),
    "event": (
        "/api/v1/namespaces/default/events",
        {
            "metadata": {"name": "x"},
            "involvedObject": {"kind": "Pod", "name": "p"},
            "lastTimestamp": "2030-01-01T00:00:00Z",
            "source": {"component": "c"},
        },
    ),
    "node": (
        "/api/v1/nodes",
        {
            "metadata": {"name": "x", "labels": {"a": "b"}},
            "spec": {"unschedulable": True},
            "status": {
                "conditions": [{"type": "Ready", "status": "True"}],
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "nodeInfo": {"kubeletVersion": "v1"},
            },
        },
    ),
    "namespace": ("/api/v1/namespaces", {"metadata": {"name": "x"}, "spec": {"finalizers": ["a"]}}),
    "widget": (WIDGETS_PATH, {**widget("x", parts=[{"name": "a"}]), "status": {}}),
    "definition": (
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        widget_crd("other.io"),
    ),
}


@pytest.mark.parametrize("case", SEEDS)
async def test_no_malformed_object_makes_an_internal_error(
    client: Client, store: Store, case: str
) -> None:
    """Neither its creation nor, if it is accepted, listing, patching or deleting it."""
    store.create(CUSTOMRESOURCEDEFINITIONS, widget_crd())
    path, seed = SEEDS[case]
    assert (await client("POST", f"{path}?dryRun=All", seed)).status == 201
    for content in spoiled(seed):
        created = await client("POST", path, content)
        assert created.status < 500, (content, created.body)
        if created.status != 201:
            continue
        name = f"{path}/{created.body['metadata']['name']}"
        for method, where, body in (
            ("GET", path, None),
            ("PATCH", name, {"metadata": {"labels": {"seen": "1"}}}),
            ("PATCH", name, {"metadata": {"finalizers": None}}),
            ("DELETE", f"{name}?gracePeriodSeconds=0", None),
        ):
            answer = await client(method, where, body, content_type=PatchType.MERGE, Accept=TABLE)
            assert answer.status < 500, (method, content, answer.body)


@pytest.mark.parametrize("patch_type", list(PatchType))
async def test_no_malformed_patch_makes_an_internal_error(
    client: Client, store: Store, patch_type: PatchType
) -> None:
    patched = pod(volumes=[{"name": "v"}])
    patched["metadata"]["finalizers"] = ["a/b"]
    store.create(PODS, patched)
    operations = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}, "from": "/x"}]
    patch = {
        "metadata": {"labels": {"a": "b"}, "$deleteFromPrimitiveList/finalizers": ["x"]},
        "spec": {"volumes": [{"name": "v", "$patch": "delete"}], "$retainKeys": ["volumes"]},
    }
    for content in spoiled(operations if patch_type is PatchType.JSON else patch):
        path = "/api/v1/namespaces/default/pods/one?dryRun=All"
        answer = await client("PATCH", path, content, content_type=patch_type)
        assert answer.status < 500, (content, answer.body)


@pytest.mark.parametrize("case", ["scale", "delete"])
async def test_no_malformed_options_make_an_internal_error(
    client: Client, store: Store, case: str
) -> None:
    store.create(CUSTOMRESOURCEDEFINITIONS, widget_crd())
    await client("POST", WIDGETS_PATH, widget())
    bodies: dict[str, tuple[str, str, Object]] = {
        "scale": (
            "PUT",
            "/scale",
            {"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 1}},
        ),
        "delete": (
            "DELETE",
            "?dryRun=All",
            {
                "gracePeriodSeconds": 1,
                "propagationPolicy": "Orphan",
                "preconditions": {"uid": "u", "resourceVersion": "1"},
            },
        ),
    }
    method, suffix, body = bodies[case]
    for content in spoiled(body):
        answer = await client(method, f"{WIDGETS_PATH}/one{suffix}", content)
        assert answer.status < 500, (content, answer.body)
