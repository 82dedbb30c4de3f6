"""Many thousands of edges at one GlobalManager, on a real API server.

    python -m tests.bench scale
    python -m tests.bench.scale PLAIN MTLS

etcd, the API server, its controller manager and scheduler, the GlobalManager and the load are
processes on one machine. The numbers are of sessions; 0 leaves the part out.
"""

import contextlib
import functools
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Empty, Queue
from typing import Any, Final

from tests.bench.cluster import AS_DEPLOYED, CRDS, SYSTEM_NAMESPACE
from tests.bench.fleet import node_name, token_of
from tests.bench.manager_memory import settled_kib
from tests.certificates import Authority
from tests.cluster import binaries
from tests.cluster.controlplane import AUDITED, ControlPlane
from tests.cluster.manager import GlobalManager

PLAIN: Final = 10_000
MTLS: Final = 2_000
IDLE_S: Final = 30.0  # two beats of each session
DEADLINE_S: Final = 300.0


class Fleet:
    """The process of the nodes: commands go in, answers come out."""

    def __init__(self, manager: GlobalManager, count: int, *certificates: str) -> None:
        host, _, port = manager.edge_address.rpartition(":")
        self.count = count
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.fleet", host, port, str(count), *certificates],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answers: Queue[dict[str, Any]] = Queue()
        threading.Thread(target=self._listen, name="fleet", daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(json.loads(line))

    def ask(self, **command: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def answer(self, key: str) -> dict[str, Any]:
        """The next answer, which has `key`."""
        try:
            answer = self._answers.get(timeout=DEADLINE_S)
        except Empty:
            self.ask(tell="late")
            told = self._answers.get(timeout=DEADLINE_S)
            raise SystemExit(f"no {key!r} of the nodes in {DEADLINE_S:g} s: {told}") from None
        assert key in answer, answer
        return answer

    def synced_at(self, count: int = 0) -> float:
        """When so many nodes were synced, all of them if 0: seconds of the monotonic clock."""
        self.ask(synced=count or self.count)
        at: float = self.answer("synced")["at"]
        return at

    def tally(self) -> dict[str, int]:
        self.ask(tell="tally")
        told: dict[str, int] = self.answer("tally")["tally"]
        return told

    def forget(self) -> None:
        self.ask(forget=True)
        self.answer("forgot")

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)


def measure(plain: int = PLAIN, mtls: int = MTLS) -> dict[str, Any]:
    """Figures of docs/performance.md, "Scale"."""
    with tempfile.TemporaryDirectory(prefix="edgeai-bench-") as name:
        directory = Path(name)
        control_plane = ControlPlane(
            binaries.obtain(), directory, users={AUDITED: "system:masters"}
        )
        try:
            control_plane.start()
            _prepare(control_plane)
            bench = _Bench(control_plane, directory)
            figures: dict[str, Any] = {"machine": machine(control_plane)}
            if plain:
                figures["plain"] = bench.plain(plain)
            if mtls:
                figures["mtls"] = bench.mtls(mtls)
            return figures
        finally:
            control_plane.stop()


def machine(control_plane: ControlPlane) -> dict[str, Any]:
    memory = re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())
    assert memory is not None
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(int(memory.group(1)) / 2**20, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "kubernetes": control_plane.client.get("/version")["gitVersion"],
        "load_average": round(os.getloadavg()[0], 1),
    }


def _prepare(control_plane: ControlPlane) -> None:
    for arguments in (("apply",), ("wait", "--for=condition=Established", "--timeout=60s")):
        done = control_plane.kubectl(*arguments, "-f", str(CRDS))
        assert done.returncode == 0, done.stderr
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}}
    control_plane.client.create(namespace)


class _Bench:
    def __init__(self, control_plane: ControlPlane, directory: Path) -> None:
        self._control_plane = control_plane
        self._directory = directory
        self._kubeconfig = directory / "manager-kubeconfig"
        control_plane.write_kubeconfig(self._kubeconfig, user=AUDITED)

    @contextlib.contextmanager
    def _manager(self, count: int, *flags: str) -> Iterator[GlobalManager]:
        manager = GlobalManager(
            kubeconfig=self._kubeconfig,
            system_namespace=SYSTEM_NAMESPACE,
            directory=self._directory,
            tokens={name: token_of(name) for name in map(node_name, range(count))},
            flags=flags,
            environment=AS_DEPLOYED,
        )
        try:
            manager.start()
            yield manager
        finally:
            manager.stop()

    def plain(self, count: int) -> dict[str, Any]:
        """Sessions without TLS: their memory, their idle cost, and how they come back."""
        with self._manager(count) as manager:
            before_kib = settled_kib(manager)
            alone = _percent_of_a_core(manager.processor_s)
            with _fleet(manager, count) as fleet:
                figures = _idle(manager, fleet, before_kib)
                figures["idle_percent_without_sessions"] = alone
                return figures | self._storm(manager, fleet)

    def mtls(self, count: int) -> dict[str, Any]:
        certificates = _Certificates(self._directory / "certificates", count)
        with self._manager(count, *certificates.flags) as manager:
            before_kib = settled_kib(manager)
            with _fleet(manager, count, *certificates.of_nodes) as fleet:
                return _idle(manager, fleet, before_kib)

    def _storm(self, manager: GlobalManager, fleet: Fleet) -> dict[str, Any]:
        """The GlobalManager is killed and started again; all nodes dial as they would."""
        fleet.forget()
        heard = len(self._control_plane.audit())
        manager.stop(signal.SIGKILL)
        launched_s = time.monotonic()
        manager.start()
        ready_s = time.monotonic()
        back_s = {f"{part} %": fleet.synced_at(fleet.count * part // 100) for part in (50, 90, 100)}
        asked = self._control_plane.audit()[heard:]
        lists = Counter(_resource(each) for each in asked if _is_first_page(each))
        return {
            "ready_after_kill_s": round(ready_s - launched_s, 1),
            "synced_after_ready_s": {k: round(at - ready_s, 1) for k, at in back_s.items()},
            "processor_s": round(manager.processor_s(), 1),
            "peak_mib": round(manager.peak_kib() / 1024, 1),
            "told": fleet.tally(),
            "resources_listed": len(lists),
            "listed_again": {resource: n for resource, n in lists.items() if n > 1},
        }


@contextlib.contextmanager
def _fleet(manager: GlobalManager, count: int, *certificates: str) -> Iterator[Fleet]:
    fleet = Fleet(manager, count, *certificates)
    try:
        yield fleet
    finally:
        fleet.stop()


def _idle(manager: GlobalManager, fleet: Fleet, before_kib: float) -> dict[str, Any]:
    began_s = time.monotonic()
    opened_s = fleet.synced_at() - began_s
    resident_kib = settled_kib(manager)
    return {
        "sessions": fleet.count,
        "opened_s": round(opened_s, 1),
        "kib_per_session": round((resident_kib - before_kib) / fleet.count, 1),
        "idle_percent_of_a_core": _percent_of_a_core(manager.processor_s),
    }


def _percent_of_a_core(processor_s: Callable[[], float]) -> float:
    spent_s, since_s = processor_s(), time.monotonic()
    time.sleep(IDLE_S)
    return round(100 * (processor_s() - spent_s) / (time.monotonic() - since_s), 1)


def _resource(event: dict[str, Any]) -> str:
    reference = event["objectRef"]
    return f"{reference['resource']}.{reference.get('apiGroup', '')}"


def _is_first_page(event: dict[str, Any]) -> bool:
    return event["verb"] == "list" and "continue=" not in event["requestURI"]


class _Certificates:
    """Of the edge port, and one for each node."""

    def __init__(self, directory: Path, count: int) -> None:
        directory.mkdir()
        authority = Authority(directory)
        server = authority.issue("edge-port", alternative="IP:127.0.0.1", usage="serverAuth")
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(functools.partial(_issue, authority), map(node_name, range(count))))
        self.of_nodes = (str(authority.certificate), str(directory))
        self.flags = (
            *("--edge-auth", "mtls", "--edge-plaintext", "refuse"),
            *("--edge-client-ca", str(authority.certificate)),
            *("--edge-tls-certificate", str(server.certificate)),
            *("--edge-tls-key", str(server.key)),
        )


def _issue(authority: Authority, node: str) -> None:
    authority.issue(node, alternative=f"DNS:{node}")


if __name__ == "__main__":
    print(json.dumps(measure(*map(int, sys.argv[1:])), indent=1))
