"""The manifests of edgeai itself for the local cluster. `edgeai up` applies these manifests.

The GlobalManager, and a LocalController for each edge node, run in the local cluster as in
production: as pods in the namespace edgeai-system, with credentials in Secrets. deploy/ has the
manifests for a real cluster. The manifests here differ in addresses and need no images, because all
processes share one machine.
"""

import hashlib
import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

CLOUD: Final = "cloud0"
EDGES: Final = ("edge0", "edge1")
"""The nodes of a local cluster, unless its user wants others."""
NAMESPACE: Final = "edgeai-system"
GLOBALMANAGER: Final = "globalmanager"
EDGE_PORT: Final = 9000
HTTP_PORT: Final = 9001
WORKER_PORT: Final = 9100
STATUS_PORT: Final = 9101
_ALL_PATHS: Final = ("--node-path-prefixes", "*")
"""All processes of a local cluster have the rights of its user anyway."""

Object = dict[str, Any]


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """Settings that tests and demos change: addresses of the GlobalManager, and further flags."""

    global_manager_of: dict[str, str] = {}
    """Node -> HOST:PORT of the GlobalManager, for a node that does not use the Service."""
    globalmanager_flags: tuple[str, ...] = ()
    localcontroller_flags: tuple[str, ...] = ()

    def edge_port_of(self, node: str) -> str:
        """HOST:PORT of the GlobalManager for the LocalController of `node`."""
        return self.global_manager_of.get(node, f"{GLOBALMANAGER}.{NAMESPACE}:{EDGE_PORT}")


class ClusterAccess(NamedTuple):
    """The URL and the bearer token of the local cluster's API."""

    url: str
    token: str


def localcontroller_of(node: str) -> str:
    """The name of the LocalController of `node`."""
    return f"localcontroller-{node}"


def new_tokens(nodes: tuple[str, ...]) -> dict[str, str]:
    """A new random token for each node."""
    return {node: secrets.token_urlsafe(32) for node in nodes}


def globalmanager(kubeconfig: Path, tokens: Mapping[str, str], tuning: Tuning) -> list[Object]:
    """The manifests of the GlobalManager, which admits the nodes that have a token."""
    table = "".join(f"{node} {_sha256(token)}\n" for node, token in tokens.items())
    credentials = {"kubeconfig": kubeconfig.read_text(), "edge-tokens": table}
    return [
        _object("v1", "Secret", GLOBALMANAGER, stringData=credentials),
        _globalmanager_service(),
        _renewed_with(credentials, _globalmanager(tuning)),
    ]


def localcontroller(
    node: str, token: str, cluster: ClusterAccess | None, node_dir: Path, tuning: Tuning
) -> list[Object]:
    """The manifests of the LocalController of `node`, which keeps its state in `node_dir`.

    Args:
        cluster: the LocalController watches the pods of its node there. None: it does not
    """
    credentials = {"token": token} | ({"cluster-token": cluster.token} if cluster else {})
    return [
        _object("v1", "Secret", localcontroller_of(node), stringData=credentials),
        _renewed_with(credentials, _localcontroller(node, cluster, node_dir, tuning)),
    ]


def _renewed_with(credentials: Mapping[str, str], deployment: Object) -> Object:
    """The Deployment with a hash of the credentials in its pod template.

    New credentials need new pods, because running pods have read the old credentials.
    """
    digest = _sha256(json.dumps(credentials, sort_keys=True))
    metadata = deployment["spec"]["template"]["metadata"]
    metadata["annotations"] = {"edgeai.io/credentials-sha256": digest}
    return deployment


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _object(api_version: str, kind: str, name: str, **fields: Any) -> Object:
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "edgeai"}
    metadata = {"name": name, "namespace": NAMESPACE, "labels": labels}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def _field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _deployment(name: str, pod_spec: Object, container: Object) -> Object:
    labels = {"app.kubernetes.io/name": name}
    pod_spec = {"containers": [container], "terminationGracePeriodSeconds": 5, **pod_spec}
    return _object(
        "apps/v1",
        "Deployment",
        name,
        spec={
            "replicas": 1,
            # Two pods at the same time would compete for the node's session, ledger and port.
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod_spec},
        },
    )


def _globalmanager_service() -> Object:
    ports = [
        {"name": "edge", "port": EDGE_PORT, "targetPort": EDGE_PORT},
        {"name": "http", "port": HTTP_PORT, "targetPort": HTTP_PORT},
    ]
    selector = {"app.kubernetes.io/name": GLOBALMANAGER}
    return _object("v1", "Service", GLOBALMANAGER, spec={"selector": selector, "ports": ports})


def _globalmanager(tuning: Tuning) -> Object:
    container = {
        "name": GLOBALMANAGER,
        "image": "edgeai/globalmanager",
        "command": ["python3", "-m", "globalmanager"],
        "args": [
            *("--kubeconfig", "/etc/edgeai/kubeconfig"),
            *("--edge-address", f"$(POD_IP):{EDGE_PORT}"),
            *("--http-address", f"$(POD_IP):{HTTP_PORT}", "--http-auth", "none"),
            *("--edge-auth", "token"),
            *("--edge-token-file", "/etc/edgeai/edge-tokens", "--edge-plaintext", "allow"),
            *("--worker-api-port", str(WORKER_PORT)),
            *_ALL_PATHS,
            *tuning.globalmanager_flags,
        ],
        "env": [
            _field("POD_IP", "status.podIP"),
            _field("EDGEAI_REPLICA_NAME", "metadata.name"),  # a restarted replica leads at once
        ],
        "ports": [{"containerPort": EDGE_PORT}, {"containerPort": HTTP_PORT}],
        # The Service must reach the pod before the GlobalManager is ready, because the
        # GlobalManager itself tells edges to wait. So the probe checks only the port. It has time,
        # because the cluster and all pods share one machine: while that is busy, the Service must
        # not lose its only replica.
        "readinessProbe": {
            "tcpSocket": {"port": HTTP_PORT},
            "periodSeconds": 1,
            "timeoutSeconds": 30,
        },
        "volumeMounts": [{"name": "credentials", "mountPath": "/etc/edgeai"}],
    }
    volume = {"name": "credentials", "secret": {"secretName": GLOBALMANAGER}}
    cloud = {"nodeSelector": {"node-role.kubernetes.io/cloud": ""}}
    return _deployment(GLOBALMANAGER, {**cloud, "volumes": [volume]}, container)


def _localcontroller(
    node: str, cluster: ClusterAccess | None, node_dir: Path, tuning: Tuning
) -> Object:
    name = localcontroller_of(node)
    pods_api: tuple[str, ...] = ()
    if cluster is not None:
        pods_api = ("--pods-api", cluster.url, "--pods-token-file", "/etc/edgeai/cluster-token")
    container = {
        "name": "localcontroller",
        "image": "edgeai/localcontroller",
        "command": ["python3", "-m", "localcontroller"],
        "args": [
            *("--node-name", "$(NODENAME)"),
            *("--global-manager", f"ws://{tuning.edge_port_of(node)}"),
            *("--edge-plaintext", "allow"),
            *("--state-dir", "/var/lib/edgeai"),
            *("--dataset-networks", "127.0.0.0/8"),  # the pods and Services are there
            *_ALL_PATHS,
            *("--worker-address", f"$(HOST_IP):{WORKER_PORT}"),
            *("--status-address", f"$(HOST_IP):{STATUS_PORT}"),
            *("--token-file", "/etc/edgeai/token"),
            *pods_api,
            *tuning.localcontroller_flags,
        ],
        "env": [_field("NODENAME", "spec.nodeName"), _field("HOST_IP", "status.hostIP")],
        "volumeMounts": [
            {"name": "credentials", "mountPath": "/etc/edgeai"},
            {"name": "state", "mountPath": "/var/lib/edgeai"},
        ],
    }
    state = {"path": str(node_dir / "localcontroller"), "type": "DirectoryOrCreate"}
    pod_spec = {
        "nodeName": node,
        "hostNetwork": True,
        "volumes": [
            {"name": "credentials", "secret": {"secretName": name}},
            {"name": "state", "hostPath": state},
        ],
    }
    return _deployment(name, pod_spec, container)
