"""Workers read the content of Models from the worker API: the API, and the library that asks it."""

import asyncio
import contextlib
import fcntl
import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest

from edgeai.errors import SettingsError
from edgeai.ids import TaskKey, Uid
from edgeai.worker import JointInference, WorkerEnvironment
from edgeai.worker.environment import Address, LCServer
from edgeai.worker.hot_model import HotModel
from edgeai.worker.local_model import ContentError, LocalModel, ModelVersion
from localcontroller.content import ContentStore, ContentVersion
from localcontroller.ledger.ledger import Ledger
from localcontroller.workers.models import GRANT_PIECES, PIECE_BYTES
from tests.localcontroller.builders import SECRET, WORKER
from tests.localcontroller.hooks.model_world import content, sha256, whole_part
from tests.localcontroller.workers.test_api import WorkerApiNode, model_api, running_node
from tests.support.waiting import async_eventually, eventually

KEY = TaskKey("models.edgeai.io/default/small")
OTHER_TENANT = TaskKey("models.edgeai.io/other/small")
UID = Uid("uid-m")


class Estimator:
    """Answers with the number in its file. A load waits for the file `gate`, if there is one."""

    def __init__(self) -> None:
        self.answer = -1

    def load(self, model_url: str) -> None:
        fields = json.loads(Path(model_url).read_text())
        if "fault" in fields:
            raise ValueError(fields["fault"])
        if gate := fields.get("gate"):
            Path(gate).with_suffix(".reached").touch()
            eventually("the gate", Path(gate).exists)
        self.answer = fields["answer"]

    def predict(self, batch: Any) -> list[int]:
        return [self.answer] * len(batch)


def counting(loads: list[str]) -> Callable[[], Estimator]:
    """An estimator that notes the file of each load."""

    class Counting(Estimator):
        def load(self, model_url: str) -> None:
            loads.append(model_url)
            super().load(model_url)

    return Counting


class NoObserver:
    def model_changed(self) -> None: ...


class Content:
    """The content that a node has, without the hook that fetches it, and a pod of the node."""

    def __init__(self, ledger: Ledger, directory: Path) -> None:
        self.store = ContentStore(directory / "content", max_bytes=2**30)
        self.pod = directory / "pod"
        self._ledger = ledger

    def publish(
        self, generation: int, data: bytes, key: TaskKey = KEY, uid: Uid = UID
    ) -> ContentVersion:
        with contextlib.closing(whole_part(self.store, key, data)) as part:
            return part.commit(uid, generation, "small.json")

    def publish_answer(self, generation: int, uid: Uid = UID, **fields: Any) -> ContentVersion:
        return self.publish(generation, json.dumps(fields).encode(), uid=uid)

    def served(self) -> AbstractAsyncContextManager[WorkerApiNode]:
        return running_node(self._ledger, models=model_api(self.store))

    def model_of(self, node: WorkerApiNode) -> LocalModel:
        server = LCServer(Address("127.0.0.1", node.port), f"/w/{SECRET}")
        return LocalModel(server, WORKER, "small", self.pod)

    async def load(
        self, check: Callable[[HotModel], None], estimator: Callable[[], Estimator] = Estimator
    ) -> None:
        """Check a model of the pod that asks for new versions all the time."""
        async with self.served() as node:

            def run() -> None:
                source = self.model_of(node)
                model = HotModel(estimator(), source, NoObserver(), poll_s=0.02)
                try:
                    model.start()
                    check(model)
                finally:
                    model.close()

            await asyncio.to_thread(run)


@pytest.fixture
def here(ledger: Ledger, tmp_path: Path) -> Content:
    return Content(ledger, tmp_path)


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


# ---- the API ------------------------------------------------------------------------------------


async def get(node: WorkerApiNode, path: str, secret: str = SECRET) -> tuple[int, bytes]:
    url = f"http://127.0.0.1:{node.port}/w/{secret}/v1/workers/{WORKER}/models/{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return response.status, await response.read()


async def test_a_worker_gets_the_versions_and_their_bytes(here: Content) -> None:
    data = content(PIECE_BYTES + 100)
    version = here.publish(3, data)
    async with here.served() as node:
        status, body = await get(node, "small")
        assert status == 200
        expected = {"generation": 3, "size": len(data), "name": "small.json"}
        assert json.loads(body) == [{**expected, "digest": version.digest}]
        assert await get(node, f"small/{version.digest}/0") == (200, data[:PIECE_BYTES])
        assert await get(node, f"small/{version.digest}/{PIECE_BYTES}") == (200, data[-100:])
        assert await get(node, f"small/{version.digest}/{len(data)}") == (200, b"")


@pytest.mark.parametrize(
    "path",
    [
        "small/{digest}/-1",
        "small/{digest}/x",
        "small/{digest}/" + "9" * 30,
        "small/{digest}/%D9%A1",
        "small/" + "0" * 64 + "/0",
        "small/..%2F..%2Fledger.db/0",
        "small/{digest}/0/1",
        "small/{foreign}/0",
    ],
)
async def test_nothing_else_can_be_read(here: Content, path: str) -> None:
    version = here.publish(1, b"mine")
    foreign = here.publish(1, b"of another tenant", OTHER_TENANT)
    async with here.served() as node:
        path = path.format(digest=version.digest, foreign=foreign.digest)
        assert (await get(node, path))[0] == 404


async def test_a_stranger_reads_nothing(here: Content) -> None:
    here.publish(1, b"mine")
    async with here.served() as node:
        assert (await get(node, "small", secret="0" * 64))[0] == 403
        assert await get(node, "absent") == (200, b"[]")


async def test_the_node_keeps_the_version_that_a_worker_has_loaded(here: Content) -> None:
    good = here.publish(1, b"good")
    async with here.served() as node:
        status, body = await get(node, f"small/{good.digest}")
        assert (status, len(json.loads(body))) == (200, 1)
        here.publish(2, b"broken")
        here.publish(3, b"broken, too")
        versions = json.loads((await get(node, "small"))[1])
        assert [version["generation"] for version in versions] == [3, 1]
        assert (await get(node, "small/..%2Fx"))[0] == 200


async def test_clients_that_do_not_read_take_little_memory(here: Content) -> None:
    version = here.publish(1, content(PIECE_BYTES))
    async with (
        here.served() as node,
        contextlib.AsyncExitStack() as stack,
    ):
        path = f"/w/{SECRET}/v1/workers/{WORKER}/models/small/{version.digest}/0"
        request = f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
        clients = []
        for _ in range(GRANT_PIECES + 10):
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            await loop.sock_connect(client, ("127.0.0.1", node.port))
            await loop.sock_sendall(client, request)
            clients.append(client)
        heads = [await asyncio.wait_for(loop.sock_recv(each, 12), 20) for each in clients]
        assert heads.count(b"HTTP/1.1 200") == GRANT_PIECES
        assert heads.count(b"HTTP/1.1 503") == 10
        for client in clients:
            client.close()
        assert (await get(node, f"small/{version.digest}/0"))[0] == 200


# ---- the library: content -----------------------------------------------------------------------


async def test_the_library_fetches_in_pieces_and_nothing_twice(
    here: Content, stack: contextlib.ExitStack
) -> None:
    data = content(3 * PIECE_BYTES + 5)
    here.publish(1, data)
    async with here.served() as node:
        model = stack.enter_context(contextlib.closing(here.model_of(node)))
        (version,) = await asyncio.to_thread(model.versions)
        part = here.pod / version.digest / ".part"
        part.parent.mkdir(parents=True)
        part.write_bytes(data[:PIECE_BYTES])  # as a killed worker leaves it
        file = await asyncio.to_thread(model.fetch, version)
        assert (file.name, file.read_bytes()) == ("small.json", data)
        here.store.keep_only({})
        assert await asyncio.to_thread(model.fetch, version) == file


async def test_damaged_content_is_fetched_again(here: Content, stack: contextlib.ExitStack) -> None:
    here.publish(1, b"0123456789")
    async with here.served() as node:
        model = stack.enter_context(contextlib.closing(here.model_of(node)))
        (version,) = await asyncio.to_thread(model.versions)
        part = here.pod / version.digest / ".part"
        part.parent.mkdir(parents=True)
        part.write_bytes(b"xxx")
        with pytest.raises(ContentError, match="damaged"):
            await asyncio.to_thread(model.fetch, version)
        assert (await asyncio.to_thread(model.fetch, version)).read_bytes() == b"0123456789"


async def test_a_second_process_of_the_pod_spoils_no_download(
    here: Content, stack: contextlib.ExitStack
) -> None:
    data = content(5 * PIECE_BYTES)
    here.publish(1, data)
    async with here.served() as node:
        model = stack.enter_context(contextlib.closing(here.model_of(node)))
        (version,) = await asyncio.to_thread(model.versions)
        part = here.pod / version.digest / ".part"
        part.parent.mkdir(parents=True)
        with part.open("ab") as first:
            fcntl.flock(first, fcntl.LOCK_EX)
            with pytest.raises(ContentError, match="another process"):
                await asyncio.to_thread(model.fetch, version)
            assert part.stat().st_size == 0
        assert (await asyncio.to_thread(model.fetch, version)).read_bytes() == data


# ---- the library: the change of the version -----------------------------------------------------


NOBODY = LCServer(Address("127.0.0.1", 9), "/w/none")
SAMPLES = np.zeros((2, 1), np.float32)


def begin_load(here: Content) -> tuple[ContentVersion, Path]:
    """Let the worker begin to load version 2. Returns: the version, and the gate it waits for"""
    gate = here.pod.with_name("gate")
    version = here.publish_answer(2, answer=2, gate=str(gate))
    eventually("the load", gate.with_suffix(".reached").exists)
    return version, gate


def wait_for_fault(model: HotModel, text: str) -> None:
    eventually(text, lambda: text in model.facts.get("modelFault", ""))


def wait_for_version(model: HotModel, version: int) -> None:
    eventually(f"version {version}", lambda: model.predict(SAMPLES).version == version)


async def test_every_batch_has_answers_of_one_version_while_it_changes(here: Content) -> None:
    here.publish_answer(1, answer=1)

    def check(model: HotModel) -> None:
        _, gate = begin_load(here)
        for _ in range(100):  # while the load takes its time
            assert model.predict(SAMPLES)[:2] == ([1, 1], 1)
        gate.touch()
        wait_for_version(model, 2)
        assert model.predict(SAMPLES)[:2] == ([2, 2], 2)
        eventually("one version", lambda: len(list((here.pod).iterdir())) == 1)

    await here.load(check)


async def test_a_version_that_cannot_be_loaded_is_told_and_the_one_before_goes_on(
    here: Content,
) -> None:
    here.publish_answer(1, answer=1)
    loads: list[str] = []

    def check(model: HotModel) -> None:
        broken = here.publish_answer(2, fault="no weights")
        eventually("the fault", lambda: "modelFault" in model.facts)
        assert model.facts["modelFault"] == "version 2: ValueError: no weights"
        time.sleep(0.2)  # ten questions for a new version
        assert sum(broken.digest in load for load in loads) == 1, "it is not tried again"
        assert model.facts["modelVersion"] == "1"
        assert model.predict(SAMPLES)[:2] == ([1, 1], 1)
        here.publish_answer(3, answer=3)
        wait_for_version(model, 3)
        assert "modelFault" not in model.facts

    await here.load(check, counting(loads))


async def test_a_worker_that_starts_beside_a_broken_version_takes_the_one_before(
    here: Content,
) -> None:
    here.publish_answer(1, answer=1)
    here.publish_answer(2, fault="no weights")

    def check(model: HotModel) -> None:
        assert model.predict(SAMPLES)[:2] == ([1, 1], 1)
        assert "version 2" in model.facts["modelFault"]

    await here.load(check)


async def test_two_broken_versions_in_a_row_leave_one_for_a_worker_that_starts(
    here: Content,
) -> None:
    here.publish_answer(1, answer=1)

    def check(model: HotModel) -> None:
        for version in (2, 3):
            here.publish_answer(version, fault=f"no weights {version}")
            wait_for_fault(model, f"version {version}")

    await here.load(check)

    def check_again(model: HotModel) -> None:
        assert model.predict(SAMPLES).answers == [1, 1]

    here.pod = here.pod.with_name("new pod")
    await here.load(check_again)


async def test_a_passing_fault_of_the_disk_is_no_fault_of_the_version(here: Content) -> None:
    here.publish_answer(1, answer=1)

    def check(model: HotModel) -> None:
        pod = here.pod
        block = pod / sha256(json.dumps({"answer": 2}).encode())
        block.write_text("in the way")
        here.publish_answer(2, answer=2)
        time.sleep(0.3)
        assert "modelFault" not in model.facts
        block.unlink()
        wait_for_version(model, 2)

    await here.load(check)


async def test_a_load_that_exits_is_a_fault_and_the_next_version_comes(here: Content) -> None:
    class Exiting(Estimator):
        def load(self, model_url: str) -> None:
            super().load(model_url)
            if self.answer == 2:
                sys.exit(1)

    here.publish_answer(1, answer=1)

    def check(model: HotModel) -> None:
        here.publish_answer(2, answer=2)
        wait_for_fault(model, "SystemExit")
        here.publish_answer(3, answer=3)
        wait_for_version(model, 3)

    await here.load(check, Exiting)


async def test_a_version_that_killed_a_process_is_passed_over_once(here: Content) -> None:
    here.publish_answer(1, answer=1)
    deadly = here.publish_answer(2, answer=2)
    mark = here.pod / deadly.digest / ".loading"  # as a process that was killed leaves it
    mark.parent.mkdir(parents=True)
    mark.write_bytes(b"1")

    def check(model: HotModel) -> None:
        assert model.predict(SAMPLES).version == 1
        assert "version 2: RuntimeError: the process ended" in model.facts["modelFault"]

    await here.load(check)

    def check_again(model: HotModel) -> None:
        assert model.predict(SAMPLES).version == 2
        assert mark.read_bytes() == b""

    await here.load(check_again)


async def test_two_processes_of_the_pod_load_a_version_at_the_same_time(here: Content) -> None:
    here.publish_answer(1, answer=1)

    def check(model: HotModel) -> None:
        version, gate = begin_load(here)
        mark = here.pod / version.digest / ".loading"
        with contextlib.closing(LocalModel(NOBODY, WORKER, "small", here.pod)) as other:
            newest = ModelVersion(2, version.digest, version.size, version.name)
            assert other.load_begins(newest), "the first process lives"
            other.load_ended()
        assert mark.read_bytes() == b"1", "the first process still loads"
        gate.touch()
        wait_for_version(model, 2)
        assert mark.read_bytes() == b""

    await here.load(check)


async def test_a_load_that_fails_leaves_no_mark_of_a_process_that_died(here: Content) -> None:
    here.publish_answer(1, answer=1)

    def check(model: HotModel) -> None:
        version = here.publish_answer(2, fault="no weights")
        wait_for_fault(model, "no weights")
        assert (here.pod / version.digest / ".loading").read_bytes() == b""

    await here.load(check)


async def test_a_load_that_takes_long_is_told(here: Content) -> None:
    here.publish_answer(1, answer=1)

    def check(model: HotModel) -> None:
        _, gate = begin_load(here)
        assert model.facts["modelLoading"].startswith("version 2 since 2")
        gate.touch()
        wait_for_version(model, 2)
        assert "modelLoading" not in model.facts

    await here.load(check)


async def test_a_fetch_that_fails_goes_on_long_before_the_next_question(here: Content) -> None:
    here.publish_answer(1, answer=1)
    second: dict[str, Any] = {"answer": 2}
    block = here.pod / sha256(json.dumps(second).encode())
    async with here.served() as node:

        def run() -> None:
            source = here.model_of(node)
            model = HotModel(Estimator(), source, NoObserver(), poll_s=4.0)
            model.start()
            here.publish_answer(2, **second)
            block.write_text("in the way")
            time.sleep(4.5)
            block.unlink()
            eventually("2", lambda: model.predict(SAMPLES).version == 2, timeout_s=3.0)
            model.close()

        await asyncio.to_thread(run)


async def test_without_any_version_that_can_be_loaded_the_worker_fails(here: Content) -> None:
    here.publish_answer(1, fault="no weights")
    async with here.served() as node:
        model = HotModel(Estimator(), here.model_of(node), NoObserver(), poll_s=1.0)
        with pytest.raises(ValueError, match="no weights"):
            await asyncio.to_thread(model.start)


async def test_the_same_content_under_a_new_version_is_not_loaded_again(here: Content) -> None:
    here.publish_answer(1, answer=1)

    def check(model: HotModel) -> None:
        here.publish_answer(2, answer=1)
        wait_for_version(model, 2)
        assert model.facts["modelDigest"] == here.store.versions(KEY)[0].digest
        assert len(loads) == 1

    loads: list[str] = []
    await here.load(check, counting(loads))


async def test_a_worker_waits_until_the_node_has_the_first_version(here: Content) -> None:
    later = threading.Timer(0.3, lambda: here.publish_answer(1, answer=1))
    later.start()

    def check(model: HotModel) -> None:
        assert model.predict(SAMPLES)[:2] == ([1, 1], 1)

    await here.load(check)


async def test_an_estimator_that_cannot_be_copied_is_told_at_the_start(here: Content) -> None:
    class Uncopyable(Estimator):
        def __init__(self) -> None:
            super().__init__()
            self.lock = threading.Lock()

    async with here.served() as node:
        with pytest.raises(SettingsError, match="cannot be copied"):
            HotModel(Uncopyable(), here.model_of(node), NoObserver(), poll_s=1.0)


def hot_environment(node: WorkerApiNode, here: Content) -> WorkerEnvironment:
    return WorkerEnvironment(
        lc_server=LCServer(Address("127.0.0.1", node.port), f"/w/{SECRET}"),
        worker_name=WORKER,
        hot_model="small",
        model_poll_s=0.02,
        model_dir=str(here.pod),
        report_period_s=0.01,
    )


async def test_results_counts_and_reports_carry_the_version(ledger: Ledger, here: Content) -> None:
    here.publish_answer(7, answer=1)
    async with here.served() as node:
        environment = hot_environment(node, here)
        loop = asyncio.get_running_loop()

        def details() -> dict[str, str]:
            """Of the report in the ledger."""
            row = asyncio.run_coroutine_threadsafe(node.row(), loop).result()
            return row.worker.details

        def run() -> None:
            with JointInference(Estimator(), environment=environment) as joint:
                eventually("7", lambda: details().get("modelVersion") == "7")
                assert {r.model_version for r in joint.inference(SAMPLES)} == {7}
                here.publish_answer(8, answer=2)
                eventually("8", lambda: joint.inference(SAMPLES)[0].model_version == 8)
                joint.inference(SAMPLES)
                here.publish_answer(9, fault="no weights")
                # No sample comes any more.
                eventually("the fault", lambda: "modelFault" in details())
                assert joint.flush(5.0)

        await asyncio.to_thread(run)
        worker = (await node.row()).worker
        assert worker.details["modelVersion"] == "8"
        assert worker.details["modelFault"] == "version 9: ValueError: no weights"
        assert worker.numbers["version"] == 8
        assert 4 <= worker.numbers["seenOfVersion"] < worker.totals["seen"]


async def test_a_model_that_was_made_again_counts_from_its_first_version(here: Content) -> None:
    here.publish_answer(7, answer=1)
    async with here.served() as node:
        environment = hot_environment(node, here)

        def run() -> None:
            with JointInference(Estimator(), environment=environment) as joint:
                joint.inference(SAMPLES)
                here.publish_answer(1, uid=Uid("made again"), answer=2)
                eventually("1", lambda: joint.inference(SAMPLES)[0].model_version == 1)
                assert joint.flush(5.0)

        await asyncio.to_thread(run)
        worker = (await node.row()).worker
        assert worker.numbers["version"] == 1
        assert worker.numbers["seenOfVersion"] < worker.totals["seen"]


async def test_a_worker_without_a_model_says_so(ledger: Ledger, here: Content) -> None:
    async with here.served() as node:
        environment = hot_environment(node, here)

        def run() -> None:
            JointInference(Estimator(), environment=environment).close()

        start = asyncio.create_task(asyncio.to_thread(run))

        async def check() -> bool:
            rows = [row for row in await ledger.workers() if row.name == WORKER]
            assert rows
            worker = rows[0].worker
            assert worker.status == "running"
            assert worker.details["modelFault"] == "waiting: the node has no content yet"
            return True

        try:
            await async_eventually("the report", check)
        finally:
            await asyncio.to_thread(here.publish_answer, 1, answer=1)
            await start
        worker = (await node.row()).worker
        assert worker.details.keys() & {"modelFault", "modelVersion"} == {"modelVersion"}
