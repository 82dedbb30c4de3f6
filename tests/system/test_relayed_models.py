"""A node that reaches the GlobalManager and nothing else gets its Model from a Service."""

import hashlib
import sys
from collections.abc import Iterator
from typing import Any, Final

import pytest

from edgeai.cli import environment, system
from edgeai.cli.api import Object, path_of
from edgeai.cli.environment import Environment
from tests.support.isolation import needs_isolation
from tests.support.waiting import eventually
from tests.system import content_server, processes
from tests.system.test_hot_models import CHECKOUT, NODE, object_, worker

pytestmark = needs_isolation

SIZE: Final = 72 * 1024 * 1024  # the node syncs each 16 MiB
BYTES_PER_S: Final = 12 * 1024 * 1024
CUT_AT: Final = 4 * 1024 * 1024
PORT: Final = 8000
DIGEST: Final = hashlib.sha256(content_server.content(SIZE)).hexdigest()


@pytest.fixture(scope="module")
def isolated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    state_dir = tmp_path_factory.mktemp("edgeai") / "state"
    yield environment.up(state_dir, edges=(NODE,), are_edges_isolated=True)
    environment.down(state_dir)


def store() -> list[Object]:
    """The Service with the content, and its pod in the cloud."""
    sizes = (PORT, SIZE, BYTES_PER_S, CUT_AT)
    command = [sys.executable, "-m", content_server.__name__, "$(POD_IP)", *map(str, sizes)]
    address = {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    container = {"name": "store", "image": "edgeai/test", "command": command, "env": [address]}
    container["workingDir"] = str(CHECKOUT)
    metadata = {"name": "store", "namespace": "default", "labels": {"app": "store"}}
    spec = {"nodeName": system.CLOUD, "containers": [container]}
    service = {"selector": {"app": "store"}, "ports": [{"port": 80, "targetPort": PORT}]}
    kinds = {"Pod": spec, "Service": service}
    return [
        {"apiVersion": "v1", "kind": kind, "metadata": metadata, "spec": spec}
        for kind, spec in kinds.items()
    ]


def service() -> Object:
    sleeping = ["sleep", "infinity"]
    hot = worker({"name": "small", "hotUpdate": True}, NODE, sleeping)
    cloud = worker({"name": "big"}, system.CLOUD, sleeping)
    return object_("JointInferenceService", "hot", {"edgeWorker": hot, "cloudWorker": cloud})


def model_status(running: Environment, model: Object) -> dict[str, Any]:
    return dict(running.api.get(path_of(model)).get("status") or {})


def starts(running: Environment) -> list[int]:
    """The first bytes of the requests for the content."""
    return [int(line) for line in running.api.log("default", "store") if line.isdigit()]


def test_a_model_comes_through_the_relay_past_a_cut_and_two_kills(isolated: Environment) -> None:
    url = "http://store.default.svc/small.onnx"
    model = object_("Model", "small", {"url": url, "sha256": DIGEST})
    big = object_("Model", "big", {"url": "/models/big"})
    for each in (model, big, service()):
        isolated.api.apply(each)

    def lacks_service() -> bool:
        text = str(model_status(isolated, model).get("conditions"))
        assert "Service store of namespace default has no cluster IP, or no selector" in text, text
        return True

    eventually("a reason that names the Service", lacks_service, timeout_s=90)
    for each in store():
        isolated.api.apply(each)
    for requests in (2, 3):  # the server has cut the first one
        wait_for_bytes(isolated, requests)
        killed = processes.kill(isolated, "localcontroller", NODE)
        processes.wait_for_successor(isolated, killed, "localcontroller", NODE)

    def is_delivered() -> bool:
        status = model_status(isolated, model)
        assert (status.get("digest"), status.get("readyNodes")) == (DIGEST, 1), status
        return True

    eventually("the delivery", is_delivered, timeout_s=120)
    (file,) = isolated.state_dir.rglob(f"content/{DIGEST}")
    assert hashlib.sha256(file.read_bytes()).hexdigest() == DIGEST
    found = starts(isolated)
    assert found == sorted(set(found)), "each request goes on"
    assert found[2:], found
    assert all(start >= 16 * 2**20 for start in found[2:]), found


def wait_for_bytes(running: Environment, requests: int) -> None:
    """Wait until the last of so many requests has brought more than the node syncs at once."""

    def check() -> bool:
        asked = starts(running)
        assert len(asked) >= requests, asked
        part_bytes = sum(file.stat().st_size for file in running.state_dir.rglob("content/*.part"))
        assert part_bytes >= asked[-1] + 20 * 2**20, part_bytes
        return True

    eventually(f"the bytes of {requests} requests", check, timeout_s=90)
