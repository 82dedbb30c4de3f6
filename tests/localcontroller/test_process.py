"""Real LocalController processes: how they start, refuse to start, end, and come back."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from globalmanager.edge.sessions.cloud_session import Desired
from localcontroller.__main__ import main
from tests.localcontroller.builders import SECRET, WORKER, desired, key
from tests.localcontroller.cloud import Cloud, running_cloud
from tests.localcontroller.hooks.world import assign as dataset
from tests.support.waiting import async_eventually

PROGRAM: Sequence[str] = (sys.executable, "-m", "localcontroller")
NOWHERE = "ws://127.0.0.1:1"  # an address where nobody listens
STOP_S = 60.0  # generous: a busy machine


def command(state_dir: Path, *flags: str) -> list[str]:
    """The command line. A flag that is given twice has its last value."""
    return [*PROGRAM, *arguments(state_dir, *flags)]


def arguments(state_dir: Path, *flags: str) -> list[str]:
    return [
        *("--node-name", "edge-1"),
        *("--global-manager", NOWHERE, "--edge-plaintext", "allow"),
        *("--state-dir", str(state_dir)),
        *("--worker-address", "127.0.0.1:0"),
        *("--status-address", "127.0.0.1:0"),
        *("--reconnect-min-s", "0.05"),
        *("--reconnect-max-s", "0.1"),
        *flags,
    ]


def environment() -> dict[str, str]:
    """The environment of the tests without the settings of a LocalController."""
    settings = ("EDGEAI_", "NODENAME", "GM_ADDRESS", "ROOTFS_MOUNT_DIR")
    return {name: value for name, value in os.environ.items() if not name.startswith(settings)}


class Controller:
    """A process of the LocalController, and its log."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.log = ""

    async def read_log(self) -> None:
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            self.log += line.decode()

    def logged(self, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]
        return [line for line in lines if line["event"] == event]

    def stderr_text(self) -> str:
        """What the process wrote to stderr besides its log: the reason of its end."""
        return "\n".join(line for line in self.log.splitlines() if not line.startswith("{"))

    def port_of(self, setting: str) -> int | None:
        return next(
            (e["address"][1] for e in self.logged("listening") if setting in e["setting"]), None
        )

    def has_begun_or_ended(self) -> bool:
        assert self.port_of("status") or self.process.returncode is not None, self.log
        return True

    async def until_listening(self, setting: str) -> int:
        """Wait for the server of --worker-address or --status-address. Returns: its port"""

        def check() -> int:
            port = self.port_of(setting)
            assert port, self.log
            return port

        return await async_eventually(f"a port of --{setting}-address", check)

    async def worker_base(self, secret: str = SECRET, worker: str = WORKER) -> str:
        port = await self.until_listening("worker")
        return f"http://127.0.0.1:{port}/w/{secret}/v1/workers/{worker}/status"

    async def get(self, path: str) -> Any:
        status, text = await self.probe(path)
        assert status == 200
        return json.loads(text)

    async def probe(self, path: str) -> tuple[int, str]:
        port = await self.until_listening("status")
        url = f"http://127.0.0.1:{port}{path}"
        async with aiohttp.ClientSession() as session, session.get(url) as response:
            return response.status, await response.text()

    async def post_message(
        self, seen: int, *, worker: str = WORKER, secret: str = SECRET, **fields: Any
    ) -> int:
        message = {"status": "running", "output": {"taskInfo": {"seen": seen}}, **fields}
        url = await self.worker_base(secret, worker)
        async with aiohttp.ClientSession() as session, session.post(url, json=message) as response:
            return response.status

    async def end(self, signal_: signal.Signals) -> int:
        """Returns: the exit code. Raises: TimeoutError"""
        self.process.send_signal(signal_)
        return await asyncio.wait_for(self.process.wait(), STOP_S)


@contextlib.asynccontextmanager
async def started(*arguments: str) -> AsyncIterator[Controller]:
    """A process whose log is read; it is killed at the end."""
    process = await asyncio.create_subprocess_exec(
        *arguments, stderr=subprocess.PIPE, env=environment()
    )
    controller = Controller(process)
    reader = asyncio.create_task(controller.read_log(), name="stderr")
    try:
        yield controller
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await reader


@contextlib.asynccontextmanager
async def running(state_dir: Path, *flags: str) -> AsyncIterator[Controller]:
    async with started(*command(state_dir, *flags)) as controller:
        await async_eventually("a start or an end of the process", controller.has_begun_or_ended)
        assert controller.process.returncode is None, controller.log
        yield controller


@pytest.fixture
async def cloud() -> AsyncIterator[Cloud]:
    async with running_cloud() as cloud:
        cloud.desired = {key(): desired()}
        yield cloud


def refusal(arguments: list[str]) -> tuple[int, str]:
    """Exit code, and the one line on stderr, of a process that does not start."""
    done = subprocess.run(
        arguments, capture_output=True, text=True, timeout=60, env=environment(), check=False
    )
    lines = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert len(lines) == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.returncode, lines[0]


# ---- refusing to start ---------------------------------------------------------------------------

WRONG_FLAGS = {
    "unknown flag": (("--node-nam", "x"), "did you mean --node-name"),
    "no value": (("--node-name",), "--node-name"),
    "name of no Node": (("--node-name", "Edge 1"), "--node-name"),
    "a URL of another scheme": (("--global-manager", "http://gm"), "--global-manager"),
    "a bad URL after a good one": (("--global-manager", "ws://gm:1,gm:x"), "--global-manager"),
    "two schemes": (("--global-manager", "ws://gm:1,wss://gm:2"), "mixes ws:// and wss://"),
    "an address and a comma": (("--global-manager", "ws://gm:1,"), "--global-manager"),
    "no port": (("--worker-address", "127.0.0.1"), "--worker-address"),
    "a port that is none": (("--worker-address", "127.0.0.1:70000"), "--worker-address"),
    "status for everybody": (("--status-address", "0.0.0.0:9101"), "--status-address"),
    "a period that is none": (("--dataset-poll-s", "0"), "--dataset-poll-s"),
    "a number that is none": (("--ledger-max-bytes", "lots"), "--ledger-max-bytes"),
    "half a certificate": (("--client-certificate", "x.pem"), "--client-key"),
    "plaintext that nobody allowed": (("--edge-plaintext", "refuse"), "--edge-plaintext allow"),
    "a certificate without TLS": (
        ("--client-certificate", "x", "--client-key", "y"),
        "--client-certificate",
    ),
}


@pytest.mark.parametrize("case", WRONG_FLAGS)
def test_a_wrong_flag_is_one_line_and_exit_code_2(
    case: str,
    state_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Runs in this process, because a process with wrong flags starts nothing."""
    flags, named = WRONG_FLAGS[case]
    monkeypatch.setattr(sys, "argv", ["localcontroller", *arguments(state_dir, *flags)])
    with pytest.raises(SystemExit) as exited:
        main()
    (line,) = capsys.readouterr().err.splitlines()
    assert (exited.value.code, named in line) == (2, True), line


WRONG_HOSTS = {
    "no name of a host": "x" * 70 + ":9100",
    "an address of another machine": "192.0.2.1:9100",
}


@pytest.mark.parametrize("case", WRONG_HOSTS)
def test_an_address_that_is_not_ours_is_one_line_and_exit_code_2(
    case: str, state_dir: Path
) -> None:
    code, line = refusal(command(state_dir, "--worker-address", WRONG_HOSTS[case]))
    assert (code, "--worker-address" in line) == (2, True), line


def test_a_process_with_a_wrong_flag_exits_with_2(state_dir: Path) -> None:
    code, line = refusal(command(state_dir, "--node-nam", "x"))
    assert (code, "did you mean --node-name" in line) == (2, True), line


def a_file(tmp_path: Path) -> Path:
    file = tmp_path / "file"
    file.write_text("not a directory")
    return file


def a_ledger_of_another_kind(tmp_path: Path) -> Path:
    (tmp_path / "state" / "ledger.db").mkdir(parents=True)
    return tmp_path / "state"


UNUSABLE: dict[str, Callable[[Path], Path]] = {
    "a file in its place": a_file,
    "below a file": lambda tmp_path: a_file(tmp_path) / "state",
    "where nothing can be made": lambda _: Path("/proc/edgeai"),
    "the ledger is a directory": a_ledger_of_another_kind,
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_an_unusable_state_directory_is_one_line_and_exit_code_3(case: str, tmp_path: Path) -> None:
    path = UNUSABLE[case](tmp_path)
    code, line = refusal(command(path))
    assert code == 3
    assert line.startswith(f"localcontroller: state directory {path}: ")
    assert "; " in line  # the remedy is the last part


async def test_a_second_process_on_one_state_directory_is_refused(state_dir: Path) -> None:
    async with running(state_dir) as first:
        code, line = await asyncio.to_thread(refusal, command(state_dir))
        assert (code, "is used by another localcontroller" in line) == (3, True), line
        assert (await first.get("/api/v1/tasks"))["items"] == []


@pytest.fixture
def used_address() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("flag", ["--worker-address", "--status-address"])
def test_a_used_port_is_one_line(flag: str, used_address: str, state_dir: Path) -> None:
    code, line = refusal(command(state_dir, flag, used_address))
    assert code == 2
    assert line.startswith(f"localcontroller: flag {flag}: cannot listen on {used_address}: ")


# ---- ending --------------------------------------------------------------------------------------


@pytest.mark.parametrize("signal_", [signal.SIGTERM, signal.SIGINT], ids=lambda s: s.name)
async def test_a_signal_ends_the_process_in_order(
    signal_: signal.Signals, state_dir: Path, cloud: Cloud
) -> None:
    async with running(state_dir, "--global-manager", cloud.url) as controller:
        await cloud.until_synced()
        assert await controller.end(signal_) == 0
    assert controller.logged("stopped")
    assert "Traceback" not in controller.log


async def test_sigterm_does_not_wait_for_an_incomplete_request(
    state_dir: Path, cloud: Cloud
) -> None:
    async with running(state_dir, "--global-manager", cloud.url) as controller:
        await async_eventually("an acknowledged task", lambda: cloud.held)
        port = await controller.until_listening("worker")
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            f"POST /w/{SECRET}/v1/workers/{WORKER}/status HTTP/1.1\r\nHost: node\r\n"
            "Content-Length: 100\r\n\r\n{".encode()
        )
        await writer.drain()
        assert (
            await controller.post_message(1) == 200
        )  # the incomplete request from before is in progress now
        assert await controller.end(signal.SIGTERM) == 0
        writer.close()


async def test_sigterm_ends_a_process_that_waits_for_disk_space(tmp_path: Path) -> None:
    """A file size limit makes the ledger's first write fail like a full disk."""
    limited = ["sh", "-c", 'ulimit -f 1; exec "$@"', "sh", *command(tmp_path / "state")]
    process = await asyncio.create_subprocess_exec(
        *limited, stderr=subprocess.PIPE, env=environment()
    )
    controller = Controller(process)
    reader = asyncio.create_task(controller.read_log(), name="stderr")
    try:
        await async_eventually(
            "a failed try to open the ledger",
            lambda: controller.logged("cannot open the ledger, retrying"),
        )
        assert await controller.end(signal.SIGTERM) == 0
    finally:
        if process.returncode is None:
            process.kill()
        await reader


# ---- coming back ---------------------------------------------------------------------------------


async def until_acknowledged(controller: Controller) -> None:
    async def is_acknowledged() -> bool:
        (worker,) = (await controller.get("/api/v1/workers"))["items"]
        return bool(worker["acknowledged"])

    async with asyncio.timeout(60):
        while not await is_acknowledged():  # noqa: ASYNC110 - it tells only who asks
            await asyncio.sleep(0.01)


async def test_sigkill_loses_neither_task_nor_report(state_dir: Path, cloud: Cloud) -> None:
    cloud.acknowledges = False
    async with running(state_dir, "--global-manager", cloud.url) as controller:
        await async_eventually("an acknowledged task", lambda: cloud.held)
        await cloud.until_synced()
        assert await controller.post_message(7, status="completed") == 200
        await controller.end(signal.SIGKILL)
    cloud.reports.clear()
    async with running(state_dir) as alone:  # without the cloud
        (task,) = (await alone.get("/api/v1/tasks"))["items"]
        (worker,) = (await alone.get("/api/v1/workers"))["items"]
        assert (task["key"], task["version"]) == (key(), 1)
        assert (worker["taskInfo"], worker["acknowledged"]) == ({"seen": 7}, False)
        await alone.end(signal.SIGKILL)
    cloud.acknowledges = True
    async with running(state_dir, "--global-manager", cloud.url) as again:
        await cloud.until_reported(WORKER, status="completed", seen=7)
        assert cloud.hellos[-1].tasks[key()].version == 1
        await until_acknowledged(again)


async def test_messages_of_workers_are_accepted_while_the_cloud_is_away(
    state_dir: Path, cloud: Cloud
) -> None:
    async with running(state_dir, "--global-manager", cloud.url) as controller:
        await async_eventually("an acknowledged task", lambda: cloud.held)
        await cloud.stop()
        assert await controller.post_message(3) == 200
        await cloud.start()
        await cloud.until_reported(WORKER, status="running", seen=3)


async def test_a_silent_worker_is_reported_as_lost(state_dir: Path, cloud: Cloud) -> None:
    flags = ("--global-manager", cloud.url, "--worker-silence-factor", "2")
    async with running(state_dir, *flags) as controller:
        await async_eventually("an acknowledged task", lambda: cloud.held)
        await controller.post_message(3, heartbeatSeconds=0.1)
        await cloud.until_reported(WORKER, status="lost")


# ---- datasets ------------------------------------------------------------------------------------


async def test_a_dataset_is_counted_and_its_changes_and_problems_are_reported(
    state_dir: Path, cloud: Cloud
) -> None:
    file = state_dir.parent / "rootfs" / "data" / "faces.csv"
    file.parent.mkdir(parents=True)
    file.write_text("x,y\n1,2\n")
    frame = dataset(url="/data/faces.csv")
    cloud.desired[frame.key] = Desired(frame.uid, frame.version, frame.body)
    flags = ("--data-root", str(file.parents[1]), "--dataset-poll-s", "0.05")
    async with running(state_dir, "--global-manager", cloud.url, *flags) as controller:
        await cloud.until_reported("faces", status="running", numberOfSamples=1)
        file.write_text("x,y\n1,2\n3,4\n")
        await cloud.until_reported("faces", status="running", numberOfSamples=2)
        file.unlink()
        lost = await cloud.until_reported("faces", status="lost")
        assert lost.details["problem"] == "NotFound"
        file.write_text("x,y\n1,2\n3,4\n5,6\n")
        await cloud.until_reported("faces", status="running", numberOfSamples=3)
        assert await controller.end(signal.SIGTERM) == 0
    assert "Traceback" not in controller.log


async def test_a_dataset_that_takes_long_delays_neither_workers_nor_the_end(
    state_dir: Path, cloud: Cloud
) -> None:
    file = state_dir.parent / "long.txt"
    file.touch()
    os.truncate(file, 2**40)  # sparse: reading takes minutes
    frame = dataset(url=str(file))
    cloud.desired[frame.key] = Desired(frame.uid, frame.version, frame.body)
    async with running(state_dir, "--global-manager", cloud.url) as controller:
        await async_eventually(
            "a Dataset that is read", lambda: is_open(controller.process.pid, file)
        )
        assert await controller.post_message(3) == 200
        await cloud.until_reported(WORKER, status="running", seen=3)
        assert is_open(controller.process.pid, file)
        assert await controller.end(signal.SIGTERM) == 0


def is_open(pid: int, file: Path) -> bool:
    """Whether the process has the file open now."""
    with contextlib.suppress(FileNotFoundError):
        return any(fd.samefile(file) for fd in Path(f"/proc/{pid}/fd").iterdir())
    return False


async def test_nobody_on_the_node_may_report_for_a_dataset(state_dir: Path, cloud: Cloud) -> None:
    frame = dataset(url="/data/faces.csv")
    cloud.desired[frame.key] = Desired(frame.uid, frame.version, frame.body)
    async with running(state_dir, "--global-manager", cloud.url) as controller:
        await cloud.until_reported("faces", status="lost")
        port = controller.port_of("worker")
        async with aiohttp.ClientSession() as session:
            for secret in (SECRET, "-", "%20"):
                url = f"http://127.0.0.1:{port}/w/{secret}/v1/workers/faces/status"
                async with session.post(url, json={"status": "running"}) as response:
                    assert response.status == 403


# ---- what it shows -------------------------------------------------------------------------------


async def test_no_secret_is_logged(state_dir: Path, cloud: Cloud) -> None:
    other = "a1" * 32
    token = state_dir.parent / "token"
    token.write_text("top-secret-token")
    flags = ("--global-manager", cloud.url, "--log-level", "debug", "--token-file", str(token))
    async with running(state_dir, *flags) as controller:
        await async_eventually("an acknowledged task", lambda: cloud.held)
        assert await controller.post_message(1) == 200
        assert await controller.post_message(1, status="odd") == 400
        assert await controller.post_message(1, secret=other) == 403
        port = controller.port_of("worker")
        for broken in (
            f"POST /w/{SECRET}/v1/workers HTP/1.1\r\n\r\n",
            f"POST /w/{SECRET}/v1 HTTP/1.1\r\nbad header {SECRET}\r\n\r\n",
            f"POST /w/{SECRET}/v1/workers/{WORKER}/status HTTP/1.1\r\nContent-Length: 1\r\n"
            "Content-Length: 2\r\n\r\n",
            f"P{SECRET} / HTTP/1.1\r\n\r\n",
        ):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(broken.encode())
            await asyncio.wait_for(reader.read(), 5)
            writer.close()
        await controller.end(signal.SIGTERM)
    assert cloud.requests[0]["Authorization"] == "Bearer top-secret-token"
    for secret in (SECRET, other, "top-secret-token"):
        assert secret not in controller.log


def libraries(pid: int) -> set[str]:
    """Names of the files that the process has mapped, up to the first dot."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    return {Path(line.split()[-1]).name.partition(".")[0] for line in maps.splitlines()}


async def test_what_this_node_does_not_use_is_not_loaded(state_dir: Path, cloud: Cloud) -> None:
    """Each of these modules takes megabytes; `python -m tests.bench edge-memory` measures them."""
    async with running(state_dir, "--global-manager", cloud.url) as controller:
        await cloud.until_synced()  # a new ledger, so a migration ran
        mapped = libraries(controller.process.pid)
    assert "_sqlite3" in mapped, "libraries are seen by their files"
    assert not mapped & {"_http_parser", "_obstore", "_multiarray_umath", "_ctypes"}
