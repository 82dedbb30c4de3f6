"""The exec plugin of a kubeconfig: what it gives, how it fails, and that it never outlives us."""

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from edgeai.errors import SettingsError
from edgeai.kube.user import UserClient
from tests.support.kubeconfig import write_kubeconfig
from tests.support.waiting import async_eventually

VERSION: Final = "client.authentication.k8s.io/v1"
CREDENTIAL: Final = {"apiVersion": VERSION, "kind": "ExecCredential", "status": {"token": "t0"}}


def kubeconfig_with(path: Path, script: str) -> Path:
    """Args: script: of the shell"""
    write_kubeconfig(path, "http://127.0.0.1:9")
    content = yaml.safe_load(path.read_text())
    plugin = {"apiVersion": VERSION, "command": "sh", "args": ["-c", script]}
    content["users"][0]["user"] = {"exec": {**plugin, "env": [{"name": "MINE", "value": "yes"}]}}
    path.write_text(yaml.safe_dump(content))
    return path


async def token_of(path: Path, script: str) -> str:
    async with await UserClient.from_kubeconfig(kubeconfig_with(path, script)) as client:
        return await client.token()


async def test_its_token_is_shown(tmp_path: Path) -> None:
    script = f'[ $MINE = yes ] && echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/asked && echo '
    assert await token_of(tmp_path / "config", f"{script}'{json.dumps(CREDENTIAL)}'") == "t0"
    asked = json.loads((tmp_path / "asked").read_text())
    assert (asked["apiVersion"], asked["kind"]) == (VERSION, "ExecCredential")
    assert "interactive" in asked["spec"]


BAD: dict[str, tuple[Any, str]] = {
    "it fails": ("echo no login >&2; exit 3", "process returned 3. no login"),
    "no JSON": ("echo hello", "no ExecCredential"),
    "a list": ("echo '[]'", "no ExecCredential"),
    "no status": (
        f"""echo '{{"apiVersion": "{VERSION}", "kind": "x"}}'""",
        "missing required field `status`",
    ),
    "nothing": (
        f"echo '{json.dumps({**CREDENTIAL, 'status': {'token': None}})}'",
        "neither a token nor a certificate",
    ),
    "too much": ("yes | head -c 3000000", "larger than 1048576 bytes"),
    "too many words": ("yes no login | head -c 3000000 >&2; exit 3", "returned 3. no login"),
    "of another version": (
        f"echo '{json.dumps({**CREDENTIAL, 'apiVersion': 'v9'})}'",
        f"v9, and not {VERSION}",
    ),
}


@pytest.mark.parametrize(("script", "problem"), BAD.values(), ids=BAD)
async def test_a_plugin_that_gives_nothing_is_named(
    tmp_path: Path, script: str, problem: str
) -> None:
    with pytest.raises(SettingsError) as caught:
        await token_of(tmp_path / "config", script)
    assert problem in str(caught.value)
    assert str(tmp_path / "config") in str(caught.value)


async def test_a_plugin_ends_with_who_waits_for_it(tmp_path: Path) -> None:
    """Also one that ignores SIGTERM. A child of its that keeps its pipes open delays nobody."""
    pids = tmp_path / "pids"
    script = f"trap '' TERM; sleep 100 & echo $$ $! > {pids}; wait"
    waiting = asyncio.create_task(token_of(tmp_path / "config", script))
    await async_eventually("a plugin", lambda: pids.exists() and pids.read_text().strip())
    plugin, child = map(int, pids.read_text().split())
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    os.kill(child, signal.SIGKILL)
    with pytest.raises(ProcessLookupError):
        os.kill(plugin, 0)


async def test_a_plugin_that_is_not_installed_is_named(tmp_path: Path) -> None:
    path = kubeconfig_with(tmp_path / "config", "")
    path.write_text(path.read_text().replace("command: sh", "command: no-such-plugin"))
    with pytest.raises(SettingsError, match="no-such-plugin"):
        await UserClient.from_kubeconfig(path)
