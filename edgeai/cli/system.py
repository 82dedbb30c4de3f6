"""The manifests of edgeai itself for the local cluster. `edgeai up` applies these manifests.

The GlobalManager, and a LocalController for each edge node, run in the local cluster as in
production: as pods in the namespace edgeai-system, with credentials in Secrets. deploy/ has the
manifests for a real cluster. These differ in addresses and need no images: all share one machine.
"""

import hashlib
import json
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
    url: str
    token: str


def localcontroller_of(node: str) -> str:
    return f"localcontroller-{node}"


def globalmanager(kubeconfig: Path, tokens: Mapping[str, str], tuning: Tuning) -> list[Object]:
    """The manifests of the GlobalManager, which admits the nodes that have a token."""
    table = "".join(f"{node} {_sha256(token)}\n" for node, token in tokens.items())
    credentials = {"kubeconfig": kubeconfig.read_text(), "edge-tokens": table}
    ports = [
        {"name": name, "port": port, "targetPort": port}
        for name, port in (("edge", EDGE_PORT), ("http", HTTP_PORT))
    ]
    service = {"selector": {"app.kubernetes.io/name": GLOBALMANAGER}, "ports": ports}
    cloud = {"nodeSelector": {"node-role.kubernetes.io/cloud": ""}}
    return [
        _object("v1", "Service", GLOBALMANAGER, spec=service),
        *_workload(GLOBALMANAGER, credentials, cloud, _globalmanager(tuning)),
    ]


def localcontroller(
    node: str, token: str, cluster: ClusterAccess | None, node_dir: Path, tuning: Tuning
) -> list[Object]:
    """The manifests of the LocalController of `node`, which keeps its state in `node_dir`.

    Args:
        cluster: the LocalController watches the pods of its node there. None: it does not
    """
    credentials = {"token": token} | ({"cluster-token": cluster.token} if cluster else {})
    state = {"path": str(node_dir / "localcontroller"), "type": "DirectoryOrCreate"}
    pod_spec = {
        "nodeName": node,
        "hostNetwork": True,
        "volumes": [{"name": "state", "hostPath": state}],
    }
    container = _localcontroller(node, cluster, tuning)
    return _workload(localcontroller_of(node), credentials, pod_spec, container)


def _workload(
    name: str, credentials: Mapping[str, str], pod_spec: Object, container: Object
) -> list[Object]:
    """A Secret with the credentials, and a Deployment of one pod that mounts it.

    A hash of the credentials in the pod template makes new pods for new credentials.
    """
    labels = {"app.kubernetes.io/name": name}
    digest = _sha256(json.dumps(credentials, sort_keys=True))
    annotations = {"edgeai.io/credentials-sha256": digest}
    volume = {"name": "credentials", "secret": {"secretName": name}}
    mount = {"name": "credentials", "mountPath": "/etc/edgeai"}
    container = {**container, "volumeMounts": [mount, *container.get("volumeMounts", ())]}
    pod_spec = {
        "containers": [container],
        "terminationGracePeriodSeconds": 5,
        **pod_spec,
        "volumes": [volume, *pod_spec.get("volumes", ())],
    }
    spec = {
        "replicas": 1,
        # Two pods at the same time would compete for the node's session, ledger and port.
        "strategy": {"type": "Recreate"},
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels, "annotations": annotations}, "spec": pod_spec},
    }
    return [
        _object("v1", "Secret", name, stringData=credentials),
        _object("apps/v1", "Deployment", name, spec=spec),
    ]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _object(api_version: str, kind: str, name: str, **fields: Any) -> Object:
    labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "edgeai"}
    metadata = {"name": name, "namespace": NAMESPACE, "labels": labels}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **fields}


def _field(name: str, path: str) -> Object:
    return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}


def _globalmanager(tuning: Tuning) -> Object:
    return {
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
        # because all share one machine, and the Service must not lose its only replica.
        "readinessProbe": {
            "tcpSocket": {"port": HTTP_PORT},
            "periodSeconds": 1,
            "timeoutSeconds": 30,
        },
    }


def _localcontroller(node: str, cluster: ClusterAccess | None, tuning: Tuning) -> Object:
    pods_api: tuple[str, ...] = ()
    if cluster is not None:
        pods_api = ("--pods-api", cluster.url, "--pods-token-file", "/etc/edgeai/cluster-token")
    return {
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
        "volumeMounts": [{"name": "state", "mountPath": "/var/lib/edgeai"}],
    }
