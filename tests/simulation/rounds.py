"""The kubelet, the workers and the samples of a job of incremental learning, and who edits it."""

import json
from collections.abc import Callable
from typing import Any, Final, Literal

from edgeai.ids import Uid, WorkerName
from localcontroller.ledger.attempts import ProcessMessage
from tests.simulation.api import Key, Object
from tests.simulation.cluster import SimulatedCluster, containers
from tests.simulation.oracle import DATASETS, owner_of
from tests.simulation.round_oracle import MODEL_FILE, NAME, ROUNDS, is_of_round

WORKER: Final = WorkerName(f"{NAME}-inference")


class RoundWorkers:
    """The kubelet and the workers of one job, and the samples of its Dataset."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster, self._random = cluster, cluster.world.random
        self._samples = 0
        self._precisions: dict[str, float] = {}  # path of a model in its pods -> of that model
        # As the SDK does. Sedna's library says only how a load ends.
        self._tells_version = cluster.world.seed % 3 > 0
        self._version = "0"  # of the model that it has

    # ---- users ----------------------------------------------------------------------------------

    def create(self) -> None:
        node = self._random.choice(sorted(self._cluster.nodes))
        self._cluster.create_rounds(node, is_hot=self._random.random() < 0.7)

    @property
    def are_under_way(self) -> bool:
        jobs = (each for _, each in self._cluster.api.of(ROUNDS))
        return any((each.get("status") or {}).get("current") for each in jobs)

    def suspend(self, *, is_suspended: bool) -> None:
        self._cluster.edit_rounds({"suspend": is_suspended})

    def edit(self) -> None:
        """A trigger, a threshold, the share to train on, or the image of a worker."""
        draw = self._random.choice
        counts = {"operator": ">=", "metric": "num_of_samples", "threshold": draw((1, 5, 15))}
        hard = {"operator": ">", "metric": "num_of_hard_examples", "threshold": draw((0, 10))}
        better = {"operator": ">", "metric": "precision_delta", "threshold": draw((-0.3, 0, 0.3))}
        edits: tuple[dict[str, Any], ...] = (
            {"trainSpec": {"trigger": {"condition": draw((counts, hard, None))}}},
            {"deploySpec": {"trigger": {"condition": draw((better, better, None))}}},
            {"dataset": {"trainProb": draw((0.5, 0.8, 1))}},
            {draw(("trainSpec", "evalSpec", "deploySpec")): _image(draw(("1", "2", "3")))},
        )
        self._cluster.edit_rounds(draw(edits))

    # ---- samples --------------------------------------------------------------------------------

    def add_samples(self, number: int = 0) -> None:
        """The node of the Dataset counts more samples; now and then fewer. Args: number: 0: any"""
        datasets = (each for key, each in self._cluster.api.of(DATASETS))
        dataset = next((each for each in datasets if each["metadata"]["name"] == NAME), None)
        if dataset is not None:
            added = number or self._random.choice((1, 5, 20, -3))
            self._samples = max(0, self._samples + added)
            numbers: dict[str, int | float] = {"numberOfSamples": self._samples}
            details = {"generation": str(dataset["metadata"]["generation"])}
            message = ProcessMessage(instance="hook", numbers=numbers, details=details)
            self._post(dataset, NAME, message)

    # ---- train and eval -------------------------------------------------------------------------

    def work(self, *, may_fail: bool = True) -> None:
        """Each pod of the job does its next step."""
        jobs = {each["metadata"]["uid"]: each for _, each in self._cluster.api.of(ROUNDS)}
        running = self._pods("Running")
        self.start()
        for key, pod in running:
            self._end(key, pod, jobs[owner_of(pod)], may_fail=may_fail)
        for key, _ in list(self._cluster.api.of("deployments.apps")):
            if key.name.startswith(NAME):
                self._cluster.roll_out(key)

    def start(self) -> None:
        """The pod of the round begins to run."""
        for key, _ in self._pods("Pending"):
            self._cluster.set_phase(key, "Running")

    def _pods(self, phase: str) -> list[tuple[Key, Object]]:
        pods = ((key, pod) for key, pod in self._cluster.api.of("pods") if is_of_round(key))
        return [
            (key, pod)
            for key, pod in pods
            if (pod.get("status") or {}).get("phase", "Pending") == phase
        ]

    def _end(self, key: Key, pod: Object, job: Object, *, may_fail: bool) -> None:
        worker, number, _ = key.name.rsplit("-", 2)
        # With the data of one round in three, most attempts fail.
        if may_fail and self._random.random() < (0.7 if int(number) % 3 == 1 else 0.15):
            self._cluster.set_phase(key, "Failed")
            return
        message = self._result(job, worker, int(number), pod)
        self._cluster.oracle.rounds.told(job["metadata"]["uid"], key.name)

        def succeed() -> None:
            self._cluster.set_phase(key, "Succeeded")

        # A worker ends when its node has its result. One that does not wait may lose it.
        waits = not may_fail or self._random.random() < 0.7
        self._post(job, worker, message, succeed if waits else lambda: None)
        if not waits:
            succeed()

    def _result(self, job: Object, worker: str, number: int, pod: Object) -> ProcessMessage:
        (container,) = pod["spec"]["containers"]
        env = {each["name"]: each.get("value", "") for each in container["env"]}
        urls = env["MODEL_URLS"].split(";") if "MODEL_URLS" in env else [env["MODEL_URL"] + "/m"]
        values = [self._precisions.setdefault(url, self._random.random()) for url in urls]
        numbers: dict[str, int | float] = {"metrics.precision": values[0]}
        if len(urls) > 1:
            numbers["metrics.1.precision"] = values[1]
            oracle = self._cluster.oracle.rounds
            oracle.evaluated(job["metadata"]["uid"], number, values[0] - values[1])
        details = {f"results.{index}.url": url for index, url in enumerate(urls)}
        return ProcessMessage(
            instance=pod["metadata"]["uid"],
            phase=worker.rpartition("-")[2],
            status="completed",
            numbers=numbers,
            details=details,
        )

    def _post(
        self,
        owner: Object,
        worker: str,
        message: ProcessMessage,
        on_done: Callable[[], None] = lambda: None,
    ) -> None:
        spec = owner["spec"]
        node = spec.get("nodeName") or spec["trainSpec"]["template"]["spec"]["nodeName"]
        controller = self._cluster.controllers[node]
        if controller.process.is_alive and controller.intake is not None:
            uid = Uid(owner["metadata"]["uid"])
            controller.post(uid, WorkerName(worker), message, on_done)

    # ---- inference ------------------------------------------------------------------------------

    def load(self) -> Literal["", "completed", "failed"]:
        """The inference worker looks at the file that names its model. It cannot load one in four.

        Returns: completed or failed, where it says that it has looked; "": nothing is new
        """
        wanted, fault = self._wanted()
        is_new = wanted not in ("", self._version)
        self._version = wanted if is_new and not fault else self._version
        if self._tells_version or not is_new:
            return ""
        return "failed" if fault else "completed"

    def model_details(self) -> dict[str, str]:
        """What the worker says of its model with each report."""
        wanted, fault = self._wanted()
        if not self._tells_version or not wanted:
            return {}
        told = {"modelVersion": self._version}
        return {**told, "modelFault": f"version {wanted}: broken"} if fault else told

    def _wanted(self) -> tuple[str, bool]:
        """The version that the file names, and whether it cannot be loaded; "": no file."""
        file = self._cluster.api.objects.get(MODEL_FILE)
        if file is None:
            return "", False
        version = json.loads(file["data"]["model.json"])["model_config"]["model_update_time"]
        return version, int(version) % 4 == 2


def _image(version: str) -> dict[str, Any]:
    return {"template": {"spec": {"containers": containers(version)}}}
