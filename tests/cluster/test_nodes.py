"""Nodes that run containers: what the end-to-end tests take for granted of them."""

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import pytest

from edgeai.cli.api import Object
from edgeai.faults.pod_faults import examine
from tests.cluster import binaries, packages
from tests.cluster.binaries import Unavailable
from tests.cluster.images import BASE, CHECKOUT
from tests.support.cluster import CLOUD, EDGES, NODES, PREFIX, Cluster, NotStarted, remove_leftovers
from tests.support.waiting import eventually

# Preparation may take minutes the first time, and has bounds of its own.
pytestmark = pytest.mark.timeout(120, func_only=True)
PORT: Final = 9100
SERVER: Final = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(os.environ["NODE"].encode())
print("serving on", os.environ["NODE"], flush=True)
http.server.HTTPServer(("", 9100), Handler).serve_forever()
"""
ASK: Final = """
import sys, urllib.request
print(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode())
"""


@pytest.fixture(scope="module")
def servers(cluster: Cluster) -> dict[str, str]:
    """Pods that say their node's name to whom asks at Service `names`: node -> pod."""
    apply(cluster, daemon_set("names"), service("names"))
    return wait_for_pods(cluster, "names")


def apply(cluster: Cluster, *objects: Object) -> None:
    applied = cluster.control_plane.kubectl("apply", "-f", "-", documents=list(objects))
    assert applied.returncode == 0, applied.stderr


def daemon_set(name: str, **pod: Any) -> Object:
    labels = {"app": name}
    node = {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    container = {
        "name": "server",
        "image": BASE,
        "imagePullPolicy": "Never",
        "command": ["python3", "-c", SERVER],
        "env": [node],
        "readinessProbe": {"httpGet": {"path": "/", "port": PORT}, "periodSeconds": 1},
    }
    spec = {"terminationGracePeriodSeconds": 1, "containers": [container], **pod}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }


def service(name: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": PORT}]},
    }


def wait_for_pods(cluster: Cluster, name: str) -> dict[str, str]:
    """Until one is ready on each node. Returns: node -> pod"""

    def check() -> dict[str, str]:
        pods = cluster.client.list(f"/api/v1/namespaces/default/pods?labelSelector=app={name}")
        ready = [pod for pod in pods if is_ready(pod)]
        found = {pod["spec"]["nodeName"]: pod["metadata"]["name"] for pod in ready}
        assert set(found) == set(NODES), f"ready on {sorted(found)} only"
        return found

    return eventually(f"the pods of {name}", check)


def is_ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def execute(cluster: Cluster, pod: str, *argv: str) -> str:
    done = cluster.control_plane.kubectl("exec", pod, "--", *argv)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def answer(cluster: Cluster, pod: str, url: str) -> str:
    """What `pod` hears at `url`."""
    return execute(cluster, pod, "python3", "-c", ASK, url)


def wait_for_answer(cluster: Cluster, pod: str, url: str) -> None:
    """A node learns of a Service a moment after the API does."""

    def check() -> bool:
        done = cluster.control_plane.kubectl("exec", pod, "--", "python3", "-c", ASK, url)
        assert done.returncode == 0, done.stderr
        return True

    eventually(f"an answer at {url}", check)


def test_a_cloud_and_two_edge_nodes_are_ready(cluster: Cluster) -> None:
    nodes = cluster.client.list("/api/v1/nodes")
    edges = [
        node["metadata"]["name"]
        for node in nodes
        if "node-role.kubernetes.io/edge" in node["metadata"]["labels"]
    ]
    assert len(nodes) == 3
    assert sorted(edges) == sorted(EDGES)


def test_a_daemon_set_runs_on_every_node(servers: dict[str, str]) -> None:
    assert set(servers) == set(NODES)


def test_each_node_has_a_network_of_its_own(cluster: Cluster) -> None:
    """Else pods on the network of their nodes would fight for one port."""
    apply(cluster, daemon_set("on-host", hostNetwork=True, dnsPolicy="ClusterFirstWithHostNet"))
    pods = wait_for_pods(cluster, "on-host")
    heard = {
        node: answer(cluster, pods[CLOUD], f"http://{cluster.nodes[node].address}:{PORT}")
        for node in NODES
    }
    assert heard == {node: node for node in NODES}


def test_a_service_answers_by_its_name(cluster: Cluster, servers: dict[str, str]) -> None:
    """From a pod of any node, by the pods of all."""
    for pod in servers.values():
        wait_for_answer(cluster, pod, "http://names.default")
        heard: set[str] = set()
        for _ in range(60):  # which of them answers is left to chance
            heard.add(answer(cluster, pod, "http://names.default"))
            if heard > {CLOUD}:
                break
        assert heard > {CLOUD}


def test_a_pod_reaches_the_api_server(cluster: Cluster, servers: dict[str, str]) -> None:
    token = "/var/run/secrets/kubernetes.io/serviceaccount"
    script = f"""
import json, ssl, urllib.request
context = ssl.create_default_context(cafile="{token}/ca.crt")
url = "https://kubernetes.default.svc/version"
print(json.load(urllib.request.urlopen(url, context=context))["gitVersion"])
"""
    assert execute(cluster, servers["edge0"], "python3", "-c", script).startswith("v")


def test_logs_are_shown(cluster: Cluster, servers: dict[str, str]) -> None:
    shown = cluster.control_plane.kubectl("logs", servers["edge1"])
    assert "serving on edge1" in shown.stdout, shown.stderr


def test_what_a_node_writes_it_keeps_to_itself(cluster: Cluster) -> None:
    """A hostPath of one node is neither another's nor this machine's."""
    path = "/var/lib/edgeai-test-of-nodes"
    cluster.nodes["edge0"].machine.run("mkdir", path)
    assert cluster.nodes["edge1"].machine.run("ls", "/var/lib").split().count(Path(path).name) == 0
    assert not Path(path).exists()


def test_a_node_that_is_cut_off_is_not_ready_until_it_is_back(
    cluster: Cluster, servers: dict[str, str]
) -> None:
    cluster.cut_off("edge0")
    try:
        cluster.wait_until_ready("edge0", ready=False)
        cluster.wait_until_ready("edge1")
    finally:
        cluster.reconnect("edge0")
    cluster.wait_until_ready("edge0")
    wait_for_answer(cluster, servers["edge0"], "http://names.default")


# ---- the end ---------------------------------------------------------------------------------

HOLD: Final = """
import sys, time
from pathlib import Path
from tests.cluster.machine import Machine
machine = Machine("killed", Path(sys.argv[1]))
machine.start()
machine.program("sleep", "600", log=Path(sys.argv[1]) / "sleep.log").start()
print(machine.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def as_root() -> None:
    try:
        packages.obtain()
    except Unavailable as error:
        pytest.skip(str(error))


@pytest.mark.usefixtures("as_root")
def test_a_machine_ends_with_the_run_that_is_killed(tmp_path: Path) -> None:
    """With all of its processes, hence its mounts and interfaces."""
    argv = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=CHECKOUT) as run:
        assert run.stdout is not None
        first = int(run.stdout.readline())
        inside = os.readlink(f"/proc/{first}/ns/pid")
        assert len(processes_in(inside)) > 1
        run.kill()

    def check() -> bool:
        left = processes_in(inside)
        assert not left, f"{len(left)} still run"
        return True

    eventually("the end of the machine's processes", check)


def processes_in(pid_namespace: str) -> list[str]:
    found = []
    for link in Path("/proc").glob("[0-9]*/ns/pid"):
        with contextlib.suppress(OSError):
            if os.readlink(link) == pid_namespace:
                found.append(link.parts[2])
    return found


@pytest.mark.usefixtures("as_root")
def test_a_start_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    programs = binaries.obtain([*binaries.PROGRAMS, *binaries.NODE_PROGRAMS])
    archive = tmp_path / "images.tar"
    archive.write_bytes(b"this is no archive")
    cluster = Cluster(programs, archive=archive)
    before = on_this_machine()
    with pytest.raises(NotStarted, match="images import"):
        cluster.start(tries=1)
    assert cluster.names
    new = on_this_machine() - before
    assert not [each for each in new if is_of(cluster, each) or not OWNER.search(each)]


OWNER = re.compile(r"edgeai-cluster-\w+|edgeai-test\d+")
"""The names in Cluster.names. Other tests start and stop clusters meanwhile."""


def is_of(cluster: Cluster, name: str) -> bool:
    return not cluster.names.isdisjoint(OWNER.findall(name))


def on_this_machine() -> set[str]:
    places = (tempfile.gettempdir(), "/sys/class/net", "/run", "/run/netns", "/var/lib")
    files = {str(path) for place in places for path in Path(place).glob("*") if is_ours(path.name)}
    mounts = {line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()}
    return files | {mount for mount in mounts if is_ours(mount)}


def is_ours(name: str) -> bool:
    return any(word in name for word in ("edgeai-cluster", "edgeai-test", "containerd", "cni"))


def test_what_a_killed_run_left_on_disk_is_removed() -> None:
    left = Path(tempfile.mkdtemp(prefix=PREFIX))
    (left / "edge0").mkdir()
    remove_leftovers()
    assert not left.exists()


@pytest.mark.parametrize(("code", "phase"), [(7, "Failed"), (0, "Succeeded")])
def test_a_sidecar_that_is_stopped_does_not_explain_the_end_of_its_pod(
    cluster: Cluster, code: int, phase: str
) -> None:
    common = {"image": BASE, "imagePullPolicy": "Never"}
    wait = 'trap "exit 143" TERM; sleep infinity & wait'
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"with-sidecar-{code}", "namespace": "default"},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 2,
            "initContainers": [
                {
                    **common,
                    "name": "proxy",
                    "command": ["sh", "-c", wait],
                    "restartPolicy": "Always",
                }
            ],
            "containers": [
                {**common, "name": "main", "command": ["sh", "-c", f"sleep 1; exit {code}"]}
            ],
        },
    }
    cluster.client.create(pod)

    def ended_pod() -> Object | None:
        found = cluster.client.get(f"/api/v1/namespaces/default/pods/with-sidecar-{code}")
        return found if found["status"]["phase"] == phase else None

    ended = cluster.eventually("the end of the pod", ended_pod)
    (sidecar,) = ended["status"]["initContainerStatuses"]
    assert sidecar["state"]["terminated"]["exitCode"] == 143
    messages = [fault.message for fault in examine([ended]).faults]
    assert len(messages) == (1 if code else 0)
    assert all("container main ended with exit code 7" in message for message in messages)
