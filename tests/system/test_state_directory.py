"""Where the state of a cluster is, `edgeai up` and `edgeai down` find it."""

import os
import signal
from pathlib import Path

from edgeai.cli import environment
from edgeai.cli.api import Api
from tests.edgeai.cli.command import edgeai, processes_of


def test_a_relative_directory_behind_a_link_serves_and_survives_kill(tmp_path: Path) -> None:
    """And after SIGKILL of the cluster, `up` finds its way: new address, same objects."""
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    first = edgeai("up", "--state-dir", "link/state", cwd=tmp_path)
    assert first.returncode == 0, first.stderr
    assert first.stderr.splitlines() == [
        "edgeai: the cluster runs, and edgeai starts in it",
        "edgeai: look at it with `edgeai status` or `edgeai open`, stop it with `edgeai down`",
    ]
    running = environment.connect(tmp_path / "link" / "state")
    assert first.stdout.strip() == str(tmp_path / "real" / "state" / "kubeconfig")
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mine"}}
    running.api.apply(config_map)
    os.kill(running.cluster.pid, signal.SIGKILL)

    again = edgeai("up", "--state-dir", "real/state", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    api = Api.from_kubeconfig(tmp_path / "real" / "state" / "kubeconfig")
    assert api.find("/api/v1/namespaces/default/configmaps/mine") is not None
    down = edgeai("down", "--state-dir", "link/state", cwd=tmp_path)
    assert (down.returncode, down.stderr) == (0, "")
    assert os.listdir(tmp_path / "real") == []
    assert processes_of(tmp_path) == []
