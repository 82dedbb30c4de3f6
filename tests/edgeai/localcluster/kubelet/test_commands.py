"""Commands in containers: over the WebSocket of pods/exec, and by kubexec.sh of a launcher."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest

from edgeai.localcluster.objects.resources import CONFIGMAPS, PODS, Object
from globalmanager.kinds.elastic.trainingjob import files
from tests.edgeai.localcluster.running import (
    RunningCluster,
    container,
    is_gone,
    log_of,
    new_pod,
    running_cluster,
)
from tests.support.waiting import async_eventually

V4: Final = "v4.channel.k8s.io"
V5: Final = "v5.channel.k8s.io"
STDIN, STDOUT, STDERR, STATUS, CLOSE = 0, 1, 2, 3, 255


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with running_cluster(tmp_path) as cluster:
        yield cluster


@pytest.fixture
async def client(cluster: RunningCluster, tmp_path: Path) -> AsyncIterator[aiohttp.ClientSession]:
    token = (tmp_path / "state" / "token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    async with aiohttp.ClientSession(cluster.running.api, headers=headers) as session:
        yield session


async def running_pod(cluster: RunningCluster, *containers: Object, **spec: Any) -> Object:
    cluster.store.create(PODS, new_pod("p", *(containers or (container("sleep 600"),)), **spec))
    return await cluster.until_phase("p", "Running")


def path(*command: str, **options: str) -> tuple[str, list[tuple[str, str]]]:
    words = [("command", word) for word in command]
    return "/api/v1/namespaces/default/pods/p/exec", [*options.items(), *words]


async def execute(
    client: aiohttp.ClientSession,
    *command: str,
    stdin: list[bytes] | None = None,
    protocol: str = V4,
    **options: str,
) -> dict[int, bytes]:
    """What comes on each channel until the end. Args: stdin: messages"""
    where, query = path(*command, **options, **({"stdin": "true"} if stdin else {}))
    heard = {STDOUT: b"", STDERR: b"", STATUS: b""}
    async with client.ws_connect(where, params=query, protocols=[protocol]) as socket:
        assert socket.protocol == protocol
        for message in stdin or []:
            await socket.send_bytes(message)
        async for answer in socket:
            heard[answer.data[0]] += answer.data[1:]
    return heard


async def test_the_streams_and_the_exit_code(
    cluster: RunningCluster, client: aiohttp.ClientSession
) -> None:
    await running_pod(cluster)
    heard = await execute(client, "sh", "-c", "echo out; echo wrong >&2; exit 7")
    assert (heard[STDOUT], heard[STDERR]) == (b"out\n", b"wrong\n")
    status = json.loads(heard[STATUS])
    assert (status["status"], status["reason"]) == ("Failure", "NonZeroExitCode")
    assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "7"}]
    assert json.loads((await execute(client, "true"))[STATUS])["status"] == "Success"


async def test_the_command_has_the_environment_the_directory_and_the_volumes(
    cluster: RunningCluster, client: aiohttp.ClientSession
) -> None:
    mount = {"name": "work", "mountPath": "/work"}
    main = container(
        "echo here > /work/file; sleep 600",
        env=[{"name": "WHO", "value": "p"}],
        workingDir="/work",
        volumeMounts=[mount],
    )
    await running_pod(cluster, main, volumes=[{"name": "work", "emptyDir": {}}])
    until_written = "until [ -s file ]; do sleep 0.05; done"
    script = f"{until_written}; echo $WHO; cat file /work/file; echo '$(WHO)$$'"
    heard = await execute(client, "sh", "-c", script)
    assert heard[STDOUT] == b"p\nhere\nhere\n$(WHO)$$\n"


@pytest.mark.parametrize(
    ("protocol", "end"), [(V4, []), (V5, [bytes([CLOSE, STDIN])])], ids=["v4", "v5"]
)
async def test_stdin_reaches_the_command(
    cluster: RunningCluster, client: aiohttp.ClientSession, protocol: str, end: list[bytes]
) -> None:
    """Only version 5 tells the end of stdin."""
    await running_pod(cluster)
    command = ("cat",) if end else ("head", "-c", "5")
    sent = [b"\0hel", b"\0", b"\0lo", *end]
    heard = await execute(client, *command, stdin=sent, protocol=protocol)
    assert heard[STDOUT] == b"hello"


async def test_a_command_without_stdin_reads_its_end(
    cluster: RunningCluster, client: aiohttp.ClientSession
) -> None:
    await running_pod(cluster)
    assert (await execute(client, "sh", "-c", "cat; echo done"))[STDOUT] == b"done\n"


async def test_a_program_that_is_missing_is_told(
    cluster: RunningCluster, client: aiohttp.ClientSession
) -> None:
    await running_pod(cluster)
    status = json.loads((await execute(client, "no-such-program"))[STATUS])
    assert status["reason"] == "InternalError"
    assert "no-such-program" in status["message"]


@pytest.mark.parametrize(
    ("query", "status", "text"),
    [
        ({"container": "other"}, 400, "container other is not valid"),
        ({}, 400, "a container name must be specified"),
        ({"container": "done"}, 404, "container not found"),
        ({"container": "main", "without": "command"}, 400, "at least 1 command"),
    ],
)
async def test_what_cannot_be_executed_is_refused(
    cluster: RunningCluster,
    client: aiohttp.ClientSession,
    query: dict[str, str],
    status: int,
    text: str,
) -> None:
    done = container("exit 0") | {"name": "done"}
    await running_pod(cluster, container("sleep 600"), done, restartPolicy="Never")
    await cluster.until_pod(
        "p", lambda pod: "terminated" in str(pod["status"]["containerStatuses"])
    )
    words = () if query.pop("without", "") else ("true",)
    where, params = path(*words, **query)
    upgrade = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        "Sec-WebSocket-Protocol": V4,
    }
    async with client.get(where, params=params, headers=upgrade) as answer:
        said = await answer.json()
        assert (answer.status, text in said["message"]) == (status, True), said


async def test_spdy_is_refused(cluster: RunningCluster, client: aiohttp.ClientSession) -> None:
    await running_pod(cluster)
    where, params = path("true")
    async with client.post(where, params=params, headers={"Upgrade": "SPDY/3.1"}) as answer:
        said = await answer.json()
    assert (answer.status, "kubectl 1.31" in said["message"]) == (400, True)


async def test_much_output_waits_for_its_reader(
    cluster: RunningCluster, client: aiohttp.ClientSession
) -> None:
    await running_pod(cluster)
    heard = await execute(client, "seq", "1", "300000")
    assert heard[STDOUT].splitlines()[-1] == b"300000"


async def test_a_command_ends_with_its_container(
    cluster: RunningCluster, client: aiohttp.ClientSession
) -> None:
    await running_pod(cluster, terminationGracePeriodSeconds=0)
    where, query = path("sh", "-c", "echo $$; sleep 600")
    async with client.ws_connect(where, params=query, protocols=[V4]) as socket:
        pid = int((await socket.receive_bytes())[1:])
        cluster.store.delete(PODS, "default", "p", grace_period_s=0)
        await async_eventually("the end of the command", lambda: is_gone(pid))


async def test_the_end_of_the_connection_ends_stdin_and_not_the_command(
    cluster: RunningCluster, client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    await running_pod(cluster)
    where, query = path("sh", "-c", f"echo; cat; echo ended > {tmp_path}/told", stdin="true")
    async with client.ws_connect(where, params=query, protocols=[V4]) as socket:
        await socket.receive_bytes()
    await async_eventually("the end of stdin", (tmp_path / "told").exists)


# ---- kubexec.sh ----------------------------------------------------------------------------------


async def launched(cluster: RunningCluster, tmp_path: Path, script: str) -> str:
    """What a launcher says that runs a script beside a worker `p`."""
    await running_pod(cluster)
    names = {"namespace": "default", "name": "config"}
    cluster.store.create(CONFIGMAPS, {"metadata": names, "data": files.file_contents(["p"], 2)})
    mounts = [{"name": "mpi", "mountPath": "/etc/mpi"}, {"name": "edl", "mountPath": "/etc/edl"}]
    source = {"configMap": {"name": "config", "defaultMode": 0o555}}
    launcher = new_pod(
        "launcher",
        container(script, volumeMounts=mounts),
        restartPolicy="Never",
        serviceAccountName="launcher",
        volumes=[{"name": "mpi", **source}, {"name": "edl", **source}],
    )
    cluster.store.create(PODS, launcher)
    await cluster.until_pod("launcher", lambda pod: pod["status"]["phase"] in ENDS)
    return await log_of(cluster, tmp_path, "launcher")


ENDS: Final = ("Succeeded", "Failed")


async def test_a_launcher_finds_its_hosts_and_runs_commands_there(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    script = """
    /etc/edl/discover_hosts.sh
    /etc/mpi/kubexec.sh p 'echo "$HOSTNAME"; cat; exit 5'
    echo $?
    echo word | /etc/mpi/kubexec.sh p cat
    /etc/mpi/kubexec.sh q true
    echo $?
    """
    said = await launched(cluster, tmp_path, script)
    assert said.splitlines()[:4] == ["p:2", "p", "5", "word"]
    assert said.splitlines()[-1] == "255"
    assert 'pods "q" not found' in said


async def test_a_signal_ends_the_command(cluster: RunningCluster, tmp_path: Path) -> None:
    script = f"""
    /etc/mpi/kubexec.sh p 'echo $$ > {tmp_path}/pid; exec sleep 600' & agent=$!
    until [ -s {tmp_path}/pid ]; do sleep 0.05; done
    kill $agent
    wait $agent
    echo $?
    """
    said = await launched(cluster, tmp_path, script.replace("$$", "$$$$"))
    assert said.splitlines()[-1] == "143", said  # some shells say before that the agent was ended
    pid = int((tmp_path / "pid").read_text())
    await async_eventually("the end of the command", lambda: is_gone(pid))


async def test_the_end_of_the_agent_ends_the_command(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    script = f"""
    /etc/mpi/kubexec.sh p 'echo $$ > {tmp_path}/pid; exec sleep 600' & agent=$!
    until [ -s {tmp_path}/pid ]; do sleep 0.05; done
    kill -KILL $agent
    """
    await launched(cluster, tmp_path, script.replace("$$", "$$$$"))
    pid = int((tmp_path / "pid").read_text())
    await async_eventually("the end of the command", lambda: is_gone(pid))


async def test_heartbeats_do_not_reach_the_command(cluster: RunningCluster, tmp_path: Path) -> None:
    often = "s/^HEARTBEAT_S = .*/HEARTBEAT_S = 0.05/"
    script = f"""
    sed '{often}' /etc/mpi/kubexec.py > {tmp_path}/kubexec.py
    (sleep 1; echo word) | python3 {tmp_path}/kubexec.py p cat
    python3 {tmp_path}/kubexec.py p 'sleep 1; cat; echo end'
    """
    assert await launched(cluster, tmp_path, script) == "word\nend\n"


async def test_a_pod_without_an_account_has_no_token(
    cluster: RunningCluster, client: aiohttp.ClientSession
) -> None:
    await running_pod(cluster)
    heard = await execute(client, "sh", "-c", "echo ${KUBERNETES_SERVICE_HOST-none}")
    assert heard[STDOUT] == b"none\n"
