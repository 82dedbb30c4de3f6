"""GlobalManager and LocalController of this release beside those of the next, under a service.

What is installed is replaced as an operator would, by another command in its Deployment.
"""

import contextlib
import enum
import itertools
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from common import wire
from edgeai.cli import environment, status, system
from edgeai.cli.api import Object, path_of
from edgeai.cli.environment import Environment
from localcontroller.ledger.file import LEDGER, LedgerFile
from localcontroller.link.link import FLOOR_S
from tests.support.inference import CountingService
from tests.support.waiting import PATIENCE_S, eventually
from tests.system import counting_worker, next_release, processes

NEWEST: Final = max(wire.VERSIONS)
EDGE: Final = system.EDGES[0]
NAMESPACE: Final = "default"
LOCALCONTROLLER: Final = system.localcontroller_of(EDGE)
QUICKLY: Final = ("--reconnect-min-s", "0.5", "--reconnect-max-s", "1")


class Release(enum.Enum):
    """A release, by the protocol versions that it is told to speak; THIS knows them itself."""

    THIS = ""
    NEXT = f"{NEWEST},{NEWEST + 1}"
    LATER = f"{NEWEST + 1}"  # has dropped what THIS speaks

    def command(self, program: str) -> list[str]:
        launcher = [next_release.__name__, self.value] if self.value else []
        return ["python3", "-m", *launcher, program]


class VersionPair:
    """edgeai on one edge node, either half of which can be replaced by another release."""

    def __init__(self, running: Environment) -> None:
        self.running = running

    def install(self, globalmanager: Release, localcontroller: Release) -> None:
        """Returns once no other release runs."""
        wanted = {
            system.GLOBALMANAGER: globalmanager.command("globalmanager"),
            LOCALCONTROLLER: localcontroller.command("localcontroller"),
        }
        for name, command in wanted.items():
            self._roll_out(name, command)

        def check() -> bool:
            commands = {name: self._commands(name) for name in wanted}
            is_done = all(commands[name] == [command] for name, command in wanted.items())
            assert is_done, f"there run {commands}"
            return True

        eventually("rollout", check)

    def wait_for_session(self, version: int) -> None:
        """Until both halves say that they have a session of this protocol version."""

        def check() -> bool:
            try:
                session = self.node()["session"] or {}
                link = self.edge("link")
            except (status.RestUnavailable, OSError) as error:
                raise AssertionError(str(error)) from error
            agreed = (session.get("protocolVersion"), link["protocolVersion"])
            is_open = link["connected"] and session.get("synced")
            is_so = is_open and agreed == (version, version)
            assert is_so, f"{session}, {link}"
            return True

        eventually(f"a session of version {version}", check)

    def node(self) -> Object:
        """The edge node, as the GlobalManager shows it. Raises: RestUnavailable"""
        nodes = status.fetch(self.running.rest_url(), "/api/v1/nodes")
        return next(node for node in nodes if node["name"] == EDGE)

    def edge(self, what: str) -> Any:
        """/api/v1/<what> of the LocalController. Raises: OSError"""
        address = self.running.cluster.nodes[EDGE]
        url = f"http://{address}:{system.STATUS_PORT}/api/v1/{what}"
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return json.load(answer)

    def wait_for_line(self, name: str, wanted: Object) -> None:
        """Until the log of what runs now has a line with these fields. Raises: TimeoutError"""
        (pod,) = self._pods(name)
        log = self.running.api.follow_log(
            system.NAMESPACE, pod["metadata"]["name"], silence_s=PATIENCE_S
        )
        lines = (json.loads(line) for line in log if line.startswith("{"))
        next(line for line in lines if line.items() >= wanted.items())

    def _roll_out(self, name: str, command: list[str]) -> None:
        path = f"/apis/apps/v1/namespaces/{system.NAMESPACE}/deployments/{name}"
        deployment = self.running.api.get(path)
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        if container["command"] != command:
            container["command"] = command
            self.running.api.apply(deployment)

    def _commands(self, name: str) -> list[list[str]]:
        return [pod["spec"]["containers"][0]["command"] for pod in self._pods(name)]

    def _pods(self, name: str) -> list[Object]:
        selector = f"app.kubernetes.io/name={name}"
        path = f"/api/v1/namespaces/{system.NAMESPACE}/pods?labelSelector={selector}"
        pods: list[Object] = self.running.api.get(path)["items"]
        return pods


class Service(CountingService):
    """Its edge worker counts all the time."""

    def __init__(self, installed: VersionPair, service: Object) -> None:
        super().__init__(installed.running.api, service)
        self._running = installed.running

    def wait_for_more(self) -> None:
        """Until the CR counts more than it does now."""
        self.wait_for_uploads(self.status().get("uploadCount") or 0)

    def entry(self) -> dict[str, Any]:
        """What its edge worker reported."""
        found: dict[str, Any] = (self.status().get("workers") or {}).get(f"{self.name}-edge", {})
        return found

    def worker(self) -> int:
        """Pid of its edge worker."""
        (pid,) = processes.pids_of(self._running, counting_worker.__name__, self.name)
        return pid

    def finish(self) -> dict[str, int]:
        """Stop counting. Returns: what the worker counted"""
        os.kill(self.worker(), signal.SIGUSR1)
        selector = f"edgeai.io/name={self.name},edgeai.io/role=edge"
        pods = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector={selector}"
        (pod,) = self._running.api.get(pods)["items"]
        log = self._running.api.follow_log(NAMESPACE, pod["metadata"]["name"], silence_s=PATIENCE_S)
        counts: dict[str, int] = json.loads(next(line for line in log if line.startswith("{")))
        return counts


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VersionPair]:
    state_dir = tmp_path_factory.mktemp("versions") / "state"
    tuning = system.Tuning(localcontroller_flags=QUICKLY)
    yield VersionPair(environment.up(state_dir, edges=(EDGE,), tuning=tuning))
    environment.down(state_dir)


_numbers: Final = itertools.count(1)


@contextmanager
def counting(installed: VersionPair, files: Path) -> Iterator[Service]:
    """A service that counts, from its first count in the CR on."""
    name = f"counting-{next(_numbers)}"
    applied = [installed.running.api.apply(object_) for object_ in manifests(name, files)]
    service = Service(installed, applied[-1])
    try:
        service.wait_for_more()
        yield service
    finally:
        for object_ in reversed(applied):
            installed.running.api.delete(path_of(object_))


def manifests(name: str, files: Path) -> list[Object]:
    (files / "model").touch()
    model = {
        "apiVersion": "edgeai.io/v1alpha1",
        "kind": "Model",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"url": str(files / "model"), "format": "none"},
    }
    edge = ["python3", "-m", counting_worker.__name__, name]
    cloud = ["sleep", "infinity"]
    service = {
        "apiVersion": "edgeai.io/v1alpha1",
        "kind": "JointInferenceService",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "edgeWorker": {"model": {"name": name}, "template": _template(EDGE, edge)},
            "cloudWorker": {
                "model": {"name": name},
                "template": _template(system.CLOUD, cloud),
            },
        },
    }
    return [model, service]


def _template(node: str, command: list[str]) -> Object:
    container = {
        "name": "worker",
        "image": "edgeai/counting",
        "command": command,
    }
    pod = {"nodeName": node, "terminationGracePeriodSeconds": 1, "containers": [container]}
    return {"spec": pod}


# ---- one version apart ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("globalmanager", "localcontroller"),
    [(Release.NEXT, Release.THIS), (Release.THIS, Release.NEXT)],
    ids=["newer GlobalManager", "newer LocalController"],
)
def test_one_version_apart_they_speak_the_older(
    installed: VersionPair, tmp_path: Path, globalmanager: Release, localcontroller: Release
) -> None:
    installed.install(globalmanager, localcontroller)
    installed.wait_for_session(NEWEST)
    with counting(installed, tmp_path) as service:
        held = {task["key"] for task in installed.edge("tasks")["items"]}
        assert f"jointinferenceservices.edgeai.io/{NAMESPACE}/{service.name}" in held
        service.wait_for_exact_counts(service.finish())


ROLLED: Final = (
    (Release.NEXT, Release.THIS, NEWEST),
    (Release.NEXT, Release.NEXT, NEWEST + 1),
    (Release.THIS, Release.NEXT, NEWEST),
    (Release.THIS, Release.THIS, NEWEST),
)


def test_upgrade_and_rollback_under_a_service_lose_nothing(
    installed: VersionPair, tmp_path: Path
) -> None:
    installed.install(Release.THIS, Release.THIS)
    installed.wait_for_session(NEWEST)
    with counting(installed, tmp_path) as service:
        worker = service.worker()
        for globalmanager, localcontroller, version in ROLLED:
            installed.install(globalmanager, localcontroller)
            installed.wait_for_session(version)
            service.wait_for_more()
        service.wait_for_exact_counts(service.finish())
        assert service.worker() == worker, "the worker was disturbed"
        assert service.entry()["attempt"] == 1
    # Else the ledger was never that of the next release.
    event = "ledger has additions of a newer localcontroller, kept as they are"
    installed.wait_for_line(LOCALCONTROLLER, {"event": event, "steps": ["of_next_release"]})


def test_what_a_newer_global_manager_wrote_into_a_status_stays(
    installed: VersionPair, tmp_path: Path
) -> None:
    installed.install(Release.THIS, Release.THIS)
    installed.wait_for_session(NEWEST)
    with counting(installed, tmp_path) as service:
        news = {"workers": {f"{service.name}-edge": {"ofNextRelease": {"kept": True}}}}
        installed.running.api.patch(f"{service.path}/status", {"status": news})
        service.wait_for_more()
        assert service.entry()["ofNextRelease"] == {"kept": True}


# ---- too far apart -------------------------------------------------------------------------------

THIS, LATER = list(wire.VERSIONS), [NEWEST + 1]


@pytest.mark.parametrize(
    ("globalmanager", "localcontroller", "says"),
    [
        (
            Release.THIS,
            Release.LATER,
            f"no common protocol version: LocalController {LATER}, GlobalManager {THIS}; "
            "upgrade the GlobalManager",
        ),
        (
            Release.LATER,
            Release.THIS,
            f"no common protocol version: LocalController {THIS}, GlobalManager {LATER}; "
            "upgrade the LocalController",
        ),
    ],
    ids=["older GlobalManager", "older LocalController"],
)
def test_without_a_common_version_both_say_so_and_nothing_is_lost(
    installed: VersionPair,
    tmp_path: Path,
    globalmanager: Release,
    localcontroller: Release,
    says: str,
) -> None:
    installed.install(Release.THIS, Release.THIS)
    installed.wait_for_session(NEWEST)
    with counting(installed, tmp_path) as service:
        installed.install(globalmanager, localcontroller)
        eventually("the refusal", lambda: _is_refused(installed, says))
        over = {"event": "session over", "level": "warning", "node": EDGE, "reason": says}
        installed.wait_for_line(system.GLOBALMANAGER, over)
        told = {"event": "no session with GlobalManager", "level": "warning"}
        installed.wait_for_line(
            LOCALCONTROLLER, {**told, "reason": f"session ended: {says} (4002)"}
        )
        _assert_patient(installed)
        installed.install(Release.THIS, Release.THIS)
        installed.wait_for_session(NEWEST)
        service.wait_for_exact_counts(service.finish())


def _is_refused(installed: VersionPair, says: str) -> bool:
    """Whether the GlobalManager shows that, and no session."""
    try:
        node = installed.node()
    except status.RestUnavailable as error:
        raise AssertionError(str(error)) from error
    assert (node["connected"], node["problem"]) == (False, says), str(node)
    return True


def _assert_patient(installed: VersionPair) -> None:
    """It waits between two attempts: three more of them, two whole waits at least."""
    started_s = time.monotonic()  # no attempt that is counted is before this
    before = installed.edge("link")["failures"]

    def check() -> bool:
        failures = installed.edge("link")["failures"]
        assert failures >= before + 3, f"{failures - before} attempts"
        return True

    eventually("further attempts", check, poll_s=0.01)
    assert time.monotonic() - started_s >= 2 * FLOOR_S


def test_a_ledger_of_a_release_too_far_ahead_is_one_line_and_exit_status_3(tmp_path: Path) -> None:
    LedgerFile(tmp_path, max_bytes=2**20, reserve_bytes=0).close()
    with contextlib.closing(sqlite3.connect(tmp_path / LEDGER)) as ledger:
        ledger.execute("PRAGMA user_version = 99")
    program = [sys.executable, "-m", "localcontroller", "--node-name", EDGE, "--state-dir"]
    process = subprocess.run(
        [*program, str(tmp_path), "--global-manager", "wss://127.0.0.1:1"],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        env={},
    )
    assert process.returncode == 3
    assert f"state directory {tmp_path}: {LEDGER} needs schema 99" in process.stderr
    assert "install the release that ran here last" in process.stderr
    assert len(process.stderr.splitlines()) == 1
