"""Workers of a TrainingJob that end soon after their start, again and again."""

from datetime import datetime

import pytest

from edgeai.api.resources import Object
from tests.globalmanager.kinds.elastic.room import ElasticCluster, elastic
from tests.globalmanager.kinds.elastic.world import LAUNCHER, example

NO_PROGRAM = 'exec: "/no/such/program": no such file or directory'


class FailingWorkers(ElasticCluster):
    """The container of a worker does not start, 3 seconds after the pod, while its program is
    missing.
    """

    has_program = False

    def tick(self) -> None:
        super().tick()
        for name in self.bound():
            pod = self.pods_of_job()[name]
            made_at = datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
            is_due = (self.clock - made_at).total_seconds() >= 3
            if name != LAUNCHER and not self.has_program and is_due:
                end = {"exitCode": 128, "reason": "StartError", "message": NO_PROGRAM}
                entry = {"name": "mnist-elastic", "state": {"terminated": end}}
                self.set(name, {"status": {"phase": "Failed", "containerStatuses": [entry]}})

    def told_in(self, seconds: int) -> set[tuple[str, bool]]:
        """(reason of Stalled, whether its message has the cause), after each of many plans."""
        found = set()
        for _ in range(2 * seconds):
            self.tick()
            self.planned()
            reason, message = self.stalled()
            found.add((reason, NO_PROGRAM in message))
            self.now += 0.5
        return found


@pytest.mark.parametrize(
    "job", [example(worker={"replicas": 1}), elastic(low=1, high=1)], ids=["fixed", "elastic"]
)
def test_a_job_says_why_its_workers_fail_also_while_others_replace_them(job: Object) -> None:
    cluster = FailingWorkers(job, room=9)
    cluster.told_in(10)
    assert cluster.told_in(200) == {("StartError", True)}
    assert cluster.status["replacedWorkers"] > 4
    cluster.has_program = True
    cluster.rest()
    assert cluster.stalled() == ("", "")
    assert cluster.status["phase"] == "Running"


def test_one_failure_of_a_worker_that_is_replaced_is_no_stall() -> None:
    cluster = FailingWorkers(example(worker={"replicas": 1}), room=9)
    assert cluster.told_in(4) == {("", False)}
    cluster.has_program = True
    assert cluster.told_in(4) == {("", False)}
    assert cluster.status["replacedWorkers"] == 1
