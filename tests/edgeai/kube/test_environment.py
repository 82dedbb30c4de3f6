"""What the client of the Kubernetes API takes from its environment: the proxy, and nothing else."""

from pathlib import Path

import pytest
import yaml

from edgeai.api.resources import NODES, ObjectRef
from edgeai.kube.client import KubeClient
from edgeai.kube.transport import proxy_of_environment
from tests.globalmanager.scripted_api import ScriptedApi
from tests.support.kubeconfig import write_kubeconfig

UNREACHABLE = "http://api.test:6443"
NODE = {"metadata": {"name": "edge0", "uid": "u", "resourceVersion": "1"}}


@pytest.fixture(autouse=True)
def empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


async def get_node(kubeconfig: Path) -> None:
    async with await KubeClient.from_kubeconfig(kubeconfig) as client:
        await client.get(ObjectRef(NODES, "", "edge0"))


async def test_a_proxy_of_the_environment_is_used(
    scripted: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted.others = [scripted.json(NODE)]
    monkeypatch.setenv("HTTP_PROXY", scripted.url)
    await get_node(write_kubeconfig(tmp_path / "kubeconfig", UNREACHABLE))
    assert [str(request.url) for request in scripted.seen] == [f"{UNREACHABLE}/api/v1/nodes/edge0"]


@pytest.mark.parametrize("no_proxy", ["fd00::1", "[fd00::1]", "[fd00::1]:6443"])
def test_an_ipv6_server_in_no_proxy_is_asked_directly(
    monkeypatch: pytest.MonkeyPatch, no_proxy: str
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    assert proxy_of_environment("https://[fd00::1]:6443") == "http://127.0.0.1:1"
    monkeypatch.setenv("NO_PROXY", no_proxy)
    assert proxy_of_environment("https://[fd00::1]:6443") == ""


@pytest.mark.parametrize("no_proxy", ["127.0.0.1", "*", "example.org, 127.0.0.1"])
async def test_a_server_in_no_proxy_is_asked_directly(
    scripted: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_proxy: str
) -> None:
    scripted.others = [scripted.json(NODE)]
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("NO_PROXY", no_proxy)
    await get_node(write_kubeconfig(tmp_path / "kubeconfig", scripted.url))
    assert len(scripted.seen) == 1


async def test_the_proxy_of_the_kubeconfig_wins(
    scripted: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted.others = [scripted.json(NODE)]
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    path = write_kubeconfig(tmp_path / "kubeconfig", UNREACHABLE)
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    content["clusters"][0]["cluster"]["proxy-url"] = scripted.url
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    await get_node(path)
    assert len(scripted.seen) == 1


async def test_a_netrc_file_changes_nothing(
    scripted: ScriptedApi, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A .netrc entry for the API server's host must neither replace the token nor stop requests."""
    scripted.others = [scripted.json(NODE)]
    netrc = tmp_path / "netrc"
    netrc.touch(mode=0o600)
    netrc.write_text("machine 127.0.0.1 login somebody password else\n", encoding="utf-8")
    monkeypatch.setenv("NETRC", str(netrc))
    await get_node(write_kubeconfig(tmp_path / "kubeconfig", scripted.url, token="mine"))
    assert [request.headers["Authorization"] for request in scripted.seen] == ["Bearer mine"]
