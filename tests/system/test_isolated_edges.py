"""The edges reach the edge port of the GlobalManager, and nothing else: is everything as ever?

Joint inference is here, federated learning in tests/training/test_demo_federated.py.
"""

import sys
from collections.abc import Iterator
from typing import Final

import pytest

from edgeai.cli import environment, system
from edgeai.cli.api import Api, Object
from edgeai.cli.environment import Environment
from tests.support.isolation import needs_isolation
from tests.support.waiting import eventually
from tests.system.demos import Demo, left_of, play

pytestmark = needs_isolation

CONNECT: Final = """
import socket, sys
for target in sys.argv[1:]:
    host, port = target.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
        print(target, "open")
    except OSError as error:
        print(target, type(error).__name__)
"""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    return play("joint-inference", tmp_path_factory.mktemp("isolated"), "--isolated-edges")


@pytest.fixture(scope="module")
def connected(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    return play("joint-inference", tmp_path_factory.mktemp("connected"))


def test_the_figures_are_those_of_connected_edges(demo: Demo, connected: Demo) -> None:
    assert demo.process.returncode == 0, demo.process.stdout + demo.process.stderr
    assert demo.outcome == {**connected.outcome, "transports": ["relay"]}
    assert connected.outcome["transports"] == ["direct"]


def test_nothing_is_left(demo: Demo) -> None:
    assert left_of(demo.directory) == []


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    state_dir = tmp_path_factory.mktemp("edgeai") / "state"
    yield environment.up(state_dir, edges=("edge0",), are_edges_isolated=True)
    environment.down(state_dir)


def test_no_direct_connection_leaves_an_isolated_edge(running: Environment) -> None:
    """The same pod in the cloud reaches all of it."""
    api = running.api
    service = api.get(f"/api/v1/namespaces/{system.NAMESPACE}/services/{system.GLOBALMANAGER}")
    manager = service["spec"]["clusterIP"]
    kubernetes = running.cluster.api.removeprefix("http://").partition("/")[0]
    edge_port, rest = f"{manager}:{system.EDGE_PORT}", f"{manager}:{system.HTTP_PORT}"
    targets = (edge_port, rest, kubernetes)
    assert connections(api, system.CLOUD, targets) == dict.fromkeys(targets, "open")
    assert connections(api, "edge0", targets) == {
        edge_port: "open",
        rest: "ConnectionRefusedError",
        kubernetes: "ConnectionRefusedError",
    }


def connections(api: Api, node: str, targets: tuple[str, ...]) -> dict[str, str]:
    """What a pod of this node gets from each target."""
    name = f"connect-{node}"
    container = {"name": "main", "image": "none", "command": [sys.executable, "-c", CONNECT]}
    container["args"] = list(targets)
    spec: Object = {"nodeName": node, "restartPolicy": "Never", "containers": [container]}
    metadata = {"name": name, "namespace": "default"}
    api.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def has_ended() -> bool:
        pod = api.get(f"/api/v1/namespaces/default/pods/{name}")
        return bool(pod["status"].get("phase") == "Succeeded")

    eventually(f"end of {name}", has_ended)
    return dict(line.split() for line in api.log("default", name))
