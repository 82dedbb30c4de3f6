"""From a function to a training job: `train`.

from edgeai.client import train

def fit(epochs):
    import torch.distributed
    ...

job = train(fit, args={"epochs": 3}, workers=3)
job.wait()
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from edgeai.api.resources import Object
from edgeai.client.blocking import Client
from edgeai.client.handles import Job
from edgeai.client.objects import PyTorchJob, TFJob
from edgeai.client.program import IMAGE_PYTHON, container, program_of
from edgeai.client.submission import Submission, check, placement

Framework = Literal["pytorch", "tensorflow"]
IMAGES: Final[Mapping[str, str]] = {
    "pytorch": "pytorch/pytorch:2.7.1-cuda12.8-cudnn9-runtime",
    "tensorflow": "tensorflow/tensorflow:2.19.0",
}
"""The image where a user names none: with the framework and Python, as its makers publish it."""
GPU: Final = "nvidia.com/gpu"
# torchrun 1.13, the one of Debian 12, fails with the defaults of both options under Python 3.11.
# Here they are for process 9 of a pod alone: its output is also kept in a file.
_LAUNCHER: Final = ("-m", "torch.distributed.run", "--redirects=9:3", "--tee=9:3")


def train(
    function: Callable[..., object],
    *,
    args: Mapping[str, Any] | None = None,
    framework: Framework = "pytorch",
    workers: int = 1,
    elastic: tuple[int, int] | None = None,
    gpus: int = 0,
    requirements: Sequence[str] = (),
    on: Sequence[str] = (),
    retries: int = 3,
    image: str = "",
    name: str = "",
    namespace: str = "",
    client: Client | None = None,
) -> Job:
    """Start a training job that runs the function in each of its workers.

    The function imports what it needs inside. It finds the others as the framework documents:
    `torch.distributed.init_process_group()`, or TF_CONFIG for TensorFlow.

    Args:
        args: keyword arguments of the function, as JSON has them: keys are strings, and a tuple
            arrives as a list
        workers: number of processes
        elastic: (least, most) workers; the job goes on while at least so many run. PyTorch only
        gpus: of each worker
        requirements: packages that pip installs in each worker first: ["scikit-learn==1.7"]
        on: names of the nodes that may run the workers; empty: any
        retries: how often the job starts again after a failure, before it has failed
        image: of the workers; "" for the one of the framework. The local cluster needs none: it
            runs the function with $EDGEAI_PYTHON, or with the Python of this process
        name: of the job; "" for the name of the function, and letters that make it unique
        namespace: "" for the namespace of the client
        client: None for a new one, for the current context, which the end of the program closes
    Raises: NotShippable for a function that needs what workers lack; InvalidObject; ApiError
    """
    trainer = Trainer(
        program=program_of(function, args or {}),
        framework=framework,
        workers=workers,
        elastic=elastic,
        gpus=gpus,
        requirements=tuple(requirements),
        nodes=tuple(on),
        retries=retries,
        image=image,
    )
    trainer.check()
    submission = Submission.open("train", function, name, namespace, client)
    submission.check_nodes(on)
    kind = PyTorchJob if framework == "pytorch" else TFJob
    job = submission.create(kind, trainer.spec(submission.local_python))
    return Job(submission.client, job)


class Trainer(msgspec.Struct, frozen=True, kw_only=True):
    """A program and the processes that run it. The fields are those of `train`."""

    program: str
    framework: Framework = "pytorch"
    workers: int = 1
    elastic: tuple[int, int] | None = None
    gpus: int = 0
    requirements: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    retries: int = 3
    image: str = ""

    def check(self) -> None:
        """Raises: InvalidObject for what no API server can explain in the words of `train`"""
        least, most = self.elastic or (1, 1)
        is_elastic_tensorflow = self.elastic is not None and self.framework != "pytorch"
        rows = (
            ("framework", self.framework not in IMAGES, "is unknown", f"use {' or '.join(IMAGES)}"),
            ("workers", self.workers < 1, "is less than 1", "use 1 or more"),
            ("elastic", not 1 <= least <= most, "is no pair of bounds", "use (least, most)"),
            ("elastic", is_elastic_tensorflow, "is for PyTorch alone", "leave it out"),
            ("gpus", self.gpus < 0, "is negative", "use 0 or more"),
            ("retries", self.retries < 0, "is negative", "use 0 or more"),
        )
        values = msgspec.structs.asdict(self)
        check("train", [(row[0], row[1], f"{values[row[0]]!r} {row[2]}", row[3]) for row in rows])

    def spec(self, local_python: str = "") -> Object:
        """The spec of the job. Args: local_python: of the local cluster; "" in images"""
        template = self._template(local_python)

        def replicas(number: int) -> Object:
            return {"replicas": number, "restartPolicy": "OnFailure", "template": template}

        policy: Object = {"backoffLimit": self.retries}
        if self.framework == "tensorflow":
            return {"runPolicy": policy, "tfReplicaSpecs": {"Worker": replicas(self.workers)}}
        spec: Object = {"runPolicy": policy}
        if self._is_launched:
            spec["nprocPerNode"] = str(self.gpus or 1)
        if self.elastic is not None:
            least, most = self.elastic
            spec["elasticPolicy"] = {
                "minReplicas": least,
                "maxReplicas": most,
                "rdzvBackend": "c10d",
                # Without it the loss of one worker ends the agents of all others.
                "maxRestarts": self.retries,
            }
            number = min(max(self.workers, least), most)
            return {**spec, "pytorchReplicaSpecs": {"Worker": replicas(number)}}
        # Where one process fails, all start again, because the others fail without it.
        policy["restartScope"] = "Job"
        others = {"Worker": replicas(self.workers - 1)} if self.workers > 1 else {}
        return {**spec, "pytorchReplicaSpecs": {"Master": replicas(1), **others}}

    @property
    def _is_launched(self) -> bool:
        """Whether torchrun starts the processes of each worker."""
        return self.framework == "pytorch" and (self.elastic is not None or self.gpus > 1)

    def _template(self, local_python: str) -> Object:
        replica = {
            "name": self.framework,
            "image": self.image or ("local" if local_python else IMAGES[self.framework]),
            **container(
                self.program,
                python=local_python or IMAGE_PYTHON,
                requirements=self.requirements,
                launcher=_LAUNCHER if self._is_launched else (),
            ),
        }
        if self.gpus:
            replica["resources"] = {"limits": {GPU: self.gpus}}
        return {"spec": {"containers": [replica], **placement(self.nodes)}}
