"""What is left of a kubelet where no pod runs: it says of pods what one would say."""

import threading
from http.client import HTTPException
from typing import Final

from edgeai.cli.api import ApiError, Object
from tests.support.client import Client

EVERY_S: Final = 0.2


class Kubelet:
    """Serves all pods of one namespace that are bound to a node, from now on until stopped.

    New pods are ready, and deleted ones have ended.
    """

    def __init__(self, client: Client, namespace: str) -> None:
        self._client = client
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self.lost: set[str] = set()
        """Nodes whose power is off: nobody says anything of their pods any more."""
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubelet")
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(EVERY_S):
            try:
                for pod in self._client.list(self._pods):
                    if pod["spec"].get("nodeName") not in self.lost:
                        self._serve(pod)
            except (ApiError, OSError, HTTPException):
                continue  # it is gone already, or next time

    def _serve(self, pod: Object) -> None:
        path = f"{self._pods}/{pod['metadata']['name']}"
        if "deletionTimestamp" in pod["metadata"]:
            self._client.request("DELETE", f"{path}?gracePeriodSeconds=0")
        elif pod["status"]["phase"] == "Pending" and pod["spec"].get("nodeName"):
            start(self._client, path, pod)


def start(client: Client, pod_path: str, pod: Object) -> None:
    """The listed pod runs and is ready, unless a test has ended the pod since the list."""
    version = {"resourceVersion": pod["metadata"]["resourceVersion"]}
    client.patch(f"{pod_path}/status", {"metadata": version, **_running(ready=True)})


def set_ready(client: Client, pod_path: str, *, ready: bool) -> None:
    """The pod runs, and its readiness probe says so."""
    client.patch(f"{pod_path}/status", _running(ready=ready))


def _running(*, ready: bool) -> Object:
    """As a kubelet writes it: with a reason, which a node controller does not give."""
    mark = {"status": str(ready)} if ready else {"status": "False", "reason": "ContainersNotReady"}
    conditions = [{"type": type_, **mark} for type_ in ("ContainersReady", "Ready")]
    return {"status": {"phase": "Running", "conditions": conditions}}
