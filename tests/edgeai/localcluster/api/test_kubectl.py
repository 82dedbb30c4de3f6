"""kubectl while a test changes the store at the right moment.

What it says of a cluster at rest is asserted in tests/conformance.
"""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from edgeai.localcluster.api.server import Server
from edgeai.localcluster.objects.containers import LogQuery
from edgeai.localcluster.objects.resources import CONFIGMAPS, CUSTOMRESOURCEDEFINITIONS, PODS
from edgeai.localcluster.objects.store import Store
from edgeai.localcluster.state import write_kubeconfig
from tests.edgeai.localcluster.conftest import TOKEN, configmap, pod, widget, widget_crd
from tests.edgeai.localcluster.running import patch
from tests.support.waiting import PATIENCE_S

KUBECTL = shutil.which("kubectl")
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="there is no kubectl on PATH")


class Output(msgspec.Struct, frozen=True):
    code: int
    out: str
    err: str


class Kubectl:
    """Runs kubectl with a home, a cache and a kubeconfig of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._environment = {
            "HOME": str(home),
            "KUBECONFIG": str(home / "kubeconfig"),
            "PATH": "/usr/bin:/bin",
        }

    async def start(self, *arguments: str) -> asyncio.subprocess.Process:
        assert KUBECTL is not None
        return await asyncio.create_subprocess_exec(
            KUBECTL,
            f"--cache-dir={self.home}/cache",
            *arguments,
            env=self._environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )

    async def run(self, *arguments: str, stdin: str = "") -> Output:
        process = await self.start(*arguments)
        try:
            out, err = await asyncio.wait_for(process.communicate(stdin.encode()), PATIENCE_S)
        except TimeoutError:
            process.kill()
            await process.wait()
            raise
        return Output(process.returncode or 0, out.decode(), err.decode())

    async def __call__(self, *arguments: str, stdin: str = "") -> str:
        """What a successful run prints."""
        output = await self.run(*arguments, stdin=stdin)
        assert output.code == 0, output.err
        return output.out

    async def apply(self, *objects: Any, flags: tuple[str, ...] = ()) -> str:
        return await self("apply", *flags, "-f", "-", stdin=yaml.safe_dump_all(objects))


@pytest.fixture
async def kubectl(api: Server, tmp_path: Path) -> Kubectl:
    write_kubeconfig(tmp_path / "kubeconfig", url=api.url, token=TOKEN)
    return Kubectl(tmp_path)


async def test_wait_for_a_condition(kubectl: Kubectl, store: Store) -> None:
    store.create(PODS, pod())
    waiting = await kubectl.start("wait", "pod/one", "--for=condition=Ready", "--timeout=15s")
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    patch(store, PODS, "default", "one", {"status": ready}, subresource="status")
    out, err = await asyncio.wait_for(waiting.communicate(), PATIENCE_S)
    assert (waiting.returncode, out) == (0, b"pod/one condition met\n"), err


async def test_delete_waits_until_the_object_is_gone(kubectl: Kubectl, store: Store) -> None:
    store.create(PODS, pod(nodeName="edge-1"))
    deleting = await kubectl.start("delete", "pod", "one")
    await eventually_deleted(store)
    assert deleting.returncode is None
    store.delete(PODS, "default", "one", grace_period_s=0)
    out, _ = await asyncio.wait_for(deleting.communicate(), PATIENCE_S)
    assert out == b'pod "one" deleted\n'


async def eventually_deleted(store: Store) -> None:
    with contextlib.closing(store.watch(PODS)) as watch:
        async with asyncio.timeout(PATIENCE_S):
            async for event in watch:
                if "deletionTimestamp" in event.object["metadata"]:
                    return


async def test_get_watch_follows(kubectl: Kubectl, store: Store) -> None:
    store.create(CONFIGMAPS, configmap("a"))
    process = await kubectl.start("get", "configmaps", "--watch", "--no-headers")
    assert process.stdout is not None
    read: Callable[[], Awaitable[bytes]] = process.stdout.readline
    try:
        assert (await asyncio.wait_for(read(), PATIENCE_S)).split()[0] == b"a"
        store.create(CONFIGMAPS, configmap("b"))
        assert (await asyncio.wait_for(read(), PATIENCE_S)).split()[0] == b"b"
    finally:
        process.terminate()
        await process.communicate()


async def test_logs(kubectl: Kubectl, store: Store, api: Server) -> None:
    async def source(query: LogQuery) -> AsyncIterator[bytes]:
        yield f"{query.container} tail={query.tail_lines}\n".encode()

    api.api.log_source = source
    store.create(PODS, pod())
    assert await kubectl("logs", "one") == "main tail=None\n"
    assert await kubectl("logs", "one", "-c", "main", "--tail=3", "-f") == "main tail=3\n"
    assert (await kubectl.run("logs", "missing")).code == 1


async def test_run_makes_a_pod(kubectl: Kubectl, store: Store) -> None:
    await kubectl("run", "p", "--image=busybox:1", "--", "sleep", "1")
    assert store.get(PODS, "default", "p")["spec"]["containers"][0]["args"] == ["sleep", "1"]


@pytest.mark.parametrize("flags", [(), ("--validate=strict",), ("--server-side",)])
async def test_apply_of_a_list(kubectl: Kubectl, store: Store, flags: tuple[str, ...]) -> None:
    typed = {"apiVersion": "v1", "kind": "ConfigMap"}
    items = [typed | configmap("a"), typed | configmap("b")]
    await kubectl.apply({"apiVersion": "v1", "kind": "List", "items": items}, flags=flags)
    assert [each["metadata"]["name"] for each in store.list(CONFIGMAPS).items] == ["a", "b"]


async def test_each_item_of_a_list_is_checked(kubectl: Kubectl, store: Store) -> None:
    store.create(CUSTOMRESOURCEDEFINITIONS, widget_crd())
    items = [widget(unknown=1)]
    text = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items})
    output = await kubectl.run("apply", "-f", "-", stdin=text)
    assert output.code == 1
    assert 'unknown field "spec.unknown"' in output.err


async def test_what_is_not_served_is_said(kubectl: Kubectl) -> None:
    output = await kubectl.run("create", "configmap", "c", "--from-literal=a=b")
    assert "--dry-run=client -o yaml" in output.err
    output = await kubectl.run("get", "gadgets")
    assert "doesn't have a resource type" in output.err
