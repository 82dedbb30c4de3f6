"""Nothing is created for a job that is gone, whatever the garbage collector removes, and when."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from edgeai.cli.api import path_of
from tests.cluster.churn import (
    NOT_FOUND,
    PLURAL,
    ChurnJob,
    come_and_go,
    create_job,
    created_after_gone,
    created_for,
)
from tests.cluster.controlplane import ControlPlane
from tests.cluster.lines import ApiLine
from tests.cluster.samples import create_models
from tests.support.client import Client
from tests.support.manager import GlobalManager
from tests.support.waiting import eventually

VERY_LATE_S: Final = 8.0
LATE_S: Final = 2.0
LIFE_S: Final = 5.0  # of which a manager that hears of a job late has three to make its children
MADE: Final = 4  # for a job: two Deployments, one Service, one Secret
# The garbage collector looks for new types twice a minute.
COLLECTED_S: Final = 90.0


@pytest.fixture
def line(
    crds: ControlPlane, system_namespace: str, nodes: tuple[str, ...], tmp_path: Path
) -> Iterator[ApiLine]:
    """Of a manager that is ready."""
    with ApiLine(crds.url, ca=crds.ca) as line:
        manager = GlobalManager(
            kubeconfig=line.write_kubeconfig(tmp_path / "kubeconfig", token=crds.token),
            system_namespace=system_namespace,
            directory=tmp_path,
        )
        with manager.running():
            yield line


def make_watch_late(line: ApiLine, late_s: float) -> None:
    """That of jobs, from the next watch on, which begins now."""
    line.late_watch, line.late_s = PLURAL, late_s
    line.cut("loudly")
    line.mend()


def wait_until_collected(client: Client, namespace: str) -> None:
    def check() -> bool:
        deployments = client.list(f"/apis/apps/v1/namespaces/{namespace}/deployments")
        services = client.list(f"/api/v1/namespaces/{namespace}/services")
        secrets = client.list(
            f"/api/v1/namespaces/{namespace}/secrets?labelSelector=edgeai.io/name"
        )
        left = [each["metadata"]["name"] for each in (*deployments, *services, *secrets)]
        assert not left, f"there is still {left}"
        return True

    eventually("the end of all that was made", check, timeout_s=COLLECTED_S, poll_s=0.5)


def wait_for_deployments(client: Client, namespace: str) -> None:
    def check() -> bool:
        found = client.list(f"/apis/apps/v1/namespaces/{namespace}/deployments")
        assert len(found) == 2, f"{len(found)} of 2 Deployments"
        return True

    eventually("both Deployments", check)


def wait_until_manager_is_told(job: ChurnJob, line: ApiLine) -> None:
    """Until the API has answered a request about the job by 404."""

    def check() -> bool:
        told = [each for each in line.passed if each.status == NOT_FOUND]
        return any(each.request.path.startswith(job.path) for each in told)

    eventually("an answer that the job is gone", check)


def test_a_dead_job_gets_nothing_while_its_watch_is_late(
    client: Client, line: ApiLine, namespace: str
) -> None:
    create_models(client, namespace)
    make_watch_late(line, VERY_LATE_S)
    job, made = create_job(client, namespace, "digits")
    wait_for_deployments(client, namespace)
    before = created_for([job], line.passed)[job.uid]
    client.delete(path_of(made))
    wait_until_collected(client, namespace)
    wait_until_manager_is_told(job, line)
    assert created_after_gone([job], line.passed) == []
    assert created_for([job], line.passed)[job.uid] == before


def test_of_jobs_that_come_and_go_none_gets_anything_once_it_is_gone(
    client: Client, line: ApiLine, namespace: str
) -> None:
    make_watch_late(line, LATE_S)
    jobs: list[ChurnJob] = come_and_go(client, namespace, count=60, per_s=5.0, life_s=LIFE_S)
    wait_until_collected(client, namespace)
    created = created_for(jobs, line.passed)
    assert created_after_gone(jobs, line.passed) == []
    assert len(created) > len(jobs) / 2, "jobs are to live long enough to get children"
    assert max(created.values()) <= MADE, created  # or a part of that where it died early
