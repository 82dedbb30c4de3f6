"""An API server that cannot be used: each command says what to do, in the same words as doctor."""

import asyncio
import contextlib
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pytest
import yaml
from typer.testing import CliRunner

from edgeai.api.resources import NODES
from edgeai.cli.doctor.diagnosis import diagnose
from edgeai.cli.main import app
from edgeai.client.asynchronous import OF_A_USER
from edgeai.errors import EdgeAIError
from edgeai.kube.client import KubeClient
from edgeai.kube.errors import Silent
from edgeai.kube.remedies import OF_A_COMMAND
from tests.globalmanager.cluster import LocalApi
from tests.globalmanager.scripted_api import ScriptedApi, serve_scripted
from tests.support.certificates import Authority
from tests.support.kubeconfig import write_kubeconfig
from tests.support.ports import free_port

MODEL: Final = """
apiVersion: edgeai.io/v1alpha1
kind: Model
metadata: {name: small}
spec: {url: /models/small.npz}
"""
COMMANDS: Final = {
    "status": ("status",),
    "describe": ("describe", "digits"),
    "logs": ("logs", "digits"),
    "submit": ("submit", "-"),
    "open": ("open", "--no-browser"),
    "open as an account": ("open", "--no-browser", "--service-account", "default/viewer"),
    "doctor": ("doctor",),
    "credentials": ("credentials",),
}
TOKEN: Final = "guess"
WITHOUT_STATE: Final = ("credentials",)
# No resolver asks the network for a name of more than 255 bytes.
NO_HOST: Final = ".".join(["a" * 60] * 5)


class Told(NamedTuple):
    code: int
    text: str


async def run(kubeconfig: Path, *words: str) -> Told:
    """What the command prints on both streams, and the line that `main` prints of its error."""
    options = ["--kubeconfig", str(kubeconfig)]
    if words[0] not in WITHOUT_STATE:
        options += ["--state-dir", str(kubeconfig.parent / "none")]
    result = await asyncio.to_thread(CliRunner().invoke, app, [*words, *options], input=MODEL)
    error = result.exception
    if error is not None and not isinstance(error, EdgeAIError | SystemExit):
        raise error
    line = str(error) if isinstance(error, EdgeAIError) else ""
    return Told(result.exit_code, result.output + line)


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
async def test_every_command_says_what_to_do_where_nothing_listens(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", url)
    told = await run(kubeconfig, *words)
    assert told.code == 1
    assert "Connect call failed" in told.text
    assert told.text.count(OF_A_COMMAND.unreachable.format(source=f"kubeconfig {kubeconfig}")) == 1


def trusting(path: Path, url: str, authority: Path) -> Path:
    write_kubeconfig(path, url)
    content = yaml.safe_load(path.read_text())
    content["clusters"][0]["cluster"]["certificate-authority"] = str(authority)
    path.write_text(yaml.safe_dump(content))
    return path


@contextlib.asynccontextmanager
async def no_such_host(path: Path) -> AsyncIterator[Path]:
    yield write_kubeconfig(path / "kubeconfig", f"https://{NO_HOST}:6443")


@contextlib.asynccontextmanager
async def another_authority(path: Path) -> AsyncIterator[Path]:
    pair = Authority(path).issue("server", alternative="IP:127.0.0.1", usage="serverAuth")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)

    async def nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(nothing, "127.0.0.1", 0, ssl=context) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield trusting(path / "kubeconfig", url, Authority(path, "other").certificate)


@contextlib.asynccontextmanager
async def unknown_token(path: Path) -> AsyncIterator[Path]:
    async with LocalApi(path) as cluster:
        yield write_kubeconfig(path / "stranger", cluster.url, TOKEN)


Answer = Callable[[ScriptedApi], Any]


def answering(answer: Answer) -> Callable[[Path], AbstractAsyncContextManager[Path]]:
    @contextlib.asynccontextmanager
    async def serve(path: Path) -> AsyncIterator[Path]:
        async with serve_scripted() as api:
            api.lists = api.others = [answer(api)]
            yield write_kubeconfig(path / "kubeconfig", api.url)

    return serve


DENIED: Final = 'nodes is forbidden: User "eve" cannot list resource "nodes" in API group ""'
CAUSES: Final[dict[str, tuple[Callable[[Path], AbstractAsyncContextManager[Path]], str, str]]] = {
    "a name that has no address": (no_such_host, "Cannot connect", OF_A_COMMAND.unknown_host),
    "another CA": (another_authority, "is not trusted", OF_A_COMMAND.distrusted),
    "a token that is not known": (unknown_token, "401", OF_A_COMMAND.unauthorized),
    "a page of a proxy": (
        answering(lambda api: api.text("<html>no</html>", 403)),
        "403",
        OF_A_COMMAND.no_api,
    ),
    "a page that is no refusal": (
        answering(lambda api: api.text("<html>welcome</html>")),
        "cannot be read",
        OF_A_COMMAND.no_api,
    ),
    "TLS is missing": (
        answering(lambda api: api.text("Client sent an HTTP request to an HTTPS server.", 400)),
        "400",
        OF_A_COMMAND.plain_http,
    ),
}


@pytest.mark.parametrize(("serve", "cause", "remedy"), CAUSES.values(), ids=CAUSES)
async def test_the_cause_comes_with_its_remedy_and_doctor_says_the_same(
    tmp_path: Path,
    serve: Callable[[Path], AbstractAsyncContextManager[Path]],
    cause: str,
    remedy: str,
) -> None:
    async with serve(tmp_path) as kubeconfig:
        wanted = remedy.format(source=f"kubeconfig {kubeconfig}")
        for words in (COMMANDS["describe"], COMMANDS["submit"], COMMANDS["credentials"]):
            told = await run(kubeconfig, *words)
            assert told.code == 1
            assert cause in told.text
            assert told.text.endswith(f"; {wanted}")
        told = await run(kubeconfig, "doctor", "-o", "json")
        (finding,) = json.loads(told.text)
        assert TOKEN not in told.text
    assert (finding["check"], finding["level"]) == ("api", "error")
    assert cause in finding["message"]
    assert finding["remedy"] == wanted
    assert wanted not in finding["message"]


async def test_a_missing_right_comes_with_its_remedy(tmp_path: Path) -> None:
    refusal = answering(lambda api: api.failure(403, "Forbidden", DENIED))
    async with refusal(tmp_path) as kubeconfig:
        told = await run(kubeconfig, "describe", "digits")
        assert told.text.endswith(f"{DENIED} (403 Forbidden); {OF_A_COMMAND.missing_right}")
        found = await diagnose(kubeconfig, "edgeai-system")
    assert {each.remedy for each in found if each.level == "unknown"} == {
        OF_A_COMMAND.missing_right
    }


async def test_a_server_that_never_answers_comes_with_its_remedy(tmp_path: Path) -> None:
    """With the settings of the commands, but for the 10 s that they wait."""
    settings = msgspec.structs.replace(OF_A_USER, deadline_s=0.2, list_deadline_s=0.2)
    listener = socket.create_server(("127.0.0.1", 0))
    with listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", url)
        wanted = OF_A_COMMAND.silent.format(source=f"kubeconfig {kubeconfig}")
        async with await KubeClient.from_kubeconfig(kubeconfig, settings) as client:
            with pytest.raises(Silent) as failed:
                await client.list(NODES)
        (finding,) = await diagnose(kubeconfig, "edgeai-system", settings=settings)
        (late,) = await diagnose(kubeconfig, "edgeai-system", deadline_s=0.2)
    assert str(failed.value).endswith(f"no answer within 0.2 s; {wanted}")
    assert (finding.message, finding.remedy) == (
        "get version: no answer within 0.2 s",
        wanted,
    )
    assert late.remedy == wanted
