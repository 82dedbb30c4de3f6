"""A kubeconfig that cannot be used is reported by file and fault, before anything runs."""

from pathlib import Path

import pytest
import yaml

from edgeai.errors import SettingsError
from edgeai.kube.client import KubeClient
from tests.support.kubeconfig import write_kubeconfig

GOOD = yaml.safe_load(
    """
    clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]
    contexts: [{name: x, context: {cluster: c, user: u}}]
    users: [{name: u, user: {token: t}}]
    current-context: x
    """
)
TLS = {"name": "c", "cluster": {"server": "https://h:1", "certificate-authority": "/nowhere"}}
NOT_A_CERTIFICATE = {
    "name": "c",
    "cluster": {"server": "https://h:1", "certificate-authority-data": "bm90IGEgY2VydA=="},
}
BAD = {
    "empty": ("", "empty or no YAML mapping"),
    "a list": ("[1, 2]", "empty or no YAML mapping"),
    "not yaml": ("{clusters: [", "is not YAML"),
    "no clusters": (yaml.safe_dump({**GOOD, "clusters": []}), "clusters is missing"),
    "no context": (yaml.safe_dump({**GOOD, "current-context": ""}), "current-context is missing"),
    "unknown context": (yaml.safe_dump({**GOOD, "current-context": "y"}), "'y' is not among"),
    "unknown cluster": (
        yaml.safe_dump({**GOOD, "clusters": [{"name": "d"}]}),
        "context 'x' names no cluster",
    ),
    "no server": (
        yaml.safe_dump({**GOOD, "clusters": [{"name": "c", "cluster": {}}]}),
        "cluster 'c' has no server",
    ),
    "contexts of wrong form": (yaml.safe_dump({**GOOD, "contexts": "x"}), "at `$.contexts`"),
    "missing authority": (yaml.safe_dump({**GOOD, "clusters": [TLS]}), "/nowhere"),
    "broken authority": (
        yaml.safe_dump({**GOOD, "clusters": [NOT_A_CERTIFICATE]}),
        "TLS certificates cannot be used",
    ),
    "unknown user": (yaml.safe_dump({**GOOD, "users": []}), "'u' of context 'x' is not among"),
}


@pytest.mark.parametrize(("content", "problem"), BAD.values(), ids=BAD)
async def test_a_bad_file_is_named_with_its_fault(
    tmp_path: Path, content: str, problem: str
) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        await KubeClient.from_kubeconfig(path)
    assert str(path) in str(caught.value)
    assert problem in str(caught.value)


async def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="nowhere: cannot be read: No such file"):
        await KubeClient.from_kubeconfig(tmp_path / "nowhere")


async def test_outside_of_a_pod_the_user_is_told_to_name_a_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(SettingsError, match="name a kubeconfig file"):
        await KubeClient.from_kubeconfig(None)


async def test_a_good_file_is_used(tmp_path: Path) -> None:
    path = write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:1")
    await (await KubeClient.from_kubeconfig(path)).close()
