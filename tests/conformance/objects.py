"""Builders of what the tests create. None of it makes a container run, unless a test says so."""

from typing import Any, Final

from edgeai.cli.api import Object
from tests.support import widgets
from tests.support.manifests import manifest

GROUP: Final = "conformance.test"
UNSERVED_NODE: Final = "unserved0"
_NOWHERE: Final = {"conformance.test/nowhere": "true"}


def widget_crd(plural: str = "widgets", kind: str = "Widget", **version: Any) -> Object:
    return widgets.widget_crd(GROUP, plural=plural, kind=kind, **version)


def widget(name: str = "one", *, kind: str = "Widget", **spec: Any) -> Object:
    return manifest(f"{GROUP}/v1alpha1 {kind}", name, spec={"size": 3, **spec})


def configmap(name: str = "one", **metadata: Any) -> Object:
    made = manifest("v1 ConfigMap", name, data={"a": "1"})
    made["metadata"] |= metadata
    return made


def pod_spec(**spec: Any) -> Object:
    """The spec of a pod that fits no node and needs no token."""
    return {
        "automountServiceAccountToken": False,
        "nodeSelector": _NOWHERE,
        "containers": [{"name": "main", "image": "registry.test/main:1"}],
        **spec,
    }


def pod(name: str = "one", *, labels: dict[str, str] | None = None, **spec: Any) -> Object:
    made = manifest("v1 Pod", name, spec=pod_spec(**spec))
    made["metadata"]["labels"] = labels or {}
    return made


def bound_pod(name: str = "one", **spec: Any) -> Object:
    """A pod of a node without a kubelet: only deletion by force removes it."""
    return pod(name, nodeName=UNSERVED_NODE, **spec)


def deployment(replicas: int = 2, **spec: Any) -> Object:
    """A Deployment whose pods stay pending."""
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": pod_spec()}
    usual = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return manifest("apps/v1 Deployment", "web", spec={**usual, **spec})


def node(name: str = UNSERVED_NODE) -> Object:
    return manifest("v1 Node", name)
