"""What edgeai promises, checked against what a run shows.

- I1: when faults are over, each node holds exactly what the API binds to it
- I2: a node never goes back to an older version of a task
- I3: every acknowledged report takes effect exactly once
- I4: a status never goes back, and an end is final
- I5: what is acknowledged survives a kill and a power cut, on both sides
- I6: no worker is created twice
- I7: none is left behind
- I8: one session of a node, and one leader, take effect
- I9: a node changes only what is bound to it
- I10: queues, outbox and sessions are bounded under any input
- I11: nothing is done only because contact was lost
- I12: when nothing changes, nothing is written
- I13: a job says within the grace time that contact was lost
- I14: any schedule of crashes ends where one without crashes ends

The oracle sees both ends of every connection, every write of the API and the ledgers after every
step. It has its own idea of what is true: what workers have sent, what was acknowledged, what the
API binds to a node. Promises about each moment are checked after each step, the other ones when all
faults are over and the run has become quiet.
"""

import zlib
from collections import defaultdict
from collections.abc import Iterable
from typing import Any, Final, NoReturn

from common import wire
from edgeai.api import slices
from edgeai.ids import TaskKey
from globalmanager.ha.elector import LEASES
from localcontroller.ledger.tables import NO_TASK, LedgerView
from tests.simulation import bounds
from tests.simulation.api import Api, Key, Object, labels_of
from tests.simulation.claims import PublishedClaims
from tests.simulation.cloud import SimulatedManager
from tests.simulation.edge import MODEL_KEY, Controller, Rows
from tests.simulation.model_oracle import MODELS, ModelOracle
from tests.simulation.network import Connection
from tests.simulation.round_oracle import NAME, ROUNDS, RoundOracle, is_of_round
from tests.simulation.world import BrokenInvariant, Process, VirtualTime

LABEL: Final = "camera"
"""The nodes with this label are those of each fleet."""
ROLLED_FLEET: Final = "fleet2"
HOT_MODEL: Final = "hot"
SERVICES: Final = "jointinferenceservices.edgeai.io"
LEARNING: Final = "federatedlearningjobs.edgeai.io"
DATASETS: Final = "datasets.edgeai.io"
ON_EDGES: Final = (SERVICES, LEARNING, ROUNDS, DATASETS, MODELS)  # what nodes hold tasks of
_ENDS: Final = ("Complete", "Failed")  # conditions after which a job never changes its mind
EVIL: Final = "evil"  # phase in reports of a node for what is not bound to it
_ELSEWHERE: Final = "countedElsewhere"
_HEARTBEATS: Final = (str(LEASES), "configmaps", "events")

CloudFrame = wire.Assign | wire.Withdraw | wire.Synced
WorkerId = tuple[str, str, str]
"""(ledger id, uid, worker)"""


class Truth:
    """What the workers of one run have sent, and what a LocalController has confirmed to them."""

    def __init__(self) -> None:
        self.sent: dict[WorkerId, dict[str, int]] = defaultdict(dict)  # process -> highest count
        self.confirmed: dict[WorkerId, dict[str, int]] = defaultdict(dict)

    def most(self, worker: WorkerId) -> int:
        return sum(self.sent[worker].values())

    def least(self, worker: WorkerId) -> int:
        return sum(self.confirmed[worker].values())


class _Received:
    """The frames that one end has received on one connection."""

    def __init__(self) -> None:
        self.by_seq: dict[int, tuple[int, Any]] = {}  # seq -> (order at this process, frame)
        self.ledger_id = ""
        self.epoch = 0  # of the Welcome; 0: none has come


class Oracle:
    def __init__(self, world: VirtualTime, api: Api, models: ModelOracle) -> None:
        self.world, self.api = world, api
        self._claims = PublishedClaims(world, api)
        self.models, self.rounds = models, RoundOracle()
        self.truth = Truth()
        self.managers: list[SimulatedManager] = []
        self.controllers: list[Controller] = []
        self.bound: dict[str, set[str]] = defaultdict(set)  # uid -> nodes that it was ever bound to
        self._views: dict[Controller, LedgerView] = {}
        self._turns: dict[Process, int] = {}  # when it was looked at last
        self._syncs: dict[Controller, int] = {}  # of its disk, when it was looked at last
        self._machines: dict[str, str] = {}  # ledger id -> the machine that had or has the ledger
        self._epochs: dict[str, int] = {}  # ledger id -> highest epoch of its sessions
        self._frames: dict[Controller, list[CloudFrame]] = defaultdict(list)
        self._rows: dict[str, list[Rows]] = {}  # controller -> states that a restart may find
        self._newest: dict[tuple[Process, str], Connection] = {}  # the open session of a node
        self._contents: dict[tuple[str, int], str] = {}  # (uid, version of a Model) -> its digest
        self._promoted: dict[str, set[int]] = defaultdict(set)  # node -> versions meant for it
        self._specs: dict[tuple[str, int], Object] = {}  # (uid, generation) -> spec of a job
        self._broken = ""  # the first broken promise
        api.on_write = self._on_write

    def fail(self, promise: str, text: str) -> NoReturn:
        # The shipped code may catch the exception, where it sends the frame that is wrong.
        self._broken = self._broken or f"{promise}: {text}"
        raise BrokenInvariant(self._broken)

    # ---- after each step ------------------------------------------------------------------------

    def check(self) -> None:
        if self._broken:
            raise BrokenInvariant(self._broken)
        leaders = 0
        for manager in self.managers:
            if manager.core is not None and manager.process.is_alive:
                leaders += manager.core.fence.is_open
                if self._has_run(manager.process):
                    self._check_manager(manager)
        if leaders > 1:
            self.fail("I8", f"{leaders} replicas lead")
        for controller in self.controllers:
            if self._has_run(controller.process):
                self._check_controller(controller)

    def _check_controller(self, controller: Controller) -> None:
        ledger = controller.ledger
        if ledger is not None and ledger.view is not self._views.get(controller):
            before = self._views.get(controller)
            self._views[controller] = ledger.view
            self._machines[ledger.view.ledger_id] = controller.name
            if before is None:
                self._check_survived(controller)
            else:
                self._check_view(controller, before, ledger.view)
        syncs = controller.disk.syncs
        has_written = syncs != self._syncs.get(controller)
        self._syncs[controller] = syncs
        for problem in bounds.beyond_at_edge(controller, has_written=has_written):
            self.fail("I10", f"{controller.process.name}: {problem}")
        if problem := self.models.problem(controller):
            self.fail("content", problem)
        if controller.process.problems:
            self.fail("bug", f"{controller.process.name}: {controller.process.problems}")

    def _has_run(self, process: Process) -> bool:
        """Since the last call. Only its own code breaks the promises that hold at each moment."""
        before, self._turns[process] = self._turns.get(process), process.turns
        return before != process.turns

    def _check_manager(self, manager: SimulatedManager) -> None:
        if manager.process.problems:
            self.fail("bug", f"{manager.process.name}: {manager.process.problems}")
        assert manager.core is not None
        for problem in bounds.beyond(manager.core, manager.process):
            self.fail("I10", f"{manager.process.name}: {problem}")
        if problem := self._claims.problem(manager):
            self.fail("I13", problem)

    def _check_view(self, controller: Controller, old: LedgerView, new: LedgerView) -> None:
        name = controller.process.name
        self._check_model(controller, new)
        for key, held in old.task_versions.items():
            now = new.task_versions.get(key)
            if now is not None and now.uid == held.uid:
                if now.version < held.version:
                    self.fail("I2", f"{name} went back from {held} to {now} of {key}")
            elif old.ledger_id == new.ledger_id and not self._may_drop(controller, key, held.uid):
                self.fail("I11", f"{name} dropped {key} {held}, and no frame asked for that")
        if new.epoch < old.epoch and old.ledger_id == new.ledger_id:
            self.fail("I8", f"{name} went back from epoch {old.epoch} to {new.epoch}")

    def _check_model(self, controller: Controller, view: LedgerView) -> None:
        """A node has no version that a stored decision has not given to it, and a version never
        means two contents.
        """
        held = view.task_versions.get(MODEL_KEY)
        content = controller.model_version() if held else None
        if held is None or content is None:
            return
        version, digest = content
        if self._contents.setdefault((held.uid, version), digest) != digest:
            self.fail("I2", f"version {version} of the Model has two contents")
        if version not in self._promoted[controller.node]:
            allowed = sorted(self._promoted[controller.node])
            self.fail("I9", f"{controller.node} has version {version}, and was given {allowed}")

    def rollout(self) -> Object:
        """The decisions about the rolled fleet."""
        fleets = (each for key, each in self.api.of(SERVICES) if key.name == ROLLED_FLEET)
        return next(((each.get("status") or {}).get("rollout") or {} for each in fleets), {})

    def version_for(self, node: str) -> int:
        """The version of the Model that the decisions give to a node."""
        state = self.rollout()
        if not state:  # the first version waits for no decision
            models = [each for key, each in self.api.of(MODELS) if key.name == HOT_MODEL]
            returns = (models[0].get("status") or {}).get("returns", 0)
            return int(models[0]["metadata"]["generation"] + returns)
        version, previous = (
            state["version"]["number"],
            (state.get("previous") or {}).get("number", 0),
        )
        place = zlib.crc32(f"{version}/{node}".encode()) // 2
        is_reached = place <= state.get("reach", -1)
        gets_newest = state["phase"] == "Complete" or (
            is_reached and state["phase"] in ("Progressing", "Paused")
        )
        return int(version if gets_newest else previous)

    def _note_decision(self, key: Key) -> None:
        is_there = any(key.name == HOT_MODEL for key, _ in self.api.of(MODELS))
        if key.resource in (SERVICES, MODELS) and is_there:
            for node in [each.name for each, _ in self.api.of("nodes")]:
                self._promoted[node].add(self.version_for(node))

    def check_rollout(self, controllers: Iterable[Controller]) -> None:
        """Every node has what was decided for it, and the rollout has come to an end."""
        state = self.rollout()
        members = [each for each in controllers if self.is_of_rolled_fleet(each.node)]
        # Without any node in contact nothing goes out.
        if members and state and state["phase"] not in ("Complete", "RolledBack"):
            self.fail("I14", f"the rollout does not end: {state}")
        for controller in members:
            content, wanted = controller.model_version(), self.version_for(controller.node)
            if content is None or content[0] != wanted:
                self.fail("I1", f"{controller.name} has {content} of the Model, not {wanted}")

    def is_of_rolled_fleet(self, node: str) -> bool:
        return any(
            key.name == ROLLED_FLEET and node in self.nodes_of(key, each)
            for key, each in self.api.of(SERVICES)
        )

    def _may_drop(self, controller: Controller, key: TaskKey, uid: str) -> bool:
        for frame in self._frames[controller]:
            match frame:
                case wire.Assign() if frame.key == key and frame.uid != uid:
                    return True
                case wire.Withdraw() if (frame.key, frame.uid) == (key, uid):
                    return True
                case wire.Synced() if key not in frame.keys:
                    return True
        return False

    # ---- frames ---------------------------------------------------------------------------------

    def watch(self, connection: Connection, controller: Controller) -> None:
        """Look at every frame of a new connection."""
        at_edge, at_cloud = _Received(), _Received()
        edge, cloud = connection.edge_end, connection.cloud_end
        edge.on_message = lambda data: self._edge_sends(controller, at_edge, data)
        cloud.on_message = lambda data: self._cloud_sends(connection, at_cloud, data)
        edge.on_arrival = lambda data: self._edge_receives(controller, at_edge, data)
        cloud.on_arrival = lambda data: self._cloud_receives(connection, at_cloud, data)

    def _edge_receives(self, controller: Controller, at_edge: _Received, data: bytes) -> None:
        frame = wire.decode(data)
        frames = self._frames[controller]
        match frame:
            case wire.Welcome():
                at_edge.epoch = frame.epoch
            case wire.Assign() | wire.Withdraw() | wire.Synced():
                at_edge.by_seq[frame.seq] = (len(frames), frame)
                frames.append(frame)

    def _edge_sends(self, controller: Controller, at_edge: _Received, data: bytes) -> None:
        frame = wire.decode(data)
        assert controller.ledger is not None
        view = controller.ledger.view
        if isinstance(frame, wire.Hello):
            if dict(frame.tasks) != view.task_versions:
                self.fail("I1", f"{controller.name} says that it holds {frame.tasks}")
            return
        known = self._epochs.get(view.ledger_id, 0)
        if at_edge.epoch < known:
            self.fail("I8", f"{controller.name} speaks with epoch {at_edge.epoch} after {known}")
        self._epochs[view.ledger_id] = at_edge.epoch
        if isinstance(frame, wire.Ack) and not frame.refused and frame.seq in at_edge.by_seq:
            self._check_committed(controller, view, *at_edge.by_seq[frame.seq])

    def _check_committed(
        self, controller: Controller, view: LedgerView, order: int, frame: CloudFrame
    ) -> None:
        """The edge acknowledges a frame: its ledger must have it, or a later frame's effect."""
        later = self._frames[controller][order + 1 :]
        if isinstance(frame, wire.Assign | wire.Withdraw):
            if any(isinstance(each, wire.Synced) or each.key == frame.key for each in later):
                return
            held = view.task_versions.get(frame.key)
            if isinstance(frame, wire.Withdraw):
                is_done = held is None or held.uid != frame.uid
            else:
                is_done = (
                    held is not None and held.uid == frame.uid and (held.version >= frame.version)
                )
        elif isinstance(frame, wire.Synced) and not later:
            is_done = view.task_versions.keys() <= set(frame.keys)
        else:
            return
        if not is_done:
            self.fail("I5", f"{controller.name} acknowledges {frame!r:.200} before its commit")

    def _cloud_receives(self, connection: Connection, at_cloud: _Received, data: bytes) -> None:
        frame = wire.decode(data)
        if isinstance(frame, wire.Hello):
            at_cloud.ledger_id = frame.instance
        elif isinstance(frame, wire.Report):
            at_cloud.by_seq[frame.seq] = (0, frame)
            connection.newest_report = frame

    def _cloud_sends(self, connection: Connection, at_cloud: _Received, data: bytes) -> None:
        frame = wire.decode(data)
        place = (connection.cloud_end.process, connection.node)
        if isinstance(frame, wire.Welcome):
            self._newest[place] = connection
        elif self._newest.get(place) is not connection:
            self.fail("I8", f"an older session of {connection.node} sends {frame!r:.100}")
        if not isinstance(frame, wire.Ack) or frame.refused or frame.seq not in at_cloud.by_seq:
            return
        report = at_cloud.by_seq[frame.seq][1]
        assert isinstance(report, wire.Report)
        job = self.job(report.uid)
        if job is None:
            return
        entry = self.entries(job).get(report.worker)
        if entry is None and self.is_former_reader(job, connection.node):
            return
        if entry is None:
            self.fail("I3", f"report of {report.worker} acknowledged, and the API has none")
        if entry["instance"] != at_cloud.ledger_id or entry["attempt"] > report.attempt:
            return
        body = wire.unpack(report.body, wire.ReportBody)
        is_newer = entry["status"] in wire.TERMINAL or entry.get("revision", 0) > report.revision
        is_same = entry["status"] == body.status and seen_of(entry) >= body.task_info.get("seen", 0)
        if entry["attempt"] < report.attempt or not (is_newer or is_same):
            self.fail("I3", f"{report.worker} acknowledged {body}, and the API has {entry}")

    def job(self, uid: str) -> Object | None:
        for key, object_ in self.api.objects.items():
            if object_["metadata"]["uid"] == uid and key.resource in ON_EDGES:
                return object_
        return None

    def entries(self, job: Object | None) -> Object:
        """Worker -> its entry, in .status and in the slices of the job."""
        entries = dict(((job or {}).get("status") or {}).get("workers") or {})
        for _, config_map in self._children("configmaps", job):
            if not is_slice(config_map):
                continue
            entries |= slices.part_of(config_map)["workers"]
        return entries

    def is_former_reader(self, job: Object, node: str) -> bool:
        """Whether the job is a Model that workers of the node load no more: its entry has gone."""
        key = next(key for key, each in self.api.objects.items() if each is job)
        return key.resource == MODELS and node not in self.nodes_of(key, job)

    def _children(self, resource: str, job: Object | None) -> list[tuple[Key, Object]]:
        uid = job["metadata"]["uid"] if job else None
        return [(key, each) for key, each in self.api.of(resource) if owner_of(each) == uid]

    def nodes_of(self, key: Key, job: Object) -> set[str]:
        """The nodes that the spec of a job binds it to; of a Model, those of the services that load
        it hot.
        """
        if key.resource == MODELS:
            readers = [
                (of, each) for of, each in self.api.of(SERVICES) if hot_model(each) == key.name
            ]
            return {node for of, each in readers for node in self.nodes_of(of, each)}
        if not is_fleet(job):
            return nodes_of(key, job)
        return {node.name for node, each in self.api.of("nodes") if LABEL in labels_of(each)}

    # ---- writes of the API ----------------------------------------------------------------------

    def _on_write(self, what: str, key: Key, old: Object | None, new: Object | None) -> None:
        if key.resource not in _HEARTBEATS:
            self.world.note(f"api {self.api.client or 'user'} {what} {key.resource} {key.name}")
        self._note_rounds(key, new)
        if new is not None and key.resource in ON_EDGES:
            uid = new["metadata"]["uid"]
            self._specs[uid, new["metadata"]["generation"]] = new["spec"]
            nodes = self.nodes_of(key, new)
            self.bound[uid] |= nodes
            if old is not None and old["metadata"]["uid"] == uid:
                statuses = old.get("status") or {}, new.get("status") or {}
                self._check_status(key, *statuses, uid, nodes)
        self._note_decision(key)
        if key.resource in ("nodes", SERVICES):
            for other, each in (*self.api.of(SERVICES), *self.api.of(MODELS)):
                self.bound[each["metadata"]["uid"]] |= self.nodes_of(other, each)
        if key.resource == MODELS and new is not None:
            self.models.published(new)
        if key.resource == "configmaps" and old and new and is_slice(new):
            parts = slices.part_of(old), slices.part_of(new)
            self._check_entries(key, *parts, owner_of(new), set())
        if what == "ADDED" and key.resource == "deployments.apps" and new is not None:
            self._check_only_child(new)
        if what == "ADDED" and key.resource == "pods" and new is not None:
            self._check_new_pod(key, new)

    def _note_rounds(self, key: Key, new: Object | None) -> None:
        if new is None:
            return
        if is_of_round(key):
            self.rounds.note_pod(key.name, owner_of(new), new, self.world.now)
        elif key.resource == DATASETS and key.name == NAME:
            self.rounds.note_samples((new.get("status") or {}).get("numberOfSamples", 0))

    def _check_status(
        self, key: Key, old: Object, new: Object, uid: str, present: set[str]
    ) -> None:
        """Args: present: the nodes that the spec binds the job to at the time of the write"""
        if new.get("observedGeneration", 0) < old.get("observedGeneration", 0):
            self.fail("I4", f"observedGeneration of {key.name} went back")
        spec = self._specs.get((uid, new.get("observedGeneration", 0)))  # of the plan
        if key.resource == ROUNDS and spec:
            problem = self.rounds.problem_of_status(uid, spec, old, new, self.world.now)
            if problem:
                self.fail("I6", problem)
        if key.name == ROLLED_FLEET and spec and (problem := _problem_of_pause(spec, old, new)):
            self.fail("rollout", problem)
        if not ends_of(old) <= ends_of(new):
            self.fail("I4", f"{key.name} had ended as {ends_of(old)}, and is {ends_of(new)}")
        self._check_entries(key, old, new, uid, present)

    def _check_entries(
        self, key: Key, old: Object, new: Object, uid: str, present: set[str]
    ) -> None:
        """As `_check_status`, for .status or a slice."""
        before = old.get("workers") or {}
        for worker, entry in (new.get("workers") or {}).items():
            known = before.get(worker)
            if entry == known:
                continue
            if not {"node", "instance", "attempt"} <= entry.keys():
                self.fail("I4", f"{worker} of {key.name} had {known}, and has {entry}")
            if entry.get("phase") == EVIL:
                self.fail("I9", f"{entry['node']} reports {worker} of {key.name}, not bound to it")
            if entry["node"] not in self.bound[uid]:
                self.fail("I9", f"{worker} of {key.name} is reported by {entry['node']}")
            if known is not None:
                self._check_entry(key, worker, known, entry)
                if known["node"] in present and entry["node"] not in present:
                    text = f"{entry['node']} takes {worker} of {key.name} back from {known['node']}"
                    self.fail("I4", text)
            most = self.truth.most((entry["instance"], uid, worker))
            if seen_of(entry) > most + count_of(entry.get("countedBefore")):
                self.fail("I3", f"{worker} of {key.name} has {seen_of(entry)}, of {most} sent")

    def _check_entry(self, key: Key, worker: str, old: Object, new: Object) -> None:
        name, ledger, newer = f"{worker} of {key.name}", new["instance"], old["instance"]
        if new["node"] != old["node"]:
            return
        if ledger != newer:
            # The number in the id of a ledger grows.
            if ledger < newer and self._machines[ledger] == self._machines[newer]:
                self.fail("I4", f"{ledger}, which {new['node']} has lost, reports {name} again")
            return
        if new["attempt"] < old["attempt"]:
            self.fail("I4", f"attempt of {name}: {new['attempt']} after {old['attempt']}")
        own = {**new, _ELSEWHERE: old.get(_ELSEWHERE)}  # a former node may still count
        is_same = own == {**old, _ELSEWHERE: old.get(_ELSEWHERE)}
        if new["attempt"] == old["attempt"] and old["status"] in wire.TERMINAL and not is_same:
            self.fail("I4", f"{name} had ended as {old}, and is now {new}")
        if seen_of(new) < seen_of(old):
            self.fail("I4", f"count of {name} fell from {seen_of(old)} to {seen_of(new)}")

    def _check_new_pod(self, key: Key, pod: Object) -> None:
        """A worker that has succeeded never runs again, and no worker begins after the end."""
        job = self.job(owner_of(pod))
        status = (job or {}).get("status") or {}
        if problem := self.rounds.problem_of_pod(key.name, owner_of(pod), status):
            self.fail("I6", problem)
        if key.name in (status.get("finished") or ()):
            self.fail("I6", f"{key.name} is made again after its success")
        if ends_of(status):
            self.fail("I6", f"{key.name} is made after the end of its job: {ends_of(status)}")

    def _check_only_child(self, new: Object) -> None:
        owner, role = owner_of(new), role_of(new)
        same = [
            each.name
            for each, object_ in self.api.of("deployments.apps")
            if (owner_of(object_), role_of(object_)) == (owner, role)
        ]
        if len(same) > 1:
            self.fail("I6", f"{owner} has two Deployments for {role}: {same}")

    # ---- ledgers after a restart ----------------------------------------------------------------

    def forget_rows(self, name: str) -> None:
        self._rows.pop(name, None)

    def note_rows(self, controller: Controller) -> None:
        """What is committed now is one of the states that a restart may find."""
        rows = controller.rows()
        if rows is not None:
            self._rows.setdefault(controller.name, []).append(rows)

    def _check_survived(self, controller: Controller) -> None:
        """A process has come back on the same disk: what was committed is there."""
        allowed, found = self._rows.pop(controller.name, []), controller.rows()
        if allowed and found not in allowed:
            self.fail("I5", f"{controller.name} had {allowed}, and has {found} after its restart")

    def check_totals(self, controller: Controller, totals: Iterable[tuple[str, str, int]]) -> None:
        assert controller.ledger is not None
        ledger_id = controller.ledger.view.ledger_id
        for uid, worker, seen in totals:
            known = (ledger_id, uid, worker)
            if not self.truth.least(known) <= seen <= self.truth.most(known):
                least, most = self.truth.least(known), self.truth.most(known)
                self.fail("I5", f"{worker} at {controller.name}: {seen}, not in {least}..{most}")

    # ---- at quiescence --------------------------------------------------------------------------

    def check_ledgers(self) -> None:
        for controller in self.controllers:
            for problem in bounds.beyond_in_ledger(controller):
                self.fail("I10", f"{controller.process.name}: {problem}")

    def expected(self, node: str) -> dict[str, wire.TaskVersion]:
        models = {
            f"{key.resource}/{key.namespace}/{key.name}": wire.TaskVersion(
                each["metadata"]["uid"], self.version_for(node)
            )
            for key, each in self.api.of(MODELS)
            if key.name == HOT_MODEL and self.is_of_rolled_fleet(node)
        }
        return models | {
            f"{key.resource}/{key.namespace}/{key.name}": wire.TaskVersion(
                each["metadata"]["uid"], each["metadata"]["generation"]
            )
            for key, each in self.api.objects.items()
            if key.resource in ON_EDGES and node in self.nodes_of(key, each)
            if (key.resource, key.name) != (MODELS, HOT_MODEL)
        }

    def check_converged(self, controller: Controller) -> None:
        assert controller.ledger is not None
        held, expected = controller.ledger.view.task_versions, self.expected(controller.node)
        if held != expected:
            self.fail("I1", f"{controller.name} holds {held}, and not {expected}")

    def check_models(self, controllers: Iterable[Controller]) -> None:
        """Each node has the newest content of the Models that its workers load hot, and says so."""
        controllers = list(controllers)
        models = dict(self.api.of(MODELS))
        readers = {key: self.nodes_of(key, each) for key, each in models.items()}
        for controller in controllers:
            newest = {
                TaskKey(f"{key.resource}/{key.namespace}/{key.name}"): (
                    # What was decided for the node is the oracle of rollouts to check.
                    controller.model_version()
                    if key.name == HOT_MODEL
                    else self.models.newest(models[key])
                )
                for key, nodes in readers.items()
                if controller.node in nodes
            }
            if problem := self.models.problem_at_end(controller, newest):
                self.fail("content", problem)
        alive = {controller.node for controller in controllers}
        for key, nodes in readers.items():
            status = models[key].get("status") or {}
            told = (status.get("nodes") or 0, status.get("readyNodes") or 0)
            if told != (len(nodes), len(nodes & alive)):
                self.fail("content", f"{key.name} says {told}, and {nodes} have its content")

    def check_children(self) -> None:
        living = {each["metadata"]["uid"] for each in self.api.objects.values()}
        roles: dict[str, set[str]] = defaultdict(set)
        for key, object_ in self.api.of("deployments.apps"):
            owner = owner_of(object_)
            if owner not in living:
                self.fail("I7", f"{key.name} outlives its job")
            roles[owner].add(role_of(object_))
        for key, object_ in self.api.of(SERVICES):
            found = roles[object_["metadata"]["uid"]]
            if found != ({"cloud"} if is_fleet(object_) else {"edge", "cloud"}):
                self.fail("I7", f"{key.name} has Deployments for {found}")
            status = object_.get("status") or {}
            if status.get("observedGeneration") != object_["metadata"]["generation"]:
                self.fail("I14", f"{key.name} is not observed: {status.get('observedGeneration')}")

    def check_pods(self) -> None:
        """Each job that has not ended has a pod for each worker that is not done, and no other."""
        for key, job in self.api.of(SERVICES):
            found = {pod.name for pod, _ in self._children("pods", job)}
            nodes = self.nodes_of(key, job) if is_fleet(job) else ()
            if found != {f"{key.name}-node-{node}" for node in nodes}:
                self.fail("I7", f"{key.name} has pods {sorted(found)}, and belongs on {nodes}")
        for key, job in self.api.of(LEARNING):
            status = job.get("status") or {}
            uid = job["metadata"]["uid"]
            pods = {
                name.name: (each.get("status") or {}).get("phase", "Pending")
                for name, each in self.api.of("pods")
                if owner_of(each) == uid
            }
            trainers = range(len(job["spec"]["trainingWorkers"]))
            workers = {
                f"{key.name}-aggregation",
                *(f"{key.name}-train-{each}" for each in trainers),
            }
            done = set(status.get("finished") or ())
            if not pods.keys() <= workers:
                self.fail("I7", f"{key.name} has pods {sorted(pods)}, of workers {sorted(workers)}")
            alive = {name for name, phase in pods.items() if phase in ("Pending", "Running")}
            if ends_of(status) or job["spec"].get("suspend"):
                if alive:
                    text = f"{key.name} has ended or is suspended, and {sorted(alive)} run"
                    self.fail("I7", text)
            elif not done and alive != workers:
                self.fail("I7", f"{key.name} runs {sorted(alive)} of {sorted(workers)}")

    def check_rounds(self) -> None:
        for _, job in self.api.of(ROUNDS):
            phases = {
                key.name: (pod.get("status") or {}).get("phase", "Pending")
                for key, pod in self._children("pods", job)
            }
            alive = {name for name, phase in phases.items() if phase in ("Pending", "Running")}
            (dataset,) = (each for at, each in self.api.of(DATASETS) if at.name == NAME)
            samples = (dataset.get("status") or {}).get("numberOfSamples", 0)
            if problem := self.rounds.problem_at_end(job, alive, samples):
                self.fail("I14", problem)

    def check_contact(self, node: str, *, is_connected: bool) -> None:
        for key, object_ in list(self.api.objects.items()):
            if key.resource not in ON_EDGES or self.nodes_of(key, object_) != {node}:
                continue
            if key.resource == MODELS:
                continue  # which says what its nodes have, and not whether they are in contact
            if ends_of(object_.get("status") or {}):
                continue
            conditions = (object_.get("status") or {}).get("conditions") or ()
            found = [each["status"] for each in conditions if each["type"] == "EdgeConnected"]
            if found != ["True" if is_connected else "False"]:
                self.fail("I13", f"{key.name}: EdgeConnected {found}, {node} {is_connected=}")

    def check_reported(self, controller: Controller, rows: Iterable[Any]) -> None:
        """Every report of the node has taken effect, once."""
        assert controller.ledger is not None
        ledger_id = controller.ledger.view.ledger_id
        for row in rows:
            if not row.is_acked:
                self.fail("I3", f"{row.name} at {controller.name} has an unsent report")
            if row.worker.reason == NO_TASK:
                continue  # the cloud wants no report of a task that has left; the worker is silent
            job = self.job(row.uid)
            entry = self.entries(job).get(row.name)
            if entry is None or entry["instance"] != ledger_id:
                self.fail("I3", f"the API has {entry} of {row.name} at {controller.name}")
            told = (entry["attempt"], entry["status"], seen_of(entry))
            seen = max(row.worker.totals.get("seen", 0), count_of(entry.get("countedBefore")))
            if told != (row.worker.attempt, row.worker.status, seen):
                self.fail("I3", f"the API has {told} of {row.name}, the ledger {row.worker}")

    def check_sums(self) -> None:
        for key, object_ in self.api.of(SERVICES):
            status = object_.get("status") or {}
            told = [
                count_of(info)
                for entry in self.entries(object_).values()
                for info in (
                    entry.get("taskInfo"),
                    *(entry.get(_ELSEWHERE) or {}).values(),
                )
            ]
            metrics = {each["key"]: each["value"] for each in status.get("metrics") or ()}
            if told and metrics.get("seen") != str(sum(told)):
                self.fail("I3", f"{key.name} has {metrics.get('seen')} in total, of {told}")

    def quiet_writes(self) -> dict[Key, str]:
        """Version of every object that changes only when something happens."""
        return {
            key: each["metadata"]["resourceVersion"]
            for key, each in self.api.objects.items()
            if key.resource not in _HEARTBEATS or owner_of(each)
        }


def nodes_of(key: Key, job: Object) -> set[str]:
    """The nodes that the spec of a job binds it to."""
    spec = job["spec"]
    if key.resource == DATASETS:
        return {spec["nodeName"]}
    if key.resource == ROUNDS:
        return {spec["trainSpec"]["template"]["spec"]["nodeName"]}
    workers = [spec["edgeWorker"]] if key.resource == SERVICES else spec["trainingWorkers"]
    return {each["template"]["spec"]["nodeName"] for each in workers}


def hot_model(service: Object) -> str:
    """The Model whose versions the edge worker loads while it runs; "": none."""
    model = service["spec"]["edgeWorker"]["model"]
    return str(model["name"]) if model.get("hotUpdate") else ""


def _problem_of_pause(spec: Object, old: Object, new: Object) -> str:
    """Whether a write of .status lets a wave of a rollout begin that its spec holds; "": it does
    not.
    """
    before, after = old.get("rollout") or {}, new.get("rollout") or {}
    number, former = ((each.get("version") or {}).get("number") for each in (after, before))
    wave, last = after.get("wave", 0), before.get("wave", 0) if number == former else 0
    is_paused = (spec.get("rollout") or {}).get("paused")
    return f"wave {wave} begins, and the rollout is paused" if is_paused and wave > last else ""


def is_fleet(job: Object) -> bool:
    return bool((job["spec"].get("edgeWorker") or {}).get("perNode"))


def ends_of(status: Object) -> set[str]:
    conditions = status.get("conditions") or ()
    return {
        each["type"] for each in conditions if each["type"] in _ENDS and each["status"] == "True"
    }


def owner_of(object_: Object) -> str:
    return str((object_["metadata"].get("ownerReferences") or [{"uid": ""}])[0]["uid"])


def is_slice(config_map: Object) -> bool:
    return labels_of(config_map).get("edgeai.io/role") == slices.ROLE


def role_of(object_: Object) -> str:
    return str(object_["metadata"]["labels"]["edgeai.io/role"])


def count_of(info: Any) -> int:
    return int((info or {}).get("seen", 0))


def seen_of(entry: Object) -> int:
    return count_of(entry.get("taskInfo"))
