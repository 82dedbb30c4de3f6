"""Sessions of many edges at three replicas: how they spread, and where they go at a replica's end.

The replicas and the edges are real processes without a load balancer between them.
"""

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from globalmanager.edge.sessions.rebalancer import MIN_SLACK
from tests.bench.samples import node_name, token_of
from tests.cluster.programs import Program
from tests.globalmanager.cluster import LocalApi
from tests.support.manager import GlobalManager
from tests.support.ports import free_port
from tests.support.waiting import async_eventually

NAMES: Final = ("east", "middle", "west")
EDGES: Final = 30
MOVED_WITHIN_S: Final = 30.0


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[LocalApi]:
    async with LocalApi(tmp_path, is_installed=True) as cluster:
        yield cluster


class Replicas:
    """Three GlobalManagers that name their own URLs. None of them runs at first."""

    def __init__(self, cluster: LocalApi, directory: Path) -> None:
        self.urls: list[str] = []
        self._managers = [self._manager(cluster, directory / name) for name in NAMES]
        self._running: set[int] = set()

    def _manager(self, cluster: LocalApi, directory: Path) -> GlobalManager:
        directory.mkdir()
        address = f"127.0.0.1:{free_port()}"
        self.urls.append(f"ws://{address}")
        return GlobalManager(
            kubeconfig=cluster.kubeconfig,
            system_namespace="default",
            directory=directory,
            tokens={node: token_of(node) for node in map(node_name, range(EDGES))},
            flags=(
                *("--replica-name", directory.name, "--admissions-address-share", "1"),
                *("--edge-address", address, "--edge-url", f"ws://{address}"),
            ),
        )

    async def start(self, *numbers: int) -> None:
        for number in numbers:
            self._managers[number].launch()
            self._running.add(number)
        for number in numbers:
            wait_until_ready = self._managers[number].wait_until_ready
            await asyncio.to_thread(wait_until_ready)

    def stop(self, number: int, how: signal.Signals) -> None:
        self._running.remove(number)
        self._managers[number].stop(how)

    def stop_all(self) -> None:
        for number in tuple(self._running):
            self.stop(number, signal.SIGKILL)

    async def until_back(self) -> None:
        """Every edge has a session."""

        def look() -> bool:
            counts = self._counts()
            assert sum(counts) == EDGES, counts
            return True

        await async_eventually("all sessions", lambda: asyncio.to_thread(look))

    async def until_even(self) -> None:
        """Every edge has a session, and the running replicas have about the same number of them."""

        def look() -> bool:
            counts = self._counts()
            assert sum(counts) == EDGES, counts
            assert max(counts) <= EDGES // len(counts) + MIN_SLACK, counts
            return True

        await async_eventually("even sessions", lambda: asyncio.to_thread(look))

    def _counts(self) -> list[int]:
        return [self._sessions(number) for number in sorted(self._running)]

    def _sessions(self, number: int) -> int:
        try:
            found = self._managers[number].metric("edgeai_edge_sessions")
        except OSError as error:
            raise AssertionError(f"{NAMES[number]} does not answer: {error}") from error
        return int(found.get("", 0))


@pytest.fixture
def replicas(cluster: LocalApi, tmp_path: Path) -> Iterator[Replicas]:
    replicas = Replicas(cluster, tmp_path)
    yield replicas
    replicas.stop_all()


@contextmanager
def running_edges(directory: Path, urls: Sequence[str]) -> Iterator[None]:
    """EDGES LocalControllers. Args: urls: all that they know of their GlobalManager"""
    ports = ["0"] * EDGES  # nobody calls their worker APIs
    argv = [sys.executable, "-m", "tests.soak.edges", str(directory), ",".join(urls), *ports]
    edges = Program(argv, log=directory / "edges.log")
    edges.start()
    try:
        yield
    finally:
        edges.stop(signal.SIGKILL)


async def test_edges_that_know_one_address_spread_over_replicas_that_name_theirs(
    replicas: Replicas, tmp_path: Path
) -> None:
    """All come to the first replica. The others start later, and one of these ends."""
    await replicas.start(0)
    with running_edges(tmp_path, replicas.urls[:1]):
        await replicas.until_even()
        await replicas.start(1, 2)
        await replicas.until_even()
        replicas.stop(2, signal.SIGKILL)
        ended_s = time.monotonic()
        await replicas.until_back()
        assert time.monotonic() - ended_s <= MOVED_WITHIN_S
        await replicas.until_even()


async def test_edges_that_know_all_addresses_outlive_any_replica(
    replicas: Replicas, tmp_path: Path
) -> None:
    await replicas.start(0, 1, 2)
    with running_edges(tmp_path, replicas.urls):
        for number in (0, 1):
            await replicas.until_even()
            replicas.stop(number, signal.SIGKILL)
        ended_s = time.monotonic()
        await replicas.until_back()
        assert time.monotonic() - ended_s <= MOVED_WITHIN_S
        await replicas.until_even()
