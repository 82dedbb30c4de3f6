"""A LocalController of the simulation, its disk, and the workers of its node."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from functools import partial
from pathlib import Path
from typing import Any, Final

from common import wire
from common.session import Timing
from common.tasks import TaskGroup
from edgeai.errors import EdgeAIError
from edgeai.ids import TaskKey, Uid, WorkerName
from localcontroller.content import ContentStore
from localcontroller.hooks.model import ModelHook
from localcontroller.ledger.attempts import ProcessMessage
from localcontroller.ledger.ledger import Ledger
from localcontroller.link.credentials import Presented
from localcontroller.link.endpoint import Addresses, Endpoint
from localcontroller.link.link import Link, default_delays
from localcontroller.metrics import Metrics
from localcontroller.workers.heartbeats import Heartbeats, watch_heartbeats
from localcontroller.workers.intake import Intake
from tests.simulation import models
from tests.simulation.disk import Disk
from tests.simulation.models import ModelServer, SimulatedSources, SimulatedThreads
from tests.simulation.network import Network
from tests.simulation.round_oracle import NAME
from tests.simulation.world import Process, VirtualTime

Rows = dict[str, list[Any]]
MODEL_KEY: Final = TaskKey("models.edgeai.io/default/hot")
TABLES: Final = ("meta", "tasks", "grants", "workers", "processes")
MAX_BYTES: Final = 4 * 1024 * 1024


class _Thread(Executor):
    """Runs the ledger's work as the one further thread of the process.

    Args: on_frozen: called when the power was cut in the middle of the work
    """

    def __init__(self, process: Process, disk: Disk, on_frozen: Callable[[], None]) -> None:
        self._process, self._disk, self._on_frozen = process, disk, on_frozen

    def submit(self, fn: Callable[..., Any], /, *args: Any, **_kwargs: Any) -> Any:
        def work() -> None:
            fn(*args)
            if self._disk.is_frozen:
                self._on_frozen()

        self._process.in_thread(work)

    def shutdown(self, *_args: Any, **_kwargs: Any) -> None: ...


class SimulatedEndpoint(Endpoint, frozen=True, kw_only=True):
    """The GlobalManager as a LocalController dials it over the network in memory."""

    network: Any
    process: Any

    async def dial(self, presented: Presented, *, subprotocol: str, opening_s: float) -> Any:
        return await self.network.dial(self.process, self.node, opening_s)


class Controller:
    """One process of one node. After a crash another Controller takes its place, on the same disk.

    Args: name: the node's name, or the name of a second machine that uses the node's name
    """

    def __init__(
        self,
        world: VirtualTime,
        name: str,
        node: str,
        disk: Disk,
        network: Network,
        server: ModelServer,
        *,
        on_frozen: Callable[[], None],
        on_frozen_content: Callable[[], None],
    ) -> None:
        self.world, self.node, self.disk = world, node, disk
        self.name = name
        self.process = Process(world, world.new_id(name))
        self.ledger: Ledger | None = None
        self.link: Link | None = None
        self.intake: Intake | None = None
        self.store: ContentStore | None = None
        self._server = server
        self._threads = SimulatedThreads(self.process, disk.content, on_frozen_content)
        self._network = network
        self._on_frozen = on_frozen
        self.process.start(self._run(disk.directory))

    async def _run(self, directory: Path) -> None:
        """As `app.run`, without the two ports, the pods and the datasets."""
        content = self.disk.content.directory
        ledger = await Ledger.open(
            directory,
            max_bytes=MAX_BYTES,
            reserve_bytes=0,
            clock=self.world,
            executor=_Thread(self.process, self.disk, self._on_frozen),
            new_id=lambda: self.world.new_id("ledger"),
        )
        metrics = Metrics()
        heartbeats = Heartbeats(silence_factor=3.0, clock=self.world)
        self.link = Link(
            SimulatedEndpoint(
                addresses=Addresses(["ws://127.0.0.1:9000"]),
                node=self.node,
                network=self._network,
                process=self.process,
            ),
            ledger,
            metrics,
            timing=Timing(),
            delays=default_delays(min_s=1.0, max_s=30.0),
            credential_check_s=3600.0,
            clock=self.world,
        )
        self.intake = Intake(ledger)
        self.ledger = ledger
        make_store = partial(
            ContentStore, content, max_bytes=models.MAX_BYTES, sync_bytes=models.SYNC_BYTES
        )
        self.store = store = await self._threads.run("", make_store)
        hook = ModelHook(ledger, store, SimulatedSources(self._server, self.node), self._threads)
        async with TaskGroup() as tasks:
            tasks.create_task(self.link.run(), name="link")
            tasks.create_task(watch_heartbeats(ledger, heartbeats), name="heartbeats")
            tasks.create_task(hook.run(), name="models")

    def kill(self, *, is_silent: bool) -> None:
        self.process.kill()
        self._network.process_died(self.process, is_silent=is_silent)

    def rows(self) -> Rows | None:
        """All rows of the ledger as they are committed; None before the ledger is open."""
        if self.ledger is None or self.ledger.file._db is None:
            return None
        db = self.ledger.file._db
        return {table: db.execute(f"SELECT * FROM {table}").fetchall() for table in TABLES}

    def close_files(self) -> None:
        """Release what a dead process would have released."""
        if self.ledger is not None:
            self.ledger.file.close()

    def granted(self) -> Iterator[tuple[Uid, WorkerName]]:
        """The workers of the tasks that the node holds, in order."""
        if self.ledger is not None:
            for grant in self.ledger.view.grants.values():
                for worker in sorted(grant.workers):
                    if worker.startswith(NAME) and not worker.endswith("-inference"):
                        continue  # these workers report what they have done
                    # Only a fleet has pods of the third name that each node has a grant for.
                    if ("-node-" in worker) == worker.startswith("fleet"):
                        yield grant.uid, worker

    def model_version(self) -> tuple[int, str] | None:
        """Version and digest of the task that the node holds of the Model that is rolled out."""
        for row in (self.rows() or {}).get("tasks", ()):
            key, _uid, version, body = row
            if key == MODEL_KEY:
                return version, wire.unpack(body, wire.AssignmentBody).spec["sha256"]
        return None

    def load(self, key: TaskKey, digest: str, on_done: Callable[[], None]) -> None:
        """A worker has loaded this version of a Model, and says so."""
        store = self.store
        assert store is not None

        async def note() -> None:
            try:
                await self._threads.run(key, partial(store.loaded, key, digest))
            except OSError:
                return
            on_done()

        self.process.start(note())

    def post(
        self, uid: Uid, worker: WorkerName, message: ProcessMessage, on_done: Callable[[], None]
    ) -> None:
        """Send a worker's message, as the worker API does after it has parsed the body."""
        intake = self.intake
        assert intake is not None

        async def record() -> None:
            try:
                await intake.record(uid, worker, message)
            except EdgeAIError:
                return  # the worker gets an error and knows nothing
            on_done()

        self.process.start(record())
