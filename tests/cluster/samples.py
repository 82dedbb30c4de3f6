"""Manifests that the tests of this folder apply."""

from typing import Any

from edgeai.cli.api import Object
from tests.globalmanager.kinds.edge.samples import joint_inference_spec
from tests.support.client import Client


def model(name: str, namespace: str, *, group: str = "edgeai.io") -> Object:
    return {
        "apiVersion": f"{group}/v1alpha1",
        "kind": "Model",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"url": f"/models/{name}.onnx", "format": "onnx"},
    }


def create_models(client: Client, namespace: str) -> None:
    """Those of `service`."""
    for name in ("small", "big"):
        client.create(model(name, namespace))


def service(namespace: str, *, name: str = "digits", **changed: Any) -> Object:
    """A JointInferenceService of Models `small` and `big`, its edge worker on edge0."""
    return {
        "apiVersion": "edgeai.io/v1alpha1",
        "kind": "JointInferenceService",
        "metadata": {"name": name, "namespace": namespace},
        "spec": joint_inference_spec(**changed),
    }
