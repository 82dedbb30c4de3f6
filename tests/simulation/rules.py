"""What happens to a cluster: users, workers and faults. Each rule is one draw of the driver."""

import functools
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from common import wire
from edgeai.ids import Uid, WorkerName
from localcontroller.ledger.attempts import ProcessMessage
from tests.simulation.cloud import SimulatedManager
from tests.simulation.cluster import NODES, SimulatedCluster
from tests.simulation.content_disk import PLENTY
from tests.simulation.edge import Controller
from tests.simulation.models import HOT
from tests.simulation.network import Connection
from tests.simulation.oracle import EVIL, ROLLED_FLEET, SERVICES, WorkerId, owner_of
from tests.simulation.rounds import WORKER, RoundWorkers

FLEETS: Final = ("fleet0", "fleet1")
JOBS: Final = tuple(f"job{number}" for number in range(5))
LEARNING: Final = ("learn0", "learn1")
MINING: Final = ("IBT", "CrossEntropy")
_EVIL_SEQ: Final = 2**40

Place = tuple[Controller, Uid, WorkerName]
"""A worker of a task, and the LocalController that it reports to."""


class Rules:
    """The rules by name. `random` of the world decides what each of them does."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._random = cluster.world.random
        self._lives: dict[WorkerId, int] = {}
        self._sequence: dict[WorkerId, int] = {}
        self._versions = 0
        self._evil = 0
        self._published = 1
        self._serves: dict[str, int] = {}  # node -> version that its worker of the rolled fleet has
        self.rounds = RoundWorkers(cluster)
        self._lies: set[tuple[str, str]] = set()  # (node, uid of the job that it reported)

    # ---- users ----------------------------------------------------------------------------------

    def create_job(self) -> None:
        self._cluster.create_job(self._random.choice(JOBS), self._random.choice(NODES))

    def edit_job(self) -> None:
        self._edit(self._random.choice(JOBS), self._random.choice(NODES))

    def _edit(self, name: str, node: str) -> None:
        mining = self._random.choice(MINING)
        jobs = [each for key, each in self._cluster.api.of(SERVICES) if key.name == name]
        # A lie that waits to be read would be no lie once the job has come to the node.
        if not any((node, each["metadata"]["uid"]) in self._lies for each in jobs):
            self._cluster.edit_job(name, node, mining)

    def borrow_job(self) -> None:
        """A job goes to another node and comes back. Its own node hears nothing of it."""
        name, node = self._service()
        if not name:
            return
        borrower = self._random.choice(sorted(self._cluster.nodes - {node}))
        self._cut(node, mean_s=30)
        self._edit(name, borrower)
        self._later(5, lambda: self._send_from(borrower))
        self._later(15, lambda: self._edit(name, node))

    def _service(self) -> tuple[str, str]:
        """A service that a node knows, and this node; "": none was found."""
        found = self.worker()
        job = self._cluster.oracle.job(found[1]) if found else None
        name = job["metadata"]["name"] if job else ""
        return (name, found[0].node) if found and name in JOBS else ("", "")

    def delete_job(self) -> None:
        self._cluster.delete_job(self._random.choice(JOBS))

    def recreate_job(self) -> None:
        """A job with another uid takes the name at once."""
        name = self._random.choice(JOBS)
        self._cluster.delete_job(name)
        self._cluster.create_job(name, self._random.choice(NODES))

    def create_hot_job(self) -> None:
        name, node = self._random.choice(JOBS), self._random.choice(NODES)
        self._cluster.create_hot_job(name, node, self._random.choice(HOT))

    def publish_model(self) -> None:
        """A new version of a Model, or once more one of the last."""
        self._versions += self._random.random() < 0.7
        is_sealed = self._random.random() < 0.5
        url = f"http://models/{'sealed' if is_sealed else 'open'}-{self._versions}"
        digest = self._cluster.server.digest(url) if is_sealed else ""
        self._cluster.publish_model(self._random.choice(HOT), url, digest)

    def create_fleet(self) -> None:
        self._cluster.create_fleet(self._random.choice(FLEETS))

    def delete_fleet(self) -> None:
        self._cluster.delete_job(self._random.choice(FLEETS))

    def label_node(self) -> None:
        value = self._random.choice(("yes", "yes", "yes", None))
        self._cluster.label(self._random.choice(NODES), value)

    def create_rolled_fleet(self) -> None:
        self._cluster.create_rolled_fleet()

    def publish(self) -> None:
        """A new version, or an earlier one again. One in three cannot be loaded."""
        self._published += 1
        number = self._random.choice((self._published,) * 4 + (1, self._published - 1))
        url = f"https://models.test/{number}"
        self._cluster.publish({"url": url, "sha256": self._cluster.server.digest(url)})

    def publish_twice(self) -> None:
        self.publish()
        self._later(1, self.publish)

    def reject_version(self) -> None:
        state = self._cluster.oracle.rollout()
        if state:
            self._cluster.edit_rollout(rejected=state["version"]["number"])

    def pause_rollout(self) -> None:
        self._cluster.edit_rollout(paused=True)
        self._later(30, lambda: self._cluster.edit_rollout(paused=False))

    def report_models(self) -> None:
        """All workers of the rolled fleet run, and report."""
        for pod, each in list(self._cluster.api.of("pods")):
            has_begun = (each.get("status") or {}).get("phase") in (
                "Running",
                "Succeeded",
                "Failed",
            )
            if pod.name.startswith(ROLLED_FLEET) and not has_begun:
                self._cluster.set_phase(pod, "Running")
        for controller in self._cluster.controllers.values():
            for uid, worker in list(controller.granted()) if controller.process.is_alive else ():
                if worker.startswith(ROLLED_FLEET):
                    self._send("running", (controller, uid, worker))

    def _model_details(self, controller: Controller, worker: WorkerName) -> dict[str, str]:
        """What the worker says of its model: the newest that the node has, or the one before where
        that cannot be loaded.
        """
        if worker == WORKER:
            return self.rounds.model_details()
        held = controller.model_version() if worker.startswith(ROLLED_FLEET) else None
        if held is None:
            return {}
        version, digest = held
        if int(digest, 16) % 3 != 2:
            self._serves[controller.name] = version
            return {"modelVersion": str(version)}
        details = {"modelFault": f"version {version}: broken"}
        before = self._serves.get(controller.name)
        return {**details, "modelVersion": str(before)} if before else details

    def create_learning(self) -> None:
        nodes = self._random.sample(NODES, self._random.randint(1, 2))
        self._cluster.create_learning(self._random.choice(LEARNING), nodes)

    def delete_learning(self) -> None:
        self._cluster.delete_learning(self._random.choice(LEARNING))

    def suspend_learning(self) -> None:
        """For a while, or for ever."""
        name = self._random.choice(LEARNING)
        self._cluster.suspend_learning(name, is_suspended=True)
        resume = functools.partial(self._cluster.suspend_learning, name, is_suspended=False)
        self._later(self._random.choice((1, 10, 60)), resume)

    def create_rounds(self) -> None:
        self.rounds.create()

    def suspend_rounds(self) -> None:
        """For a while. Often the pod of the round is still ending when the job is resumed."""
        self.rounds.start()
        self.rounds.suspend(is_suspended=True)
        resume = functools.partial(self.rounds.suspend, is_suspended=False)
        self._later(self._random.choice((3, 10, 60)), resume)

    def edit_rounds(self) -> None:
        self.rounds.edit()

    def load_of_round(self) -> None:
        """The inference worker of incremental learning looks for a new model, and reports."""
        for controller in self._cluster.controllers.values():
            for uid, worker in list(controller.granted()) if controller.process.is_alive else ():
                if worker == WORKER:
                    place = (controller, uid, worker)
                    end = self.rounds.load()
                    self._send(end or "running", place, phase="deploy" if end else "inference")

    def add_samples(self) -> None:
        self.rounds.add_samples()

    def work(self) -> None:
        self.rounds.work()

    def work_and_kill(self) -> None:
        """A replica ends about when it acts on what the workers of a round have done."""
        self.rounds.work()
        self._later(0.2, self.kill_manager)

    # ---- kubelets -------------------------------------------------------------------------------

    def move_pod(self) -> None:
        """A pod begins to run, or its containers end."""
        pods = sorted(key for key, _ in self._cluster.api.of("pods"))
        if not pods:
            return
        pod = self._random.choice(pods)
        phase = (self._cluster.api.objects[pod].get("status") or {}).get("phase", "Pending")
        if phase == "Pending":
            self._cluster.set_phase(pod, "Running")
        elif phase == "Running":
            ends = ("Failed",) if "-node-" in pod.name else ("Succeeded", "Succeeded", "Failed")
            self._cluster.set_phase(pod, self._random.choice(ends))

    def evict_pod(self) -> None:
        """Somebody deletes a pod."""
        pods = sorted(key for key, _ in self._cluster.api.of("pods"))
        if pods:
            self._cluster.api.evict(self._random.choice(pods))

    def delete_child(self) -> None:
        """Somebody deletes what a job has made."""
        children = sorted(
            key
            for key, each in self._cluster.api.objects.items()
            if key.resource in ("deployments.apps", "services", "secrets") and owner_of(each)
        )
        if children:
            self._cluster.api.remove(self._random.choice(children))

    # ---- workers --------------------------------------------------------------------------------

    def report(self) -> None:
        self._send("running")

    def report_burst(self) -> None:
        for _ in range(self._random.randint(2, 12)):
            self._send("running")

    def report_end(self) -> None:
        self._send("completed" if self._random.random() < 0.5 else "failed")

    def chatter(self) -> None:
        """A worker reports again while its node gets the answers to its first reports."""
        found = self.worker()
        for _ in range(self._random.randint(3, 8) if found else 0):
            self._later(0.3, lambda: self._send("running", found))

    def _send_from(self, node: str) -> None:
        """All workers of the node report."""
        controller = self._cluster.controllers[node]
        for uid, worker in controller.granted() if controller.process.is_alive else ():
            self._send("running", (controller, uid, worker))

    def restart_worker(self) -> None:
        self._restart(self.worker())

    def crash_worker(self) -> None:
        """A worker reports, dies, and starts again, a few times in a row."""
        found = self.worker()
        for _ in range(self._random.randint(2, 6) if found else 0):
            self._send("running", found)
            self._restart(found)

    def restart_and_report(self, worker: Place) -> None:
        """The worker starts once more and reports."""
        self._restart(worker)
        self._send("running", worker)

    def _restart(self, worker: Place | None) -> None:
        """The next message of the worker comes from a new process."""
        if worker is not None:
            known = self._id(*worker)
            self._lives[known] = self._lives.get(known, 0) + 1

    def worker(self) -> Place | None:
        name = self._random.choice(sorted(self._cluster.controllers))
        controller = self._cluster.controllers[name]
        if not controller.process.is_alive:
            return None
        granted = list(controller.granted())
        return (controller, *self._random.choice(granted)) if granted else None

    def _id(self, controller: Controller, uid: Uid, worker: WorkerName) -> WorkerId:
        assert controller.ledger is not None
        return controller.ledger.view.ledger_id, uid, worker

    def _send(
        self, status: wire.WorkerStatus, found: Place | None = None, *, phase: str = "inference"
    ) -> None:
        """Args: found: the worker that sends; None: any"""
        found = found or self.worker()
        if found is None or not found[0].process.is_alive:
            return
        controller, uid, worker = found
        known = self._id(*found)
        truth = self._cluster.oracle.truth
        instance = f"life{self._lives.get(known, 0)}"
        sequence = self._sequence[known] = self._sequence.get(known, 0) + 1
        seen = truth.sent[known].get(instance, 0) + self._random.randint(0, 3)
        truth.sent[known][instance] = seen
        message = ProcessMessage(
            instance=instance,
            sequence=sequence,
            phase=phase,
            status=status,
            heartbeat_s=0.0,
            counts={"seen": seen, "hard": seen // 2, "uploaded": seen // 3},
            numbers={},
            details=self._model_details(controller, worker),
        )

        def confirmed() -> None:
            truth.confirmed[known][instance] = max(truth.confirmed[known].get(instance, 0), seen)

        controller.post(uid, worker, message, confirmed)
        if status in wire.TERMINAL:
            self._restart(found)

    # ---- the network ----------------------------------------------------------------------------

    def break_connection(self) -> None:
        connection = self._connection()
        if connection is not None:
            self._cluster.network.break_(connection)

    def flap_connection(self) -> None:
        """A node's connection breaks again and again, while answers of the API are lost."""
        connection, weather = self._connection(), self._cluster.weather
        if connection is None:
            return
        weather.lost_answer = 0.5
        for mean_s in (0.0, 2.0, 3.0, 4.0):
            self._later(mean_s, lambda: self._break(connection.node))
        self._later(6, self._cluster.calm)

    def _break(self, node: str) -> None:
        for connection in self._cluster.network.connections:
            if connection.is_open and connection.node == node:
                self._cluster.network.break_(connection)

    def silence_connection(self) -> None:
        """Half-open: nothing arrives any more, and nobody is told."""
        connection = self._connection()
        if connection is not None:
            connection.is_dead = True

    def mute_node(self) -> None:
        """A worker reports again and again while the API is slow. Its node hears the cloud, and the
        cloud hears only the first report: its late acknowledgement is of an older report.
        """
        found, network = self.worker(), self._cluster.network
        node = found[0].node if found else ""
        ends = [each.edge_end for each in network.connections if each.is_open and each.node == node]
        if not ends:
            return
        self._cluster.weather.failing = 0.8
        self._send("running", found)
        self._later(0.1, ends[-1].mute)
        for _ in range(self._random.randint(3, 8)):
            self._later(0.5, lambda: self._send("running", found))
        self._later(2, self._cluster.calm)

    def cut_node(self) -> None:
        self._cut(self._random.choice(NODES), mean_s=90)

    def _cut(self, node: str, *, mean_s: float) -> None:
        network = self._cluster.network
        network.is_cut[node] = True
        for connection in network.connections:
            connection.is_dead |= connection.node == node
        self._later(mean_s, lambda: network.is_cut.update({node: False}))

    def _connection(self) -> Connection | None:
        connections = [each for each in self._cluster.network.connections if each.is_open]
        return self._random.choice(connections) if connections else None

    # ---- crashes --------------------------------------------------------------------------------

    def kill_controller(self) -> None:
        self._stop_controller("kill")

    def cut_power(self) -> None:
        self._stop_controller("power")

    def cut_power_in_commit(self) -> None:
        name = self._random.choice(sorted(self._cluster.controllers))
        self._cluster.cut_power_at_next_sync(name)
        self._later(30, lambda: self._cluster.start_controller(name))
        self._later(60, lambda: self._cluster.start_controller(name))

    def load_model(self) -> None:
        """A worker loads a version of a Model that its node has."""
        controllers = self._cluster.controllers
        controller = controllers[self._random.choice(sorted(controllers))]
        if not controller.process.is_alive or controller.store is None:
            return
        records = sorted(controller.store._records.values(), key=lambda record: record.key)
        if records:
            record = self._random.choice(records)
            digest = self._random.choice(record.versions).digest
            oracle = self._cluster.oracle.models
            said = functools.partial(oracle.loaded, controller, record.key, digest)
            controller.load(record.key, digest, said)

    def end_in_delivery(self) -> None:
        """A node ends between two operations of its disk. A new version makes such operations."""
        name = self._random.choice(sorted(self._cluster.controllers))
        how = self._random.choice(("kill", "power"))
        self._cluster.end_in_delivery(name, steps=self._random.randint(1, 30), how=how)
        self.publish_model()
        self._later(30, lambda: self._cluster.start_controller(name))
        self._later(60, lambda: self._cluster.start_controller(name))

    def fill_disk(self) -> None:
        """The disk has no room for content for a while."""
        disk = self._cluster.disks[self._random.choice(sorted(self._cluster.disks))].content
        disk.free_bytes = self._random.choice((0, 10_000, 60_000))
        self._later(40, lambda: setattr(disk, "free_bytes", PLENTY))

    def cut_server(self) -> None:
        """A node reaches no server of Models."""
        node, is_cut = self._random.choice(NODES), self._cluster.server.is_cut
        is_cut[node] = True
        self._later(40, lambda: is_cut.update({node: False}))

    def lose_disk(self) -> None:
        self._stop_controller("lost")

    def _stop_controller(self, how: str, name: str = "") -> None:
        """Args: name: "": any"""
        chosen = name or self._random.choice(sorted(self._cluster.controllers))
        self._cluster.stop_controller(chosen, how=how)
        self._later(20, lambda: self._cluster.start_controller(chosen))

    def kill_manager(self) -> None:
        self._stop_manager(is_silent=False)

    def lose_manager(self) -> None:
        """The machine of a replica is off: nobody hears of its end."""
        self._stop_manager(is_silent=True)

    def replace_leader(self) -> None:
        """The leader dies. While another replica takes its place, nodes go from replica to replica,
        and not each replica has heard of the new leader.
        """
        managers = list(self._cluster.managers.values())
        leader = next((each for each in managers if each.core and each.core.fence.is_open), None)
        if leader is None:
            return
        self._stop_manager(is_silent=False, name=leader.replica)
        for manager in managers * 10:
            self._later(15, functools.partial(self._leave, manager))

    def _stop_manager(self, *, is_silent: bool, name: str = "") -> None:
        """Args: name: "": any"""
        replica = name or self._random.choice(self._cluster.replicas)
        self._world.note(f"{replica} ends, {is_silent=}")
        self._cluster.managers[replica].kill(is_silent=is_silent)
        self._later(20, lambda: self._cluster.start_manager(replica))

    def begin_twin(self) -> None:
        """A second machine uses the name of a node."""
        node = self._random.choice(NODES[:2])
        name = f"{node}-twin"
        if name not in self._cluster.controllers and node in self._cluster.controllers:
            self._cluster.add_controller(name, node)
            self._cluster.twins.add(name)

    # ---- the API --------------------------------------------------------------------------------

    def bad_weather(self) -> None:
        weather, random = self._cluster.weather, self._random.random
        weather.lost_request, weather.lost_answer = 0.1 * random(), 0.2 * random()
        weather.failing, weather.broken_watch = 0.2 * random(), 0.05 * random()
        self._later(60, self._cluster.calm)

    def stop_api(self) -> None:
        self._cluster.weather.is_down = True
        self._cluster.api.break_watches()
        self._later(40, self._start_api)

    def _start_api(self) -> None:
        self._cluster.weather.is_down = False

    def break_watches(self) -> None:
        self._cluster.api.break_watches()

    def forget_history(self) -> None:
        self._cluster.api.forget_history()
        self._cluster.api.break_watches()

    def isolate_manager(self) -> None:
        """A replica does not reach the API, and goes on to serve its edges. They may leave it."""
        manager = self._manager()
        self._isolate(manager.process.name)
        if self._random.random() < 0.5:
            self._later(20, lambda: self._leave(manager))

    def _isolate(self, name: str, *, mean_s: float = 120) -> None:
        self._cluster.weather.unreachable.add(name)
        self._later(mean_s, lambda: self._cluster.weather.unreachable.discard(name))

    def replace_disk(self) -> None:
        """A node reports to a replica that does not reach the API. Then it gets a new disk, and
        reports to another replica before the first one reaches the API again.
        """
        connection = self._connection()
        if connection is None:
            return
        self._isolate(connection.cloud_end.process.name, mean_s=45)
        self._send_from(connection.node)
        self._later(2, lambda: self._stop_controller("lost", connection.node))
        for mean_s in (20, 30, 45):
            self._later(mean_s, lambda: self._send_from(connection.node))

    def outrun_watches(self) -> None:
        """A job moves to a node of another replica. The replica of its former node hears of it only
        after both nodes have reported.
        """
        job, former = self._service()
        connections = [each for each in self._cluster.network.connections if each.is_open]
        late = {each.cloud_end.process.name for each in connections if each.node == former}
        others = [each.node for each in connections if each.cloud_end.process.name not in late]
        if not (job and late and others):
            return
        present, lag_s = self._random.choice(others), self._cluster.weather.lag_s
        lag_s.update(dict.fromkeys(late, 30.0))
        self._later(40, lambda: lag_s.update(dict.fromkeys(late, 0.0)))
        self._edit(job, present)
        self._later(2, lambda: self._send_from(present))
        self._later(6, lambda: self._send_from(former))

    def delay_watches(self) -> None:
        """A replica learns late of changes of a job, and edges come to it from the others."""
        late = self._manager()
        lag_s, name = self._cluster.weather.lag_s, late.process.name
        lag_s[name] = self._random.choice((1.0, 2.0, 3.0, 5.0, 30.0))
        self._later(40, lambda: lag_s.update({name: 0.0}))
        job, node = self._service()
        for place in (node, self._random.choice(NODES)) if job else ():
            self._later(0.3, functools.partial(self._edit, job, place))
        for manager in self._cluster.managers.values():
            if manager is not late:
                self._later(self._random.choice((0.6, 5)), functools.partial(self._leave, manager))

    def _manager(self) -> SimulatedManager:
        return self._cluster.managers[self._random.choice(self._cluster.replicas)]

    def _leave(self, manager: SimulatedManager) -> None:
        """Every edge loses its connection to this replica."""
        for connection in self._cluster.network.connections:
            if connection.is_open and connection.cloud_end.process is manager.process:
                self._cluster.network.break_(connection)

    # ---- a node that lies -----------------------------------------------------------------------

    def lie(self) -> None:
        """A node reports for a worker that is not bound to it."""
        connection = self._connection()
        jobs = [each for _, each in self._cluster.api.of(SERVICES)]
        uids = sorted(each["metadata"]["uid"] for each in jobs)
        if connection is None or not uids:
            return
        uid = self._random.choice(uids)
        if connection.node in self._cluster.oracle.bound[uid]:
            return
        job = self._cluster.oracle.job(uid)
        assert job is not None
        self._lies.add((connection.node, uid))
        worker = WorkerName(f"{job['metadata']['name']}-edge")
        body = wire.pack(wire.ReportBody(phase=EVIL, task_info={"seen": 10**6}))
        self._evil += 1
        report = wire.Report(_EVIL_SEQ + self._evil, Uid(uid), worker, 99, body)
        for data in wire.encode(report):
            connection.cloud_end.inject(data)

    def flood(self) -> None:
        """A node sends its newest report again and again, and waits for no acknowledgement."""
        connection = self._connection()
        if connection is None or connection.newest_report is None:
            return
        for _ in range(self._random.randint(100, 600)):
            self._evil += 1
            again = msgspec.structs.replace(connection.newest_report, seq=_EVIL_SEQ + self._evil)
            for data in wire.encode(again):
                connection.cloud_end.inject(data)

    def _later(self, mean_s: float, event: Callable[[], None]) -> None:
        """Let a fault end, unless all faults have ended before."""
        end_s = self._random.random() * 2 * mean_s
        self._world.after(end_s, lambda: None if self._cluster.is_healed else event())


# How often each rule is drawn, relative to the others.
Weights = Mapping[Callable[[Rules], None], float]
WEIGHTS: Final[Weights] = {
    Rules.create_job: 10,
    Rules.edit_job: 12,
    Rules.borrow_job: 5,
    Rules.delete_job: 3,
    Rules.recreate_job: 4,
    Rules.create_learning: 3,
    Rules.delete_learning: 0.7,
    Rules.move_pod: 8,
    Rules.evict_pod: 1,
    Rules.delete_child: 0.5,
    Rules.report: 40,
    Rules.report_burst: 8,
    Rules.report_end: 6,
    Rules.chatter: 4,
    Rules.restart_worker: 5,
    Rules.crash_worker: 3,
    Rules.break_connection: 5,
    Rules.flap_connection: 1.5,
    Rules.silence_connection: 3,
    Rules.mute_node: 2,
    Rules.cut_node: 1,
    Rules.kill_controller: 2,
    Rules.cut_power: 2,
    Rules.cut_power_in_commit: 2,
    Rules.lose_disk: 0.3,
    Rules.replace_disk: 1.5,
    Rules.kill_manager: 1,
    Rules.lose_manager: 0.5,
    Rules.replace_leader: 1,
    Rules.begin_twin: 0.2,
    Rules.bad_weather: 3,
    Rules.stop_api: 0.7,
    Rules.break_watches: 2,
    Rules.forget_history: 1,
    Rules.isolate_manager: 1,
    Rules.delay_watches: 2,
    Rules.outrun_watches: 1.5,
    Rules.lie: 5,
    Rules.flood: 1,
}
WITH_FLEETS: Final[Weights] = {
    **WEIGHTS,
    Rules.create_job: 2,
    Rules.recreate_job: 1,
    Rules.create_learning: 1,
    Rules.create_fleet: 20,
    Rules.delete_fleet: 1,
    Rules.label_node: 12,
}
WITH_ROLLOUTS: Final[Weights] = {
    **WITH_FLEETS,
    Rules.create_fleet: 3,
    Rules.create_rolled_fleet: 20,
    Rules.publish: 6,
    Rules.publish_twice: 2,
    Rules.reject_version: 2,
    Rules.pause_rollout: 1,
    Rules.report_models: 30,
}
WITH_ROUNDS: Final[Weights] = {
    **WEIGHTS,
    Rules.create_job: 2,
    Rules.recreate_job: 1,
    Rules.create_rounds: 40,
    Rules.add_samples: 30,
    Rules.work: 120,
    Rules.work_and_kill: 4,
    Rules.suspend_rounds: 8,
    Rules.edit_rounds: 8,
    Rules.load_of_round: 20,
    Rules.suspend_learning: 3,
}
OF_MODELS: Final[Weights] = {
    Rules.create_job: 2,
    Rules.create_hot_job: 15,
    Rules.publish_model: 15,
    Rules.load_model: 10,
    Rules.end_in_delivery: 8,
    Rules.fill_disk: 1,
    Rules.cut_server: 2,
    Rules.lose_disk: 1,
}
"""Beside the others, where the content of Models goes to nodes."""
