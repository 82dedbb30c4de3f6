"""The real driver of Horovod reads our lists by our discover_hosts.sh, through every change."""

import json
import os
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from globalmanager.kinds.elastic.trainingjob import files
from globalmanager.kinds.elastic.trainingjob.hosts import HostList, next_list
from tests.support.runtimes import INSTALL_S, python_with
from tests.support.world import at

pytestmark = pytest.mark.timeout(INSTALL_S)
DRIVER: Final = Path(__file__).parents[2] / "horovod_driver.py"
SLOTS: Final = 2


class Launcher:
    """A launcher with the files of a ConfigMap and with Horovod's driver."""

    def __init__(self, python: Path, directory: Path) -> None:
        self._directory = directory
        self.write(())
        script = directory / "discover_hosts.sh"
        argv = [str(python), str(DRIVER), str(script), str(SLOTS)]
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )

    def write(self, hosts: tuple[str, ...]) -> None:
        """Exchange the files as a kubelet does: a new directory, then one renamed symlink."""
        fresh = self._directory / f"..{len(list(self._directory.iterdir()))}"
        fresh.mkdir()
        current = self._directory / "..data"
        for name, content in files.file_contents(hosts, SLOTS).items():
            here = content.replace(files.ELASTIC_DIRECTORY, str(self._directory))
            (fresh / name).write_text(here)
            (fresh / name).chmod(0o555)
            if not current.is_symlink():
                (self._directory / name).symlink_to(f"..data/{name}")
        draft = self._directory / "..data_tmp"
        draft.symlink_to(fresh.name)
        os.replace(draft, current)

    def assign(self, hosts: tuple[str, ...]) -> dict[str, Any]:
        """What Horovod answers after it has read this list."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps(hosts), file=self.process.stdin)
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer


@pytest.fixture
def launcher(tmp_path: Path) -> Iterator[Launcher]:
    launcher = Launcher(python_with("horovod-driver"), tmp_path)
    with launcher.process as process:
        yield launcher
        process.kill()


def workers(indices: str) -> tuple[str, ...]:
    return tuple(f"mnist-worker-{index}" for index in indices.split())


COURSE: Final = (
    ("0 1", "two workers"),
    ("0 1 2 3", "scaled out to four"),
    ("0 2 3", "scaled in by name"),
    ("0 2 4", "worker 3 is replaced"),
    ("0 2 4 5 6 7 8 9 10 11", "scaled out to ten"),
    ("0 10", "scaled in to worker 10, not to worker 1"),
    ("12 13", "all workers are replaced"),
    ("13", "one worker is left"),
    ("14", "the last worker is replaced"),
    ("14 15 16", "and out again"),
)


def test_horovod_follows_every_change(launcher: Launcher) -> None:
    """At each list that `next_list` gives, also at those between."""
    now, known = at(0), HostList()
    for indices, what in COURSE:
        wanted = workers(indices)
        while known.hosts != wanted:
            step = next_list(known, desired=wanted, ready=wanted, has_launcher=True, now=now)
            if step.list != known:
                launcher.write(step.list.hosts)
                answer = launcher.assign(step.list.hosts)
                assert answer.get("hosts") is not None, (what, answer)
                assert set(answer["hosts"]) == set(step.list.hosts), what
                assert answer["processes"] == SLOTS * len(step.list.hosts), what
            known = step.list
            now += timedelta(seconds=step.wait_s or 0.0)
        now += timedelta(seconds=60)


def test_older_hosts_keep_the_lower_ranks(launcher: Launcher) -> None:
    launcher.write(workers("5"))
    launcher.assign(workers("5"))
    launcher.write(workers("3 4 5"))
    assert launcher.assign(workers("3 4 5"))["hosts"][0] == "mnist-worker-5"


def test_a_list_without_a_former_host_ends_the_job(launcher: Launcher) -> None:
    """So the test above would see such a list."""
    for indices in ("0 1", ""):
        launcher.write(workers(indices))
        if indices:
            launcher.assign(workers(indices))
    launcher.write(workers("2"))
    assert "No hosts from previous set" in launcher.assign(workers("2"))["error"]


def test_a_missing_file_keeps_the_hosts(launcher: Launcher, tmp_path: Path) -> None:
    """The script fails then. A reader can come so in the middle of an exchange of files."""
    launcher.write(workers("0 1"))
    launcher.assign(workers("0 1"))
    (tmp_path / "hostfile").unlink()
    done = subprocess.run([tmp_path / "discover_hosts.sh"], capture_output=True, check=False)
    assert (done.returncode != 0, done.stdout) == (True, b"")
    assert sorted(launcher.assign(workers("0 1"))["hosts"]) == sorted(workers("0 1"))
