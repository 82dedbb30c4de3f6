"""IncrementalLearningJobs on the local cluster: rounds by the count of samples, with the SDK."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgeai.cli.api import Object, path_of
from edgeai.cli.environment import Environment
from tests.support.waiting import eventually
from tests.system import learning_worker

pytestmark = pytest.mark.timeout(400)
CHECKOUT = Path(__file__).parents[2]
NODE = "edge0"
SDK = [sys.executable, "-u", "-m", learning_worker.__name__]
SEDNA_VARIABLE = "SEDNA_PYTHON"
"""Environment variable: a Python that has Sedna's library, which is on no package index."""


def object_(group: str, kind: str, name: str, spec: Object) -> Object:
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": f"{group}/v1alpha1", "kind": kind, "metadata": metadata, "spec": spec}


def template(program: list[str], role: str) -> Object:
    container = {
        "name": role.rpartition("-")[2],
        "image": "edgeai/test",
        "command": [*program, role],
        "workingDir": str(CHECKOUT),
    }
    spec = {"nodeName": NODE, "containers": [container], "terminationGracePeriodSeconds": 1}
    return {"spec": spec}


class NotDeployed(Exception):
    """A round has ended without its model in use: its end, and the logs of its workers."""


class Learning:
    """A job whose Dataset is a file with a number in each line."""

    def __init__(
        self,
        running: Environment,
        directory: Path,
        name: str,
        *,
        group: str = "edgeai.io",
        messages: str = "",
        program: list[str] = SDK,
        **model: Any,
    ) -> None:
        self.api = running.api
        self.data = directory / f"{name}.txt"
        self.data.touch()
        first = directory / "models" / "first.json"
        first.parent.mkdir(exist_ok=True)
        first.write_text("[0, 0]")
        trained = {"operator": ">=", "threshold": 8, "metric": "num_of_samples"}
        better = {"operator": ">", "threshold": 0.1, "metric": "precision_delta"}
        spec = {
            "initialModel": {"name": name},
            "dataset": {"name": name, "trainProb": 0.8},
            "trainSpec": {
                "template": template(program, f"{messages}train"),
                "trigger": {"condition": trained},
            },
            "evalSpec": {"template": template(program, f"{messages}eval")},
            "deploySpec": {
                "model": {"name": name, **model},
                "template": template(program, "inference"),
                "trigger": {"condition": better},
            },
            "outputDir": str(directory / "output"),
        }
        self.job = object_(group, "IncrementalLearningJob", name, spec)
        self.dataset = object_(group, "Dataset", name, {"url": str(self.data), "nodeName": NODE})
        for each in (object_(group, "Model", name, {"url": str(first)}), self.dataset, self.job):
            self.api.apply(each)

    def add(self, *numbers: float) -> None:
        with self.data.open("a") as file:
            file.writelines(f"{number}\n" for number in numbers)
        # An edit makes the node count at once.
        spec = self.api.get(path_of(self.dataset))["spec"]
        format_ = "" if spec.get("format") else "txt"
        self.api.patch(path_of(self.dataset), {"spec": {"format": format_}})

    def status(self) -> dict[str, Any]:
        return dict(self.api.get(path_of(self.job)).get("status") or {})

    def wait_for_deployment(self, round_: int) -> None:
        def check() -> bool:
            last = self.status().get("last", {})
            if last.get("round") == round_ and last["reason"] != "Deployed":
                raise NotDeployed(last, self.logs("train"), self.logs("eval"))
            assert last.get("round") == round_, self.status()
            return True

        eventually(f"round {round_} is deployed", check, timeout_s=180)

    def pods(self, role: str = "inference") -> list[Object]:
        name = self.job["metadata"]["name"]
        selector = f"edgeai.io/name={name},edgeai.io/role={role}"
        path = f"/api/v1/namespaces/default/pods?labelSelector={selector}"
        return list(self.api.get(path)["items"])

    def logs(self, role: str = "inference") -> list[list[str]]:
        return [self.api.log("default", pod["metadata"]["name"]) for pod in self.pods(role)]

    def wait_for_answer(self, answer: str) -> None:
        def check() -> bool:
            lines = self.logs()
            assert any(answer in "".join(each[-3:]) for each in lines), lines
            return True

        eventually(answer, check, timeout_s=60)


def test_two_rounds_with_a_new_pod_for_each_model(running: Environment, tmp_path: Path) -> None:
    learning = Learning(running, tmp_path, "cold")
    learning.wait_for_answer('"answer": 0.0, "version": null')
    learning.add(*[10] * 10)
    learning.wait_for_deployment(1)
    learning.wait_for_answer('"answer": 10.0')
    learning.add(*[40] * 10)
    learning.wait_for_deployment(2)
    learning.wait_for_answer('"answer": 25.0')
    status = learning.status()
    assert status["progress"]["trained"] == 20
    assert Path(status["deployed"]["url"]).read_text() == "[400.0, 16]"


def test_two_rounds_in_the_same_pod(running: Environment, tmp_path: Path) -> None:
    learning = Learning(running, tmp_path, "hot", hotUpdateEnabled=True, pollPeriodSeconds=1)
    learning.wait_for_answer('"answer": 0.0, "version": 0')
    (pod,) = learning.pods()
    learning.add(*[10] * 10)
    learning.wait_for_deployment(1)
    learning.add(*[40] * 10)
    learning.wait_for_deployment(2)
    learning.wait_for_answer('"answer": 25.0, "version": 2')
    assert [each["metadata"]["uid"] for each in learning.pods()] == [pod["metadata"]["uid"]]


def test_two_rounds_with_the_messages_of_sednas_library(
    running: Environment, tmp_path: Path
) -> None:
    learning = Learning(running, tmp_path, "sedna", group="sedna.io", messages="sedna-")
    learning.add(*[10] * 10)
    learning.wait_for_deployment(1)
    learning.add(*[40] * 10)
    learning.wait_for_deployment(2)
    learning.wait_for_answer('"answer": 25.0')
    present = learning.status()["conditions"][-1]
    assert (present["type"], present["stage"]) == ("Waiting", "Train")
    assert (tmp_path / "models" / "first.json").read_text() == "[0, 0]"


@pytest.fixture
def sedna() -> list[str]:
    """The program of a worker with Sedna's library."""
    python = os.environ.get(SEDNA_VARIABLE, "")
    if not python:
        pytest.skip(f"{SEDNA_VARIABLE} names no Python that has Sedna's library")
    subprocess.run([python, "-c", "import sedna.core.incremental_learning"], check=True)
    return [python, "-u", str(Path(__file__).with_name("sedna_learning_worker.py"))]


def test_two_rounds_with_sednas_library(
    running: Environment, tmp_path: Path, sedna: list[str]
) -> None:
    learning = Learning(running, tmp_path, "library", group="sedna.io", program=sedna)
    learning.add(*[10] * 10)
    learning.wait_for_deployment(1)
    learning.add(*[40] * 10)
    learning.wait_for_deployment(2)
    learning.wait_for_answer("25.0")
    assert (tmp_path / "models" / "first.json").read_text() == "[0, 0]"
