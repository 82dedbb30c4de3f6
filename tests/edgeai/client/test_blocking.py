"""The client for programs without an event loop: what it gives, and where it cannot work."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, assert_type

import pytest

from edgeai.client import (
    AsyncClient,
    Client,
    ClientUnusable,
    Event,
    LogLine,
    Model,
    ModelSpec,
    WaitTimeout,
)
from edgeai.errors import SettingsError
from edgeai.kube import errors
from tests.edgeai.cli.command import heed_interrupts
from tests.globalmanager.cluster import LocalApi

MODEL = Model.of("small", ModelSpec(url="/models/small.npz"))


async def test_the_blocking_client_has_the_same_methods(cluster: LocalApi) -> None:
    """Called in a running loop, as in a notebook."""
    await asyncio.to_thread(use_blocking_client, cluster.kubeconfig)


def use_blocking_client(kubeconfig: Path) -> None:
    """Type checkers of users see each type, too."""
    with Client(kubeconfig) as client:
        made = assert_type(client.apply(MODEL), Model)
        assert assert_type(client.get(Model, "small"), Model).uid == made.uid
        assert [each.name for each in assert_type(client.list(Model), list[Model])] == ["small"]
        for event in client.watch(Model):
            assert_type(event, Event[Model])
            assert event.object.spec.url == "/models/small.npz"
            break
        for line in client.logs(made):
            assert_type(line, LogLine)
        with pytest.raises(WaitTimeout):
            client.wait(made, "Accepted", timeout_s=0.1)
        client.delete(made)
        assert client.list(Model) == []
    with pytest.raises(errors.ApiError), Client(kubeconfig) as client:
        client.get(Model, "none")


def test_the_blocking_client_has_every_method() -> None:
    public = {name for name in vars(AsyncClient) if not name.startswith("_")}
    assert public - {"open"} <= {*vars(Client)} | {"kube"}


def test_a_kubeconfig_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="none: cannot be read"):
        Client(tmp_path / "none")


async def test_what_waits_ends_when_another_thread_closes_the_client(cluster: LocalApi) -> None:
    client = await asyncio.to_thread(Client, cluster.kubeconfig)
    await asyncio.to_thread(client.apply, MODEL)
    has_begun = threading.Event()

    def follow() -> None:
        for _ in client.watch(Model):
            has_begun.set()

    following = asyncio.create_task(asyncio.to_thread(follow))
    assert await asyncio.to_thread(has_begun.wait, 20)
    await asyncio.to_thread(client.close)
    with pytest.raises(ClientUnusable, match="it is closed"):
        async with asyncio.timeout(20):
            await following
    for method in (client.close, lambda: use_closed(client)):
        await asyncio.to_thread(method)  # again


def use_closed(client: Client) -> None:
    calls: tuple[Callable[[], object], ...] = (
        lambda: client.get(Model, "small"),
        lambda: next(client.watch(Model)),
    )
    for call in calls:
        with pytest.raises(ClientUnusable, match="closed; make a new one"):
            call()


async def test_a_closed_client_with_a_loop_says_so(cluster: LocalApi) -> None:
    async with await AsyncClient.open(cluster.kubeconfig) as client:
        pass
    with pytest.raises(ClientUnusable, match="closed; make a new one"):
        await client.get(Model, "small")


async def test_a_condition_that_calls_the_client_does_not_wait_for_itself(
    cluster: LocalApi,
) -> None:
    await asyncio.to_thread(call_inside_a_condition, cluster.kubeconfig)


def call_inside_a_condition(kubeconfig: Path) -> None:
    with Client(kubeconfig) as client:

        def close(_: Model) -> bool:
            client.close()
            return True

        made = client.apply(MODEL)
        with pytest.raises(ClientUnusable, match="look only at the object"):
            client.wait(made, lambda _: bool(client.list(Model)), timeout_s=10)
        with pytest.raises(ClientUnusable, match="look only at the object"):
            client.wait(made, close, timeout_s=10)
        assert client.get(Model, "small").uid == made.uid  # and goes on


FORGOTTEN = """
import sys
from edgeai.client import Client, Model

client = Client(sys.argv[1])
print(client.list(Model))
"""


async def test_a_program_that_forgets_to_close_its_client_ends_without_a_warning(
    cluster: LocalApi,
) -> None:
    command = [sys.executable, "-W", "default", "-c", FORGOTTEN, str(cluster.kubeconfig)]
    done = await asyncio.to_thread(subprocess.run, command, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"[]\n", b"")


async def test_the_name_of_a_kind_is_no_class(client: AsyncClient) -> None:
    kind: Any = "Model"
    for call in (client.get(kind, "small"), client.list(kind)):
        with pytest.raises(TypeError, match="'Model' is no class of a kind; use one of edgeai"):
            await call


FORKED = """
import multiprocessing, sys
from concurrent.futures import ProcessPoolExecutor
from edgeai.client import Client, ClientUnusable, Model

with Client(sys.argv[1]) as client:

    def work(_):
        with client:
            client.list(Model)

    client.list(Model)
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        try:
            pool.submit(work, 1).result(20)
        except ClientUnusable as error:
            print(error)
    client.list(Model)
"""


async def test_a_fork_is_told_to_make_a_client_of_its_own(cluster: LocalApi) -> None:
    """A pool of processes forks, and the thread of the client stays behind."""
    process = await start_program(FORKED, cluster)
    said = [each.decode() for each in await process.communicate()]
    assert "make a new Client here" in said[0], said[1]
    assert (process.returncode, said[1]) == (0, "")


INTERRUPTED = """
import sys
from edgeai.client import Client, Model

with Client(sys.argv[1]) as client:
    for event in client.watch(Model):
        print(event.type, flush=True)
"""


async def test_ctrl_c_ends_a_watch_and_nothing_else_is_told(cluster: LocalApi) -> None:
    async with await AsyncClient.open(cluster.kubeconfig) as client:
        await client.apply(MODEL)
    process = await start_program(INTERRUPTED, cluster)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"ADDED\n"
    process.send_signal(signal.SIGINT)
    told = (await process.communicate())[1].decode()
    assert told.splitlines()[-1] == "KeyboardInterrupt"
    assert told.count("Traceback") == 1, told


INTERRUPTED_EARLY = """
import sys
from edgeai.client import Client, Model

RUN = Client.run.__code__

def trace(frame, event, argument):
    # From the second step on: `run` has started the coroutine, and does not wait for it yet.
    is_started = "future" in frame.f_locals and not frame.f_locals["self"]._calling.locked()
    if frame.f_code is RUN and event == "line" and is_started:
        sys.settrace(None)
        raise KeyboardInterrupt
    return trace if frame.f_code is RUN else None

with Client(sys.argv[1]) as client:
    for event in client.watch(Model):
        sys.settrace(trace)
"""


async def test_ctrl_c_ends_a_watch_also_before_it_waits(cluster: LocalApi) -> None:
    async with await AsyncClient.open(cluster.kubeconfig) as client:
        await client.apply(MODEL)
    process = await start_program(INTERRUPTED_EARLY, cluster)
    errors = (await process.communicate())[1].decode()
    assert errors.splitlines()[-1] == "KeyboardInterrupt", errors


async def start_program(text: str, cluster: LocalApi) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "error", "-c", text, str(cluster.kubeconfig)),
        stdout=pipe,
        stderr=pipe,
        preexec_fn=heed_interrupts,
    )
