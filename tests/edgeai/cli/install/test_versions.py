"""A Kubernetes that is older than edgeai supports is refused before anything is made."""

from pathlib import Path

import pytest

from edgeai.cli.install import installation
from edgeai.cli.install.cluster import Cluster
from edgeai.cli.install.errors import InstallError
from edgeai.cli.install.values import Values
from edgeai.kube.user import UserClient
from tests.globalmanager.conftest import scripted
from tests.globalmanager.scripted_api import ScriptedApi
from tests.support.kubeconfig import write_kubeconfig

__all__ = ["scripted"]


async def test_an_older_kubernetes_is_refused_by_its_version(
    scripted: ScriptedApi, tmp_path: Path
) -> None:
    scripted.others = [scripted.json({"gitVersion": "v1.29.9"})]
    path = write_kubeconfig(tmp_path / "kubeconfig", scripted.url)
    async with await UserClient.from_kubeconfig(path) as client:
        cluster = Cluster(client, "edgeai-system", print, timeout_s=5.0)
        with pytest.raises(InstallError, match=r"has Kubernetes 1\.29; edgeai needs 1\.30"):
            await installation.install(cluster, {}, Values())
    assert [request.path for request in scripted.seen] == ["/version"]
