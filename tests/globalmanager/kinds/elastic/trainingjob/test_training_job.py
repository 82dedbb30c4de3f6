"""plan of a TrainingJob: what is made in which order, and what the launcher is told."""

import cProfile
from typing import Any

import pytest

from globalmanager.kinds.elastic.trainingjob import KIND, launcher
from tests.globalmanager.kinds.elastic.world import (
    LAUNCHER,
    created,
    example,
    launched,
    running,
    worker,
)
from tests.support.world import NOW


def test_first_come_the_key_and_the_workers_with_their_services() -> None:
    world = created()
    assert world.status["phase"] == "WorkersCreated"
    assert world.names() == [
        *(f"Pod/{worker(index)}" for index in range(2)),
        "Secret/elastic-training",
        *(f"Service/{worker(index)}" for index in range(2)),
    ]


def test_the_launcher_follows_with_its_list_of_hosts_and_its_account() -> None:
    world = launched()
    assert world.status["phase"] == "LauncherCreated"
    made = {name for name in world.names() if "worker" not in name}
    assert made == {
        "ConfigMap/elastic-training-config",
        f"Pod/{LAUNCHER}",
        f"Role/{LAUNCHER}",
        f"RoleBinding/{LAUNCHER}",
        "Secret/elastic-training",
        f"ServiceAccount/{LAUNCHER}",
    }
    data = world.child("ConfigMap", "elastic-training-config")["data"]
    assert data["hostfile"] == f"{worker(0)}:1\n{worker(1)}:1\n"


def test_the_wanted_workers_are_in_the_status_before_any_pod_exists() -> None:
    world = created()
    fresh = type(world)(world.kind, example())
    plan = fresh.plan()
    assert plan.actions == ()
    assert plan.status is not None
    assert plan.status["targetWorkers"] == [worker(0), worker(1)]


@pytest.mark.parametrize(
    ("phase", "state"), [("Succeeded", "Succeeded"), ("Failed", "Failed"), ("Running", "Running")]
)
def test_the_launcher_decides(phase: str, state: str) -> None:
    world = running().pods_become(phase, LAUNCHER).settle()
    assert world.status["phase"] == state


@pytest.mark.parametrize(("least", "phase"), [(None, "WorkersCreated"), (1, "LauncherCreated")])
def test_the_launcher_waits_for_the_least_number_of_workers(least: int | None, phase: str) -> None:
    world = created(example(worker={"minReplicas": least}))
    world.pods_become("Running", worker(1)).settle()
    assert world.status["phase"] == phase


def secret_of(world: Any) -> dict[str, str]:
    data: dict[str, str] = world.child("Secret", "elastic-training")["data"]
    return data


def test_a_secret_that_somebody_deleted_comes_back_with_the_same_key() -> None:
    world = running()
    before = secret_of(world)["id_rsa.pub"]
    after = secret_of(world.gone("Secret", "elastic-training").settle())
    assert after["id_rsa.pub"] == before


def calls_of_a_plan(workers: int) -> int:
    """The calls of functions in the plan of a job that has settled."""
    job = example(worker={"replicas": workers, "maxReplicas": 1000})
    world = created(job).pods_become("Running").settle().pods_become("Running").settle()
    observed, profile = world.observed(), cProfile.Profile()
    profile.runcall(KIND.plan, observed, NOW)
    return sum(entry.callcount for entry in profile.getstats())


def test_the_work_of_a_plan_grows_with_the_number_of_workers_and_not_faster() -> None:
    few, many = calls_of_a_plan(20), calls_of_a_plan(80)
    assert many < 4.5 * few
    assert (many - few) / 60 < 300, "calls for one worker; half of what they once were"


@pytest.mark.parametrize("mode", ["ssh", "kubexec"])
def test_a_launcher_without_workers_may_run_commands_in_no_pod(mode: str) -> None:
    """A rule without names would hold for all pods of the namespace."""
    observed = created(example(launcherAttachMode=mode)).observed()
    made = launcher.account(observed, observed.spec, hosts=())
    roles = [each.object["rules"] for each in made if each.type.kind == "Role"]
    assert roles == [[]]


def test_the_key_stays_while_pods_mount_it() -> None:
    world = running(example(launcherAttachMode="ssh"))
    world.change({**world.object["spec"], "launcherAttachMode": "kubexec"}).settle()
    assert "Secret/elastic-training" in world.names()
