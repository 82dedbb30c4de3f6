"""One elastic job from its creation to its end, on either cluster."""

from pathlib import Path
from typing import Final

import pytest

from edgeai.cli.api import Object, path_of
from edgeai.demo.elastic_training.manifests import SCALE_IN, SCALE_OUT, Placement
from edgeai.demo.manifests import resource
from tests.elastic import progress
from tests.elastic.places import NAMESPACE, Place
from tests.elastic.progress import Event
from tests.support.waiting import eventually

NAME: Final = "elastic-training"
LAUNCHER: Final = f"{NAME}-launcher"
PATIENCE_S: Final = 300.0
PAUSE_S: Final = 0.2
STEPS: Final = 2000
"""So many that the changes are made before the end, also on a busy machine."""


class Course:
    """Args: attach_mode: ssh or kubexec"""

    def __init__(self, place: Place, attach_mode: str) -> None:
        self._place = place
        self.object = place.create(place.job(attach_mode, steps=STEPS, pause_seconds=PAUSE_S))

    # ---- what is done ---------------------------------------------------------------------------

    def scale_out(self) -> Object:
        return self._place.create(resource(SCALE_OUT, _PLACEMENT))

    def scale_in(self) -> Object:
        return self._place.create(resource(SCALE_IN, _PLACEMENT))

    def kill(self, index: int) -> None:
        self._place.kill(worker(index))

    def end(self) -> Event:
        """Returns: what the script told last, of the job that has succeeded"""
        self._place.hurry()

        def check() -> bool:
            phase = self.status().get("phase")
            assert phase in ("Succeeded", "Failed"), f"{phase}, {self.events()[-1:]}"
            return True

        eventually("the end of the job", check, timeout_s=PATIENCE_S, poll_s=0.5)
        assert self.status()["phase"] == "Succeeded", self.log_end()
        return self.events()[-1]

    # ---- what is seen ---------------------------------------------------------------------------

    def status(self) -> Object:
        return dict(self._place.get(path_of(self.object)).get("status") or {})

    def events(self) -> list[Event]:
        return progress.events(self._place.log(LAUNCHER))

    def log_end(self) -> str:
        return "\n".join(self._place.log(LAUNCHER)[-40:])

    def wait_for_workers(self, *indices: int) -> None:
        """Until these workers, and no others, are hosts and take steps."""
        expected = [worker(index) for index in indices]

        def check() -> bool:
            status = self.status()
            if status.get("phase") == "Failed":
                pytest.fail(self.log_end())
            assert status.get("currentWorkers") == expected, status.get("currentWorkers")
            return progress.check_size(self.events(), len(expected))

        eventually(f"the workers {indices}", check, timeout_s=PATIENCE_S, poll_s=0.5)

    def wait_for_steps(self, further: int = 10) -> None:
        wanted = self.events()[-1]["step"] + further

        def check() -> bool:
            assert self.events()[-1]["step"] >= wanted, self.events()[-1]
            return True

        eventually(f"step {wanted}", check, timeout_s=PATIENCE_S, poll_s=0.5)

    def wait_for_scaler(self, scaler: Object) -> None:
        def check() -> bool:
            conditions = self._place.get(path_of(scaler)).get("status", {}).get("conditions", [])
            told = [(one["type"], one.get("message")) for one in conditions]
            assert "ScaleSucceeded" in [type_ for type_, _ in told], told
            return True

        eventually(f"the end of {scaler['kind']}", check, timeout_s=PATIENCE_S)

    def pods(self) -> list[str]:
        items = self._place.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
        names = (str(pod["metadata"]["name"]) for pod in items)
        return sorted(name for name in names if name.startswith(f"{NAME}-"))

    def wait_for_end_of_pod(self, index: int, *, told_by: Object) -> None:
        """A ScaleIn succeeds when the pods are gone. A pod that outlives the timeout holds up no
        scaler, and then the message of the ScaleIn names the pod.
        """
        if worker(index) in self.pods():
            told = self._place.get(path_of(told_by))["status"]["message"]
            assert "did not go" in told, told
        gone = f"the end of {worker(index)}"
        eventually(gone, lambda: worker(index) not in self.pods(), timeout_s=PATIENCE_S)

    def remove(self) -> None:
        self._place.delete(path_of(self.object))
        eventually("the end of the pods", lambda: not self.pods(), timeout_s=PATIENCE_S)


def worker(index: int) -> str:
    return f"{NAME}-worker-{index}"


_PLACEMENT: Final = Placement(files=Path())  # scalers need no files


def check_the_whole_course(course: Course) -> None:
    """Two workers, four, one is killed and replaced, one leaves by name, to the end."""
    course.wait_for_workers(0, 1)
    course.wait_for_scaler(course.scale_out())
    course.wait_for_workers(0, 1, 2, 3)
    course.wait_for_steps()
    course.kill(3)
    course.wait_for_workers(0, 1, 2, 4)
    course.wait_for_steps()
    scale_in = course.scale_in()
    course.wait_for_scaler(scale_in)
    course.wait_for_workers(0, 2, 4)
    course.wait_for_end_of_pod(1, told_by=scale_in)
    result = course.end()
    assert (result["event"], result["workers"]) == ("result", 3)
    assert result["accuracy"] >= 0.95
    progress.check_steps(course.events())
