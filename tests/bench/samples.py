"""Objects that the measurements create."""

import hashlib
from typing import Final

from edgeai.cli.api import Object
from tests.support.manifests import manifest

NAMESPACE: Final = "default"
MODEL: Final = "bench"


def node_name(number: int) -> str:
    return f"edge-{number:04}"


def token_of(node: str) -> str:
    return hashlib.sha256(f"bench {node}".encode()).hexdigest()


def path_of(namespace: str = NAMESPACE, plural: str = "jointinferenceservices") -> str:
    """Of a collection in the API."""
    return f"/apis/edgeai.io/v1alpha1/namespaces/{namespace}/{plural}"


def service(number: int, namespace: str, node: str, *, model: str = "none") -> Object:
    """A JointInferenceService on `node`; while its model does not exist nothing is started."""
    container = {"name": "worker", "image": "none", "command": ["true"]}
    template = {"spec": {"nodeName": node, "containers": [container]}}
    spec = {
        "edgeWorker": {"model": {"name": model}, "template": template},
        "cloudWorker": {"model": {"name": model}, "template": template},
    }
    return manifest(
        "edgeai.io/v1alpha1 JointInferenceService", f"bench-{number}", namespace, spec=spec
    )
