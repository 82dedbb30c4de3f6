"""The cluster of one run: the API with its objects, replicas of the GlobalManager, nodes."""

import base64
import contextlib
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from edgeai.cli.api import collection_of
from tests.simulation import content_disk
from tests.simulation import disk as disks
from tests.simulation.api import Api, Key
from tests.simulation.cloud import SETTINGS, SimulatedManager
from tests.simulation.disk import Disk
from tests.simulation.edge import Controller
from tests.simulation.model_oracle import ModelOracle
from tests.simulation.models import HOT, ModelServer
from tests.simulation.network import Connection, Network
from tests.simulation.oracle import HOT_MODEL, LABEL, ROLLED_FLEET, Oracle
from tests.simulation.round_oracle import NAME as ROUNDS_NAME
from tests.simulation.transport import Weather
from tests.simulation.world import VirtualTime
from tests.support.manifests import manifest

NODES: Final = ("edge0", "edge1", "edge2")
_JOBS: Final = "/apis/edgeai.io/v1alpha1/namespaces/default/jointinferenceservices"
_MODELS: Final = "/apis/edgeai.io/v1alpha1/namespaces/default/models"
_LEARNING: Final = "/apis/edgeai.io/v1alpha1/namespaces/default/federatedlearningjobs"
_ROUNDS: Final = "/apis/edgeai.io/v1alpha1/namespaces/default/incrementallearningjobs"


class SimulatedCluster:
    """
    Args:
        replicas: number of GlobalManagers
        nodes: number of nodes with a LocalController
    """

    def __init__(self, world: VirtualTime, *, replicas: int, nodes: int) -> None:
        disks.install()
        content_disk.install()
        self.world = world
        self.api, self.weather, self.network = Api(world), Weather(), Network(world)
        self.server = ModelServer(world)
        self.oracle = Oracle(world, self.api, ModelOracle(world, self.api, self.server))
        self.network.on_connection = self._watch
        self._root = Path(tempfile.mkdtemp(prefix="edgeai-simulation-", dir=_memory()))
        self._fill_api()
        self.replicas = [f"gm{number}" for number in range(replicas)]
        self.managers: dict[str, SimulatedManager] = {}
        self.disks: dict[str, Disk] = {}
        self.controllers: dict[str, Controller] = {}
        self.nodes = set(NODES[:nodes])  # that have a LocalController
        self.is_healed = False
        self.twins: set[str] = set()  # controllers that use another one's node name
        self.node_of: dict[str, str] = {}
        self.ends: dict[str, str] = {}  # controller -> how it ends in the middle of a delivery
        for replica in self.replicas:
            self.start_manager(replica)
        for node in sorted(self.nodes):
            self.add_controller(node, node)

    def close(self) -> None:
        for manager in self.managers.values():
            manager.process.kill()
        for controller in self.controllers.values():
            if controller.process.is_alive:
                controller.process.kill()
                controller.close_files()
        for disk in self.disks.values():
            disk.remove()
        with contextlib.suppress(OSError):
            self._root.rmdir()

    def _fill_api(self) -> None:
        key = {"key": base64.b64encode(b"k" * 32).decode()}
        namespace = SETTINGS.system_namespace
        self.create("v1 Secret", "edgeai-worker-key", namespace, data=key)
        self.create("v1 Namespace", "default", "")
        for node in (*NODES, "cloud0"):
            self.create("v1 Node", node, "")
        for model in ("small", "big"):
            spec = {"url": f"/data/{model}", "format": "pb"}
            self.create("edgeai.io/v1alpha1 Model", model, spec=spec)
        for model in HOT:
            self.create("edgeai.io/v1alpha1 Model", model, spec={"url": f"http://models/{model}"})
        for node in NODES:
            spec = {"url": f"/data/{node}.txt", "format": "txt", "nodeName": node}
            self.create("edgeai.io/v1alpha1 Dataset", f"data-{node}", spec=spec)

    def create(self, type_: str, name: str, namespace: str = "default", **fields: Any) -> None:
        body = manifest(type_, name, namespace, **fields)
        self.api.handle("POST", collection_of(body), {}, body)

    # ---- users ----------------------------------------------------------------------------------

    def create_job(self, name: str, node: str) -> None:
        self.create("edgeai.io/v1alpha1 JointInferenceService", name, spec=job_spec(node))

    def edit_job(self, name: str, node: str, mining: str) -> None:
        template = {"spec": {"nodeName": node}}
        worker = {"hardExampleMining": {"name": mining}, "template": template}
        self.api.handle("PATCH", f"{_JOBS}/{name}", {}, {"spec": {"edgeWorker": worker}})

    def create_hot_job(self, name: str, node: str, model: str) -> None:
        """A job whose edge worker loads new versions of its Model."""
        spec = job_spec(node)
        spec["edgeWorker"]["model"] = {"name": model, "hotUpdate": True}
        self.create("edgeai.io/v1alpha1 JointInferenceService", name, spec=spec)

    def publish_model(self, model: str, url: str, sha256: str) -> None:
        self.api.handle("PATCH", f"{_MODELS}/{model}", {}, {"spec": {"url": url, "sha256": sha256}})

    def create_fleet(self, name: str) -> None:
        self.create("edgeai.io/v1alpha1 JointInferenceService", name, spec=fleet_spec())

    def create_rolled_fleet(self) -> None:
        """A fleet whose nodes get new versions of a Model in waves."""
        url = "https://models.test/1"
        spec = {"url": url, "sha256": self.server.digest(url)}
        self.create("edgeai.io/v1alpha1 Model", HOT_MODEL, spec=spec)
        self.create("edgeai.io/v1alpha1 JointInferenceService", ROLLED_FLEET, spec=rolled_spec())

    def publish(self, spec: dict[str, Any]) -> None:
        self.api.handle("PATCH", f"{_MODELS}/{HOT_MODEL}", {}, {"spec": spec})

    def edit_rollout(self, **fields: Any) -> None:
        path = f"{_JOBS}/{ROLLED_FLEET}"
        self.api.handle("PATCH", path, {}, {"spec": {"rollout": fields}})

    def label(self, node: str, value: str | None) -> None:
        labels = {"labels": {LABEL: value}}
        self.api.handle("PATCH", f"/api/v1/nodes/{node}", {}, {"metadata": labels})

    def delete_job(self, name: str) -> None:
        self.api.handle("DELETE", f"{_JOBS}/{name}", {}, None)

    def create_learning(self, name: str, nodes: Sequence[str]) -> None:
        self.create("edgeai.io/v1alpha1 FederatedLearningJob", name, spec=learning_spec(nodes))

    def delete_learning(self, name: str) -> None:
        self.api.handle("DELETE", f"{_LEARNING}/{name}", {}, None)

    def suspend_learning(self, name: str, *, is_suspended: bool) -> None:
        self.api.handle("PATCH", f"{_LEARNING}/{name}", {}, {"spec": {"suspend": is_suspended}})

    def create_rounds(self, node: str, *, is_hot: bool) -> None:
        """A job of incremental learning, and its Dataset."""
        spec = {"url": "/data/samples.txt", "nodeName": node}
        self.create("edgeai.io/v1alpha1 Dataset", ROUNDS_NAME, spec=spec)
        spec = rounds_spec(node, is_hot=is_hot)
        self.create("edgeai.io/v1alpha1 IncrementalLearningJob", ROUNDS_NAME, spec=spec)

    def edit_rounds(self, spec: dict[str, Any]) -> None:
        self.api.handle("PATCH", f"{_ROUNDS}/{ROUNDS_NAME}", {}, {"spec": spec})

    def roll_out(self, deployment: Key) -> None:
        """What the controller of Deployments writes when new pods serve."""
        generation = self.api.objects[deployment]["metadata"]["generation"]
        available = {"type": "Available", "status": "True"}
        status = {
            "observedGeneration": generation,
            "replicas": 1,
            "updatedReplicas": 1,
            "conditions": [available],
        }
        path = f"/apis/apps/v1/namespaces/default/deployments/{deployment.name}/status"
        self.api.handle("PATCH", path, {}, {"status": status})

    def set_phase(self, pod: Key, phase: str) -> None:
        """What the kubelet of the pod's node writes."""
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        ready = {"type": "Ready", "status": "True" if phase == "Running" else "False"}
        self.api.handle("PATCH", path, {}, {"status": {"phase": phase, "conditions": [ready]}})

    # ---- processes ------------------------------------------------------------------------------

    def start_manager(self, replica: str) -> None:
        known = self.managers.get(replica)
        if known is None or not known.process.is_alive:
            manager = SimulatedManager(self.world, replica, self.api, self.weather, self.network)
            self.managers[replica] = manager
            self.oracle.managers = list(self.managers.values())

    def add_controller(self, name: str, node: str) -> None:
        self.disks[name] = Disk(self._root / name)
        self.node_of[name] = node
        self.start_controller(name)

    def start_controller(self, name: str) -> None:
        known = self.controllers.get(name)
        if known is None or not known.process.is_alive:
            controller = Controller(
                self.world,
                name,
                self.node_of[name],
                self.disks[name],
                self.network,
                self.server,
                on_frozen=lambda: self.stop_controller(name, how="torn"),
                on_frozen_content=lambda: self.stop_controller(name, how=self.ends[name]),
            )
            self.controllers[name] = controller
            self.oracle.controllers = list(self.controllers.values())

    def cut_power_at_next_sync(self, name: str) -> None:
        """A power cut in the middle of the next commit."""
        if self.controllers[name].process.is_alive and self.controllers[name].ledger is not None:
            self.disks[name].fails_at_next_sync = True
            self.oracle.note_rows(self.controllers[name])

    def end_in_delivery(self, name: str, *, steps: int, how: str) -> None:
        """End the process after so many steps of its disk with the content of Models.

        Args: how: as of stop_controller
        """
        self.disks[name].content.ends_after = steps
        self.ends[name] = how

    def stop_controller(self, name: str, *, how: str) -> None:
        """End the process of a LocalController.

        Args: how: "kill", as SIGKILL; "power", a power cut; "torn", a power cut in the middle of a
            commit; "lost", the machine gets a new disk
        """
        controller, disk = self.controllers[name], self.disks[name]
        if not controller.process.is_alive:
            return
        self.world.note(f"{controller.process.name} ends: {how}")
        if how != "torn":
            self.oracle.forget_rows(name)
        self.oracle.note_rows(controller)
        controller.kill(is_silent=how != "kill")
        if how == "kill":
            disk.end_process()
        elif how == "lost":
            disk.lose()
            self.oracle.forget_rows(name)
            self.oracle.models.forget(name)
        else:
            disk.cut_power(self.world.random)
        controller.close_files()

    def calm(self) -> None:
        weather = self.weather
        weather.lost_request = weather.lost_answer = weather.failing = weather.broken_watch = 0.0

    def heal(self) -> None:
        """End every fault: all machines are on, all lines work, no name is used twice."""
        self.is_healed = True
        self.calm()
        self.weather.is_down = False
        self.weather.unreachable.clear()
        self.weather.lag_s.clear()
        self.network.is_cut.clear()
        self.server.is_cut.clear()
        self.server.is_faulty = False
        for name in sorted(self.twins):
            self.stop_controller(name, how="kill")
        for name, disk in self.disks.items():
            if disk.content.is_frozen:  # nobody would start it again when its present work is done
                self.stop_controller(name, how=self.ends[name])
            disk.fails_at_next_sync = False
            disk.content.ends_after, disk.content.free_bytes = 0, content_disk.PLENTY
        for replica in self.replicas:
            self.start_manager(replica)
        for name in self.disks:
            if name not in self.twins:
                self.start_controller(name)

    def _watch(self, connection: Connection) -> None:
        for controller in self.controllers.values():
            if controller.process is connection.edge_end.process:
                self.oracle.watch(connection, controller)


def template(**spec: str) -> dict[str, Any]:
    return {"spec": {**spec, "containers": containers("1")}}


def containers(version: str) -> list[dict[str, Any]]:
    return [{"name": "worker", "image": f"worker:{version}"}]


def job_spec(node: str) -> dict[str, Any]:
    mining = {"hardExampleMining": {"name": "IBT"}}
    return {
        "edgeWorker": {"model": {"name": "small"}, **mining, "template": template(nodeName=node)},
        "cloudWorker": {"model": {"name": "big"}, "template": template()},
    }


def fleet_spec() -> dict[str, Any]:
    spec = job_spec("")
    edge = {"template": template(), "perNode": True, "nodeSelector": {LABEL: "yes"}}
    return {**spec, "edgeWorker": {**spec["edgeWorker"], **edge}}


def rolled_spec() -> dict[str, Any]:
    spec = fleet_spec()
    edge = {**spec["edgeWorker"], "model": {"name": HOT_MODEL, "hotUpdate": True}}
    return {**spec, "edgeWorker": edge, "rollout": {"waves": ["1", "70%"], "pauseS": 3}}


def learning_spec(nodes: Sequence[str]) -> dict[str, Any]:
    return {
        "aggregationWorker": {"model": {"name": "big"}, "template": template()},
        "trainingWorkers": [
            {"dataset": {"name": f"data-{node}"}, "template": template(nodeName=node)}
            for node in nodes
        ],
    }


def rounds_spec(node: str, *, is_hot: bool) -> dict[str, Any]:
    better = {"metric": "precision_delta", "operator": ">", "threshold": 0.1}
    form = {"template": template(nodeName=node)}
    return {
        "initialModel": {"name": "small"},
        "dataset": {"name": ROUNDS_NAME},
        "trainSpec": form,
        "evalSpec": form,
        "deploySpec": {
            **form,
            "model": {"name": "big", "hotUpdate": is_hot, "pollPeriodSeconds": 1},
            "trigger": {"condition": better},
        },
        "outputDir": "/data",
    }


def _memory() -> str | None:
    """A directory in memory, where SQLite's writes are quick."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None
