"""Writes the kubeconfig. kubectl and other clients reach the local cluster with this file.

The file holds the token, so only its owner may read it.
"""

import os
from pathlib import Path

import msgspec

CLUSTER = "localcluster"


def write(path: Path, *, url: str, token: str, namespace: str = "default") -> None:
    """Write the kubeconfig atomically. The content is JSON, which every YAML reader accepts.

    The server's URL contains the token, too, because kubectl sends credentials only over TLS.

    Raises: OSError
    """
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CLUSTER, "cluster": {"server": f"{url}/{token}"}}],
        "users": [{"name": CLUSTER, "user": {"token": token}}],
        "contexts": [
            {
                "name": CLUSTER,
                "context": {"cluster": CLUSTER, "user": CLUSTER, "namespace": namespace},
            }
        ],
        "current-context": CLUSTER,
    }
    text = msgspec.json.format(msgspec.json.encode(config), indent=2) + b"\n"
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(text)
    draft.replace(path)
