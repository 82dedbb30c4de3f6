"""A node without containers: it says what a kubelet would say, until it falls silent."""

import contextlib
import threading
import time
from http.client import HTTPException
from typing import Final

from edgeai.api.resources import CONFIG_MAPS
from edgeai.cli.api import ApiError, Object
from edgeai.ids import NodeName
from edgeai.times import micro_time, rfc3339, utc_now
from globalmanager.ha import claims
from globalmanager.ha.elector import LEASES, REPLICA_LABEL
from globalmanager.ha.presence import CLAIMS_FIELD
from globalmanager.kinds.training.edge_placement import EDGE_LABEL
from tests.cluster.kubelet import EVERY_S, start
from tests.support.client import Client

_MANAGERS: Final = "labelSelector=app.kubernetes.io/name=globalmanager"
_CLAIM_EVERY_S: Final = 5.0
_ROOM: Final = {"cpu": "4", "memory": "8Gi", "pods": "20"}


class LoneNode:
    """Sends heartbeats, and serves the pods of one namespace that are bound to it.

    An edge node has a session while a pod of a GlobalManager is ready.

    Args: labels: of the Node, beside its host name
    """

    def __init__(self, client: Client, name: str, namespace: str, labels: dict[str, str]) -> None:
        self.name = name
        self._client = client
        self._path = f"/api/v1/nodes/{name}"
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._claims = _Claims(client, name, namespace)
        self._has_session = EDGE_LABEL in labels
        client.create(
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **labels}},
            }
        )
        self._begin()

    def _begin(self) -> None:
        self._silent = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"node {self.name}")
        self._thread.start()

    def fall_silent(self) -> None:
        self._silent.set()
        self._thread.join()

    def come_back(self) -> None:
        self._begin()

    def end_session(self) -> None:
        self.fall_silent()
        self._has_session = False
        self._claims.withdraw()
        self.come_back()

    def open_session(self) -> None:
        self._has_session = True

    def remove(self) -> None:
        self.fall_silent()
        self._client.delete(self._path)

    def _run(self) -> None:
        while not self._silent.is_set():
            with contextlib.suppress(ApiError, OSError, HTTPException):  # again next time
                self._send_heartbeat()
                for pod in self._client.list(
                    f"{self._pods}?fieldSelector=spec.nodeName={self.name}"
                ):
                    self._serve(pod)
                if self._has_session:
                    self._claims.publish(self._client.list(f"{self._pods}?{_MANAGERS}"))
            self._silent.wait(EVERY_S)

    def _send_heartbeat(self) -> None:
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        heard = {"lastHeartbeatTime": rfc3339(utc_now()), "lastTransitionTime": rfc3339(utc_now())}
        status = {"conditions": [ready | heard], "capacity": _ROOM, "allocatable": _ROOM}
        self._client.patch(f"{self._path}/status", {"status": status})

    def _serve(self, pod: Object) -> None:
        path = f"{self._pods}/{pod['metadata']['name']}"
        if "deletionTimestamp" in pod["metadata"]:
            uid = {"preconditions": {"uid": pod["metadata"]["uid"]}}
            self._client.request("DELETE", path, {"gracePeriodSeconds": 0, **uid})
        elif pod["status"]["phase"] in ("Pending", "Running") and not _is_ready(pod):
            start(self._client, path, pod)


def _is_ready(pod: Object) -> bool:
    listed = pod["status"].get("conditions") or []
    return any((one["type"], one["status"]) == ("Ready", "True") for one in listed)


class _Claims:
    """What a GlobalManager with a session of the node writes."""

    def __init__(self, client: Client, node: str, namespace: str) -> None:
        self._client, self._node = client, node
        self._name = f"edgeai-globalmanager-{node}"
        self._collections = [type_.path(namespace) for type_ in (LEASES, CONFIG_MAPS)]
        self._next_s = 0.0

    def withdraw(self) -> None:
        for collection in self._collections:
            self._client.delete(f"{collection}/{self._name}")

    def publish(self, pods: list[Object]) -> None:
        if time.monotonic() < self._next_s or not any(map(_is_ready, pods)):
            return
        session = claims.Claim(order=1, since=0, ledger="")
        lease = {"spec": {"renewTime": micro_time(utc_now())}}
        config_map = {"data": {CLAIMS_FIELD: claims.encode({NodeName(self._node): session})}}
        metadata = {"name": self._name, "labels": {REPLICA_LABEL: "imitated"}}
        for collection, content in zip(self._collections, (lease, config_map), strict=True):
            if self._client.find(f"{collection}/{self._name}"):
                self._client.patch(f"{collection}/{self._name}", content)
            else:
                self._client.request("POST", collection, {"metadata": metadata, **content})
        self._next_s = time.monotonic() + _CLAIM_EVERY_S
