"""Commands in containers through a real API server and a real kubelet."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

import pytest

from edgeai.api.resources import PODS, ObjectRef
from edgeai.cli.api import Object
from edgeai.kube import errors
from edgeai.kube.client import KubeClient
from edgeai.kube.execution import End
from tests.cluster.images import BASE
from tests.support.cluster import EDGES, Cluster
from tests.support.waiting import async_eventually, eventually

pytestmark = pytest.mark.timeout(180, func_only=True)
T = TypeVar("T")
NAME: Final = "has-a-shell"


@pytest.fixture(scope="module")
def pod(cluster: Cluster) -> str:
    """A running pod. Returns: its name"""
    container = {
        "name": "main",
        "image": BASE,
        "imagePullPolicy": "Never",
        "command": ["sleep", "3600"],
    }
    spec = {"nodeName": EDGES[0], "terminationGracePeriodSeconds": 1, "containers": [container]}
    made: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": NAME, "namespace": "default"},
        "spec": spec,
    }
    cluster.client.create(made)

    def is_running() -> bool:
        found = cluster.client.get(f"/api/v1/namespaces/default/pods/{NAME}")
        assert found["status"]["phase"] == "Running", found["status"]
        return True

    eventually("the running pod", is_running)
    return NAME


def ask(cluster: Cluster, question: Callable[[KubeClient], Awaitable[T]]) -> T:
    """Its event loop ends after the TLS goodbyes: else a socket stays open."""

    async def asked() -> T:
        before = sockets()
        try:
            async with await KubeClient.from_kubeconfig(cluster.control_plane.kubeconfig) as client:
                return await question(client)
        finally:
            await async_eventually("the end of all connections", lambda: not sockets() - before)

    return asyncio.run(asked())


def sockets() -> set[str]:
    """Those that this process has open."""
    links = set()
    for each in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the directory's own
            links.add(os.readlink(each))
    return {each for each in links if each.startswith("socket:")}


def execute(
    cluster: Cluster, pod: str, *command: str, stdin: bytes = b"", container: str = "main"
) -> End:
    ref = ObjectRef(PODS, "default", pod)
    return ask(cluster, lambda k: k.execute(ref, container=container, command=command, stdin=stdin))


def test_exit_code_and_output_come_back(cluster: Cluster, pod: str) -> None:
    assert execute(cluster, pod, "echo", "a b") == End(0, "a b\n")
    ended = execute(cluster, pod, "sh", "-c", "echo out; echo err >&2; exit 7")
    assert ended.exit_code == 7
    assert sorted(ended.output.split()) == ["err", "out"]


def test_the_last_output_is_never_lost(cluster: Cluster, pod: str) -> None:
    ref = ObjectRef(PODS, "default", pod)

    async def run(client: KubeClient) -> set[str]:
        command = ("sh", "-c", "sleep 0.1; echo done")
        ends = [await client.execute(ref, container="main", command=command) for _ in range(50)]
        return {end.output for end in ends}

    assert ask(cluster, run) == {"done\n"}


def test_a_script_arrives_over_standard_input(cluster: Cluster, pod: str) -> None:
    script = b"echo $((6*7)) " + b"# " + b"x" * 200_000 + b"\nexit 3\n"
    command = ("sh", "-c", f'eval "$(head -c {len(script)})"')
    assert execute(cluster, pod, *command, stdin=script) == End(3, "42\n")


def test_a_silent_command_outlives_the_pings(cluster: Cluster, pod: str) -> None:
    """A server that does not answer pings would lose the connection after half a minute."""
    began_s = time.monotonic()
    assert execute(cluster, pod, "sh", "-c", "sleep 35; echo done") == End(0, "done\n")
    assert time.monotonic() - began_s >= 35


def test_a_command_that_cannot_start_is_refused(cluster: Cluster, pod: str) -> None:
    with pytest.raises(errors.Invalid, match="no-such-program"):
        execute(cluster, pod, "no-such-program")


def test_a_pod_or_container_that_is_not_there_is_not_found(cluster: Cluster, pod: str) -> None:
    with pytest.raises(errors.NotFound):
        execute(cluster, "nobody", "true")
    with pytest.raises(errors.ApiError, match="other"):
        execute(cluster, pod, "true", container="other")


def test_a_flood_of_output_leaves_its_end(cluster: Cluster, pod: str) -> None:
    script = "head -c 2000000 /dev/zero | tr '\\0' x; echo; echo z"
    ended = execute(cluster, pod, "sh", "-c", script)
    assert ended.exit_code == 0
    assert len(ended.output) == 4096
    assert ended.output.endswith("x\nz\n")


def test_a_pod_that_ends_meanwhile_ends_the_command(cluster: Cluster, pod: str) -> None:
    """The last test of this pod: what is read then is either its exit code or a lost connection."""

    async def run(client: KubeClient) -> End | None:
        ref = ObjectRef(PODS, "default", pod)
        running = asyncio.create_task(
            client.execute(ref, container="main", command=("sleep", "600"))
        )
        await asyncio.sleep(3)
        await client.delete(ref)
        try:
            return await running
        except errors.ApiError:
            return None

    ended = ask(cluster, run)
    assert ended is None or ended.exit_code != 0
