"""One JointInferenceService of the example, streamed as slowly as a test needs."""

import copy
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from edgeai.cli import system
from edgeai.cli.api import Object, path_of
from edgeai.cli.environment import Environment
from edgeai.demo.joint_inference import story as demo
from edgeai.demo.joint_inference import train
from edgeai.demo.joint_inference.manifests import Placement, objects
from edgeai.demo.stage import NAMESPACE
from tests.support.inference import CountingService
from tests.support.waiting import eventually

EDGE_MODULE = "edgeai.demo.joint_inference.edge_worker"
CLOUD_MODULE = "edgeai.demo.joint_inference.cloud_worker"
PATIENTLY = {"CLOUD_TIMEOUT_SECONDS": "5"}
"""Where no call may fail: on a busy machine an answer may take longer than the default of 2 s."""


def manifests(files: Path, *, edge_env: dict[str, str]) -> list[Object]:
    """The example's, with further environment for the edge worker; the service comes last."""
    placement = Placement(
        files=files,
        python=Path(sys.executable),
        checkout=Path(train.__file__).parents[2],
        edge_node=demo.EDGE_NODE,
        cloud_node=system.CLOUD,
    )
    applied = copy.deepcopy(objects(placement))
    container = applied[-1]["spec"]["edgeWorker"]["template"]["spec"]["containers"][0]
    kept = [variable for variable in container["env"] if variable["name"] not in edge_env]
    given = [{"name": name, "value": value} for name, value in edge_env.items()]
    container["env"] = kept + given
    return applied


class Stream(CountingService):
    """A service that is streaming; what its CR and its worker say."""

    def __init__(self, running: Environment, service: Object) -> None:
        super().__init__(running.api, service)
        self.running = running
        self._events = demo.worker_events(running.api, demo.edge_pod(running.api))

    def result(self) -> dict[str, Any]:
        """What the worker counted in the end."""
        return next(event for event in self._events if event["event"] == "result")

    def results_after_restart(self) -> Iterator[dict[str, Any]]:
        """Results of the process that runs now; the log of the one before has ended."""
        events = demo.worker_events(self.running.api, demo.edge_pod(self.running.api))
        return (event for event in events if event["event"] == "result")


@contextmanager
def streaming(running: Environment, files: Path, **edge_env: str) -> Iterator[Stream]:
    """Apply the example and delete it again, with all that it made."""
    applied = [running.api.apply(object_) for object_ in manifests(files, edge_env=edge_env)]
    try:
        yield Stream(running, applied[-1])
    finally:
        for object_ in reversed(applied):
            running.api.delete(path_of(object_))
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
        eventually("the end of the pods", lambda: _are_gone(running.api.get(pods)["items"]))


def _are_gone(pods: list[Object]) -> bool:
    names = [pod["metadata"]["name"] for pod in pods]
    assert not names, f"there is still {names}"
    return True
