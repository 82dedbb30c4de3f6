"""Job resources that come and go, and what a manager creates for them, as its line saw it.

Used by test_gone and by `python -m tests.bench churn`.
"""

import json
import time
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from edgeai.cli.api import Object, path_of
from tests.cluster.lines import Passed
from tests.cluster.samples import create_models, service
from tests.support.client import Client

PLURAL: Final = "jointinferenceservices"
NOT_FOUND: Final = 404


class ChurnJob(NamedTuple):
    path: str
    """Of the job in the API: a job of another namespace may have the same name."""
    uid: str


def create_job(client: Client, namespace: str, name: str) -> tuple[ChurnJob, Object]:
    made = client.create(service(namespace, name=name))
    return ChurnJob(path_of(made), made["metadata"]["uid"]), made


def come_and_go(
    client: Client, namespace: str, *, count: int, per_s: float, life_s: float
) -> list[ChurnJob]:
    """Create `count` jobs at `per_s` a second, and delete each after `life_s` seconds."""
    create_models(client, namespace)
    begin_s = time.monotonic()
    jobs: list[ChurnJob] = []
    living: list[tuple[float, Object]] = []  # when it is to be deleted, and what
    while len(jobs) < count or living:
        now_s = time.monotonic() - begin_s
        if living and living[0][0] <= now_s:
            client.delete(path_of(living.pop(0)[1]))
        elif len(jobs) < count and len(jobs) / per_s <= now_s:
            job, made = create_job(client, namespace, f"churn-{len(jobs)}")
            jobs.append(job)
            living.append((now_s + life_s, made))
        else:
            time.sleep(0.01)
    return jobs


def created_for(jobs: Iterable[ChurnJob], passed: Iterable[Passed]) -> Counter[str]:
    """How many objects were asked to be created for each uid."""
    uids = {job.uid for job in jobs}
    return Counter(owner for each in passed for owner in _owners(each) if owner in uids)


def created_after_gone(jobs: Iterable[ChurnJob], passed: Iterable[Passed]) -> list[str]:
    """Paths of what was created for a uid after an answer that nothing has the job's name."""
    uids = {job.path: job.uid for job in jobs}
    gone: set[str] = set()
    found: list[str] = []
    for each in passed:
        path = each.request.path.partition("?")[0]
        job = path.removesuffix("/status")
        if each.status == NOT_FOUND and job in uids:
            gone.add(uids[job])
        found += (path for owner in _owners(each) if owner in gone)
    return found


def _owners(passed: Passed) -> list[str]:
    """Uids of the owners of what a request creates."""
    if passed.status is not None or passed.request.method != "POST":
        return []
    metadata = json.loads(passed.request.body).get("metadata") or {}
    return [owner["uid"] for owner in metadata.get("ownerReferences") or ()]
