"""A node without containers: it says what a kubelet would say, until it falls silent."""

import contextlib
import threading
from http.client import HTTPException
from typing import Final

from common.times import rfc3339, utc_now
from edgeai.api import ApiError, Object
from tests.cluster.client import Client
from tests.cluster.kubelet import EVERY_S, start

_ROOM: Final = {"cpu": "4", "memory": "8Gi", "pods": "20"}


class LoneNode:
    """Sends heartbeats, and serves the pods of one namespace that are bound to it.

    Args: labels: of the Node, beside its host name
    """

    def __init__(self, client: Client, name: str, namespace: str, labels: dict[str, str]) -> None:
        self.name = name
        self._client = client
        self._path = f"/api/v1/nodes/{name}"
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
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
