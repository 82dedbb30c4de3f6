"""Commands in pods: what is sent to pods/exec, and what each end of the command becomes."""

import asyncio
import math

import msgspec
import pytest
from aiohttp import web

from edgeai.api.resources import PODS, ObjectRef
from edgeai.errors import Unavailable
from edgeai.kube import errors
from edgeai.kube.client import KubeClient
from edgeai.kube.execution import MAX_OUTPUT_BYTES, End, NotStarted, exit_code_of
from globalmanager.ha.fence import Fence
from tests.globalmanager.exec_answers import SUCCESS, exited, hangs, says
from tests.globalmanager.scripted_api import ScriptedApi
from tests.support.waiting import async_eventually

POD = ObjectRef(PODS, "ns", "a-launcher")


async def execute(client: KubeClient, *command: str, stdin: bytes = b"") -> End:
    return await client.execute(POD, container="main", command=command, stdin=stdin)


async def test_the_command_stands_in_the_url_and_the_credential_in_the_header(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    scripted.others = [says(b"\x01hello\n", status=SUCCESS)]
    end = await execute(scripted_client, "sh", "-c", "echo a&b=ü c")
    assert end == End(0, "hello\n")
    (request,) = scripted.seen
    assert request.path == "/api/v1/namespaces/ns/pods/a-launcher/exec"
    assert request.query.getall("command") == ["sh", "-c", "echo a&b=ü c"]
    given = {name: request.query[name] for name in ("container", "stdin", "stdout", "stderr")}
    assert given == {"container": "main", "stdin": "false", "stdout": "true", "stderr": "true"}
    assert request.headers["Authorization"] == "Bearer letmein"
    assert request.headers["Sec-WebSocket-Protocol"] == "v4.channel.k8s.io"


@pytest.mark.parametrize("code", [1, 3, 124, 137])
async def test_the_exit_code_and_both_outputs_are_told(
    scripted: ScriptedApi, scripted_client: KubeClient, code: int
) -> None:
    scripted.others = [says(b"\x01out ", b"\x02err", status=exited(code))]
    assert await execute(scripted_client, "false") == End(code, "out err")


async def test_output_that_comes_after_the_status_is_told_too(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    """A kubelet copies the output and sends the Status independently of each other."""
    status = b"\x03" + msgspec.json.encode(exited(3))
    scripted.others = [says(b"\x01first ", status, b"\x01last")]
    assert await execute(scripted_client, "sh") == End(3, "first last")


async def test_of_much_output_the_end_is_kept(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    line = b"\x01" + b"x" * 1000
    scripted.others = [says(*[line] * 50, b"\x02the last words", status=SUCCESS)]
    end = await execute(scripted_client, "sh")
    assert len(end.output) == MAX_OUTPUT_BYTES
    assert end.output.endswith("the last words")


async def test_standard_input_arrives_whole(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    heard = bytearray()
    given = bytes(range(256)) * 500

    async def read(socket: web.WebSocketResponse) -> None:
        while len(heard) < len(given):
            message = await socket.receive_bytes()
            assert message[0] == 0
            heard.extend(message[1:])

    scripted.others = [says(status=SUCCESS, before=read)]
    await execute(scripted_client, "sh", stdin=given)
    assert bytes(heard) == given
    assert scripted.seen[0].query["stdin"] == "true"


async def test_a_refused_handshake_is_the_error_that_the_server_names(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    problem = 'pods "a" is forbidden: User "gm" cannot create resource "pods/exec"'
    scripted.others = [scripted.failure(403, "Forbidden", problem)]
    with pytest.raises(errors.Forbidden, match="grant that right"):
        await execute(scripted_client, "sh")


@pytest.mark.parametrize(
    ("code", "body"),
    [
        pytest.param(500, 'container not found ("main")', id="a kubelet's own answer"),
        pytest.param(404, "container not found", id="of an older kubelet"),
    ],
)
async def test_a_container_that_does_not_run_is_not_found(
    scripted: ScriptedApi, scripted_client: KubeClient, code: int, body: str
) -> None:
    scripted.others = [scripted.text(body, code)]
    with pytest.raises(errors.NotFound, match="container not found"):
        await execute(scripted_client, "sh")


async def test_a_redirect_of_the_handshake_is_not_followed(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    scripted.others = [scripted.json({}, 307, Location=f"{scripted.url}/elsewhere")]
    with pytest.raises(errors.ApiError):
        await execute(scripted_client, "sh")
    assert len(scripted.seen) == 1


async def test_a_command_that_cannot_start_is_refused_with_the_kubelets_words(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    status = {"status": "Failure", "message": 'exec: "bash": executable file not found in $PATH'}
    scripted.others = [says(status=status)]
    with pytest.raises(errors.Invalid, match="executable file not found"):
        await execute(scripted_client, "bash")


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(says(b"\x01half"), id="closed without a status"),
        pytest.param(says(status=SUCCESS, protocols=()), id="another protocol"),
    ],
)
async def test_a_connection_that_ends_early_says_nothing_about_the_command(
    scripted: ScriptedApi, scripted_client: KubeClient, answer: object
) -> None:
    scripted.others = [answer]  # type: ignore[list-item]
    with pytest.raises(Unavailable):
        await execute(scripted_client, "sh")


async def test_a_handshake_without_an_answer_fails_in_time(
    scripted: ScriptedApi, impatient_client: KubeClient
) -> None:
    scripted.others = [scripted.hang()]
    with pytest.raises(errors.Silent):
        await execute(impatient_client, "sh")


async def test_a_command_may_take_longer_than_a_request(
    scripted: ScriptedApi, impatient_client: KubeClient
) -> None:
    async def wait(_socket: web.WebSocketResponse) -> None:
        await asyncio.sleep(0.6)

    scripted.others = [says(status=SUCCESS, before=wait)]
    assert await execute(impatient_client, "sh") == End(0, "")


async def test_who_does_not_lead_runs_nothing_and_who_loses_the_lead_lets_go(
    scripted: ScriptedApi, scripted_client: KubeClient
) -> None:
    fence = Fence()
    scripted.others = [hangs()]
    guarded = scripted_client.guarded(fence)
    with pytest.raises(errors.NotLeading):
        await execute(guarded, "sh")
    assert scripted.seen == []
    fence.open_until(math.inf)
    running = asyncio.create_task(execute(guarded, "sh"))
    await async_eventually("the command", lambda: scripted.seen)
    fence.close()
    with pytest.raises(errors.NotLeading):
        await running


@pytest.mark.parametrize("code", ["--5", "1" * 5000, "²", "", "5 "])
def test_an_exit_code_that_is_no_number_is_told(code: str) -> None:
    causes = [{"reason": "ExitCode", "message": code}]
    with pytest.raises(NotStarted):
        exit_code_of(msgspec.json.encode({"status": "Failure", "details": {"causes": causes}}))
