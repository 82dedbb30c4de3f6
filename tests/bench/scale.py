"""Many thousands of edges at one GlobalManager, on a real API server.

    python -m tests.bench scale
    python -m tests.bench.scale PLAIN MTLS BUSY STATUSES

etcd, the API server, its controller manager and scheduler, the GlobalManager and the load are
processes on one machine. PLAIN, MTLS and BUSY are numbers of sessions: idle ones without TLS and
with client certificates, and those of nodes that get jobs. STATUSES of the jobs are reported ten
times a second. 0 leaves a part out.
"""

import contextlib
import functools
import itertools
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
from http import HTTPStatus
from pathlib import Path
from queue import Empty, Queue
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from tests.bench.cluster import AS_DEPLOYED, SYSTEM_NAMESPACE, admin, assignments, prepare
from tests.bench.edges import node_name, token_of
from tests.bench.manager_memory import settled_kib
from tests.bench.spread import spread
from tests.certificates import Authority
from tests.cluster import binaries
from tests.cluster.controlplane import AUDITED, ControlPlane
from tests.cluster.edge import Edge
from tests.cluster.manager import GlobalManager
from tests.waiting import eventually

PLAIN: Final = 10_000
MTLS: Final = 2_000
BUSY: Final = 2_000
STATUSES: Final = 1_000
REPORTING_S: Final = 30.0
REPORT_EVERY_S: Final = 0.1
ENDING: Final = 100  # workers that end while all report
VISIBLE_S: Final = 20.0  # the watch goes on so long after the last report
IDLE_S: Final = 30.0  # two beats of each session
CALM_S: Final = 5.0
DEADLINE_S: Final = 300.0


class Fleet:
    """The process of the nodes: commands go in, answers come out."""

    def __init__(self, manager: GlobalManager, count: int, *certificates: str) -> None:
        host, _, port = manager.edge_address.rpartition(":")
        self.count = count
        self.assigned: dict[str, float] = {}  # uid -> time of its assignment
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
            answer: dict[str, Any] = json.loads(line)
            if "assigned" in answer:
                self.assigned[answer["assigned"]] = answer["at"]
            else:
                self._answers.put(answer)

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


def measure(
    plain: int = PLAIN, mtls: int = MTLS, busy: int = BUSY, statuses: int = STATUSES
) -> dict[str, Any]:
    """Figures of docs/performance.md, "Scale"."""
    with tempfile.TemporaryDirectory(prefix="edgeai-bench-") as name:
        directory = Path(name)
        control_plane = ControlPlane(
            binaries.obtain(), directory, users={AUDITED: "system:masters"}
        )
        try:
            control_plane.start()
            prepare(control_plane, nodes=busy)
            bench = _Bench(control_plane, directory)
            figures: dict[str, Any] = {"machine": machine(control_plane)}
            if plain:
                figures["plain"] = bench.plain(plain)
            if mtls:
                figures["mtls"] = bench.mtls(mtls)
            figures["localcontroller"] = bench.localcontroller()
            if busy:
                figures |= bench.busy(busy, min(statuses, busy))
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

    def localcontroller(self) -> dict[str, Any]:
        """A LocalController with a session and without tasks."""
        node, directory = node_name(0), self._directory / "localcontroller"
        directory.mkdir()
        with self._manager(1) as manager:
            port = int(manager.edge_address.rpartition(":")[2])
            edge = Edge(node, token=token_of(node), port=port, directory=directory)
            edge.start()
            try:
                eventually("a session", lambda: edge.link().get("connected"))
                return {
                    "idle_percent_of_a_core": _percent_of_a_core(edge.processor_s),
                    "resident_mib": round(edge.resident_kib() / 1024, 1),
                }
            finally:
                edge.stop()

    def busy(self, count: int, statuses: int) -> dict[str, Any]:
        """Jobs for the nodes, 50 a second, and then reports about some of them."""
        with self._manager(count) as manager, _fleet(manager, count) as fleet:
            fleet.synced_at()
            figures: dict[str, Any] = {
                "jobs": {
                    "sessions": count,
                    **assignments(
                        *(self._control_plane, fleet.assigned, self._directory),
                        objects=count,
                        nodes=count,
                    ),
                }
            }
            if statuses:
                _wait_until_calm(manager)
                figures["statuses"] = self._statuses(manager, fleet, statuses)
            return figures

    def _statuses(self, manager: GlobalManager, fleet: Fleet, count: int) -> dict[str, Any]:
        """How old the values in the API are while `count` nodes report ten times a second."""
        watcher = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.bench.status_watcher"),
                *admin(self._control_plane, self._directory),
                str(REPORTING_S + VISIBLE_S),
            ],
            stdout=subprocess.PIPE,
        )
        fleet.forget()
        heard, spent_s = len(self._control_plane.audit()), manager.processor_s()
        fleet.ask(
            reporting=REPORTING_S, every=REPORT_EVERY_S, of=count, ending=min(ENDING, count // 2)
        )
        told = fleet.answer("began")
        writes = [e for e in self._control_plane.audit()[heard:] if _is_status_write(e)]
        processor_s = manager.processor_s() - spent_s
        tally = fleet.tally()
        seen, _ = watcher.communicate(timeout=DEADLINE_S)
        assert watcher.returncode == 0, "the watch of the statuses has ended"
        writes_of = Counter(each["objectRef"]["name"] for each in writes)
        return {
            "jobs": count,
            "seconds": REPORTING_S,
            "reported": tally["reported"],
            "acknowledged": tally["acknowledged"],
            "load_late_s": round(told["late"], 2),
            **_ages(json.loads(seen), told),
            "writes_per_s": round(len(writes) / REPORTING_S, 1),
            "writes_per_s_of_a_job": round(max(writes_of.values()) / REPORTING_S, 2),
            "manager_processor_percent": round(100 * processor_s / REPORTING_S),
        }

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
        lists = Counter(_selection(each) for each in asked if _is_first_page(each))
        return {
            "ready_after_kill_s": round(ready_s - launched_s, 1),
            "synced_after_ready_s": {k: round(at - ready_s, 1) for k, at in back_s.items()},
            "processor_s": round(manager.processor_s(), 1),
            "peak_mib": round(manager.peak_kib() / 1024, 1),
            "told": fleet.tally(),
            "lists": lists.total(),
            "listed_again": {selection: n for selection, n in lists.items() if n > 1},
        }


def _ages(seen: dict[str, list[list[Any]]], told: dict[str, Any]) -> dict[str, Any]:
    """How old each value is when the next one takes its place, and when the ends are visible."""
    began_s, last_s = told["began"], told["began"] + REPORTING_S
    oldest, ends = [], []
    for uid in told["of"]:
        values = seen.get(uid) or [[last_s, -1, False]]
        ended_s = told["ended"].get(uid)
        if values[-1][0] < last_s:  # nothing took the place of this value in time
            values.append([last_s, -1, False])
        ages = [
            min(later, last_s) - (began_s + value * REPORT_EVERY_S)
            for (_, value, is_ended), (later, _, _) in itertools.pairwise(values)
            if value >= 0 and not is_ended
        ]
        ages.append(values[0][0] - began_s)  # until there was a value at all
        if ended_s is None:
            oldest.append(max(ages))
        if ended_s is not None:
            at = next((at for at, _, is_ended in values if is_ended), None)
            ends.append(VISIBLE_S if at is None else at - ended_s)
    return {
        "jobs_without_value": len(set(told["of"]) - seen.keys()),
        "oldest_value_s": spread(oldest),
        "end_visible_s": spread(ends),
    }


def _is_status_write(event: dict[str, Any]) -> bool:
    reference = event.get("objectRef", {})
    return event["verb"] in ("patch", "update") and reference.get("subresource") == "status"


def _wait_until_calm(manager: GlobalManager) -> None:
    """Until the work about the jobs is done."""
    end_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < end_s:
        spent_s = manager.processor_s()
        time.sleep(CALM_S)
        if manager.processor_s() - spent_s < CALM_S / 10:
            return
    raise SystemExit(f"the GlobalManager has work for more than {DEADLINE_S:g} s")


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


def _selection(event: dict[str, Any]) -> str:
    """What was listed: the path, and the selectors of the query."""
    url = urlsplit(event["requestURI"])
    selectors = {k: v for k, v in parse_qs(url.query).items() if k.endswith("Selector")}
    return f"{url.path} {selectors or ''}"


def _is_first_page(event: dict[str, Any]) -> bool:
    """Of a list that was answered: a type that the server lacks is asked for again and again."""
    return (
        event["verb"] == "list"
        and "continue=" not in event["requestURI"]
        and event["responseStatus"]["code"] == HTTPStatus.OK
    )


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
