"""The kubelet, the workers and the samples of a job of incremental learning."""

from collections.abc import Callable

from edgeai.ids import Uid, WorkerName
from localcontroller.ledger.attempts import ProcessMessage
from tests.simulation.api import Key, Object
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.oracle import DATASETS, owner_of
from tests.simulation.round_oracle import BETTER, NAME, ROUNDS


class RoundWorkers:
    """The kubelet and the workers of one job, and the samples of its Dataset."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster, self._random = cluster, cluster.world.random
        self._samples = 0
        self._precisions: dict[str, float] = {}  # path of a model in its pods -> of that model

    def create(self) -> None:
        node = self._random.choice(sorted(self._cluster.nodes))
        self._cluster.create_rounds(node, is_hot=self._random.random() < 0.5)

    def add_samples(self) -> None:
        """The node of the Dataset counts more samples; now and then fewer."""
        datasets = (each for key, each in self._cluster.api.of(DATASETS))
        dataset = next((each for each in datasets if each["metadata"]["name"] == NAME), None)
        if dataset is not None:
            self._samples = max(0, self._samples + self._random.choice((1, 5, 20, -3)))
            numbers: dict[str, int | float] = {"numberOfSamples": self._samples}
            details = {"generation": str(dataset["metadata"]["generation"])}
            message = ProcessMessage(instance="hook", numbers=numbers, details=details)
            self._post(dataset, NAME, message)

    def work(self, *, may_fail: bool = True) -> None:
        """Each pod of the job does its next step."""
        jobs = {each["metadata"]["uid"]: each for _, each in self._cluster.api.of(ROUNDS)}
        for key, pod in list(self._cluster.api.of("pods")):
            owner = owner_of(pod)
            phase = (pod.get("status") or {}).get("phase", "Pending")
            if owner in jobs and phase == "Pending":
                self._cluster.set_phase(key, "Running")
            elif owner in jobs and phase == "Running":
                self._end(key, pod, jobs[owner], may_fail=may_fail)
        for key, _ in list(self._cluster.api.of("deployments.apps")):
            if key.name.startswith(NAME):
                self._cluster.roll_out(key)

    def _end(self, key: Key, pod: Object, job: Object, *, may_fail: bool) -> None:
        if may_fail and self._random.random() < 0.15:
            self._cluster.set_phase(key, "Failed")
            return
        worker, number, _ = key.name.rsplit("-", 2)
        message = self._result(job, worker, int(number), pod)

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
            is_better = values[0] - values[1] > BETTER
            self._cluster.oracle.rounds.evaluated(
                job["metadata"]["uid"], number, is_better=is_better
            )
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
