"""Stands between the parts that answer at once and the engine that comes to be later.

Until the Kubernetes API has given the worker key there is no engine, and until it has told of the
other replicas no edge is served; /readyz must say what is missing. Built and filled by app; asked
by REST and the edge server.
"""

from collections.abc import Callable, Sequence

from common.ids import NodeName, TaskKey, Uid
from globalmanager.contract import Event, Object, WorkerReport
from globalmanager.edge.sessions.inbox import FoldAndWrite, Outcome, Retry
from globalmanager.engine.loop import Engine, Served
from globalmanager.engine.ports import Health

Reasons = list[str]
STARTING = "starting"


class Startup:
    """The engine once it has joined; before that, why it has not.

    Args:
        must_wait_for: what is not known of the other replicas yet
        complaints: what else does not work among them
    """

    def __init__(
        self,
        must_wait_for: Callable[[], Sequence[str]] = tuple,
        complaints: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        self._must_wait_for = must_wait_for
        self._complaints = complaints
        self._engine: Engine | None = None
        self._fold: FoldAndWrite | None = None
        self._problem = STARTING

    def waits_for_api(self, problem: str) -> None:
        self._problem = f"waiting for the Kubernetes API: {problem}"

    def joined(self, engine: Engine, fold: FoldAndWrite) -> None:
        self._engine, self._fold = engine, fold

    # ---- for REST ----

    def find(self, key: TaskKey) -> Served | None:
        return None if self._engine is None else self._engine.find(key)

    def list(self, plural: str, namespace: str = "") -> tuple[Object, ...]:
        return () if self._engine is None else self._engine.list(plural, namespace)

    def nodes(self) -> tuple[Object, ...]:
        return () if self._engine is None else self._engine.nodes()

    def health(self) -> Health:
        if self._engine is None:
            return Health(ready=False, reasons=(self._problem,))
        health, missing = self._engine.health(), self._must_wait_for()
        reasons = (*missing, *health.reasons, *self._complaints())
        return Health(health.ready and not missing, reasons)

    def is_populated(self) -> bool:
        return self._engine is not None and self._engine.initially_reconciled.is_set()

    # ---- for the edge server ----

    def edges_must_wait(self) -> Reasons:
        """Why no session can be served yet: what a node must hold is not known."""
        if self.is_populated() and not self._must_wait_for():
            return []
        return [*self.health().reasons] or [STARTING]

    # ---- for the elector ----

    def lead(self) -> None:
        if self._engine is not None:
            self._engine.lead()

    # ---- for the sessions ----

    def contact_changed(self, node: NodeName) -> None:
        if self._engine is not None:
            self._engine.contact_changed(node)

    async def fold_and_write(self, key: TaskKey, uid: Uid, report: WorkerReport) -> Outcome:
        if self._fold is None:
            return Retry(self._problem)
        return await self._fold(key, uid, report)

    def record_on_node(self, node: NodeName, event: Event) -> None:
        if self._engine is None:
            return
        for object_ in self._engine.nodes():
            if object_["metadata"]["name"] == node:
                self._engine.recorder.record({"apiVersion": "v1", "kind": "Node", **object_}, event)
