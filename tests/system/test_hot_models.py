"""Models that travel to a node of the local cluster and are loaded while their worker runs."""

import functools
import hashlib
import http.server
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from edgeai.cli import system
from edgeai.cli.api import Object, path_of
from edgeai.cli.environment import Environment
from tests.support.waiting import eventually
from tests.system import hot_worker, processes
from tests.system.manager import stopped_manager

CHECKOUT = Path(__file__).parents[2]
NODE = "edge0"


def object_(kind: str, name: str, spec: Object) -> Object:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "edgeai.io/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def worker(model: Object, node: str, command: list[str]) -> Object:
    container = {
        "name": "worker",
        "image": "edgeai/test",
        "command": command,
        "workingDir": str(CHECKOUT),
    }
    spec = {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 1}
    return {"model": model, "template": {"spec": spec}}


@pytest.fixture
def files(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A directory, and the URL where a server has its files."""
    directory = tmp_path / "www"
    directory.mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(directory))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield directory, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


class Fleet:
    """One service whose edge worker loads its Model hot."""

    def __init__(self, running: Environment, directory: Path, url: str) -> None:
        self.api, self.directory, self._url = running.api, directory, url
        self.model = object_("Model", "small", {"url": self.publish("v1.json", answer=1)})
        big = object_("Model", "big", {"url": "/models/big"})
        self.service = object_("JointInferenceService", "hot", self.service_spec())
        for each in (self.model, big, self.service):
            self.api.apply(each)

    def service_spec(self) -> Object:
        sleeping = ["sleep", "infinity"]
        hot = {"name": "small", "hotUpdate": True, "pollPeriodSeconds": 1}
        return {
            "edgeWorker": worker(hot, NODE, [sys.executable, "-m", hot_worker.__name__]),
            "cloudWorker": worker({"name": "big"}, system.CLOUD, sleeping),
        }

    def publish(self, name: str, **content: Any) -> str:
        (self.directory / name).write_text(json.dumps(content))
        return f"{self._url}/{name}"

    def change(self, **spec: Any) -> None:
        self.api.patch(path_of(self.model), {"spec": spec})

    def generation(self) -> int:
        return int(self.api.get(path_of(self.model))["metadata"]["generation"])

    def status(self) -> dict[str, Any]:
        return dict(self.api.get(path_of(self.model)).get("status") or {})

    def delivered(self) -> dict[str, Any]:
        conditions = {each["type"]: each for each in self.status().get("conditions", ())}
        return dict(conditions.get("Delivered", {}))

    def wait_for_delivery(self, reason: str, generation: int) -> None:
        def check() -> bool:
            found = self.delivered()
            is_there = (found.get("reason"), found.get("observedGeneration"))
            assert is_there == (reason, generation), f"{self.status()}"
            return True

        eventually(f"Delivered with reason {reason}", check, timeout_s=90)

    def pod(self) -> Object:
        selector = "edgeai.io/name=hot,edgeai.io/role=edge"
        pods = self.api.get(f"/api/v1/namespaces/default/pods?labelSelector={selector}")["items"]
        assert len(pods) == 1, f"{len(pods)} pods"
        return dict(pods[0])

    def told(self) -> list[dict[str, Any]]:
        """The JSON lines of the worker."""
        return self.told_by(self.pod()["metadata"]["name"])

    def told_by(self, name: str) -> list[dict[str, Any]]:
        lines = self.api.log("default", name)
        return [json.loads(line) for line in lines if line.startswith("{")]

    def wait_for_answer(self, version: int, answer: int) -> None:
        def check() -> bool:
            lines = self.told()
            assert {"version": version, "answer": answer} in lines, f"{lines}"
            return True

        eventually(f"version {version} answers", check, timeout_s=90)

    def totals(self, running: Environment) -> dict[str, int]:
        """What the worker has asked and had answered up to now."""
        before = len(self.told())
        (pid,) = processes.pids_of(running, hot_worker.__name__)
        os.kill(pid, signal.SIGUSR1)
        eventually("totals", lambda: "asked" in self.told()[-1] and len(self.told()) > before)
        return self.told()[-1]

    def report(self) -> dict[str, Any]:
        status = self.api.get(path_of(self.service)).get("status") or {}
        return dict((status.get("workers") or {}).get("hot-edge") or {})


def test_a_new_version_takes_over_between_two_batches(
    running: Environment, files: tuple[Path, str]
) -> None:
    fleet = Fleet(running, *files)
    fleet.wait_for_answer(1, 1)
    fleet.wait_for_delivery("Delivered", 1)
    first_pod = fleet.pod()["metadata"]["uid"]

    gate = files[0] / "gate"
    url = fleet.publish("v2.json", answer=2, gate=str(gate))
    content = (files[0] / "v2.json").read_bytes()
    fleet.change(url=url, sha256=hashlib.sha256(content).hexdigest())
    fleet.wait_for_delivery("Delivered", 2)
    before = fleet.totals(running)
    eventually("more answers", lambda: fleet.totals(running)["answered"] > before["answered"] + 30)
    gate.touch()
    fleet.wait_for_answer(2, 2)

    fleet.change(url=fleet.publish("v3.json", broken="no weights"), sha256="")
    fleet.wait_for_delivery("Delivered", 3)
    eventually("the fault in the status", lambda: "no weights" in str(fleet.report()["details"]))
    assert fleet.report()["details"]["modelVersion"] == "2"

    assert fleet.pod()["metadata"]["uid"] == first_pod
    totals = fleet.totals(running)
    assert totals["asked"] == totals["answered"] > 0
    assert fleet.report()["taskInfo"]["version"] == 2


def test_a_node_that_boots_without_cloud_and_server_goes_on(
    running: Environment, files: tuple[Path, str]
) -> None:
    fleet = Fleet(running, *files)
    fleet.change(url=fleet.publish("last.json", answer=9), sha256="")
    version = fleet.generation()
    fleet.wait_for_answer(version, 9)
    with stopped_manager(running):
        (files[0] / "last.json").unlink()
        processes.kill(running, "localcontroller", NODE)
        killed = processes.kill(running, hot_worker.__name__)
        processes.wait_for_successor(running, killed, hot_worker.__name__)
        eventually("a first answer", lambda: fleet.told()[:1])
        assert fleet.told()[0] == {"version": version, "answer": 9}
