"""Many scalers of one job, on an API server: each is told at once that it waits."""

import asyncio
from typing import Final

from edgeai.api.elastic import SCALE_INS, SCALE_OUTS, TRAINING_JOBS
from edgeai.api.resources import Object
from globalmanager.kinds.elastic.scalein import KIND as SCALE_IN
from globalmanager.kinds.elastic.scaleout import KIND as SCALE_OUT
from globalmanager.kinds.elastic.trainingjob import KIND as TRAINING_JOB
from globalmanager.manifests.crds import crd
from tests.globalmanager.cluster import CRDS, LocalApi, User, run_manager
from tests.support.waiting import async_eventually

MANY: Final = 200  # several times as many as one plan of the job adopts
KINDS: Final = {TRAINING_JOBS: TRAINING_JOB, SCALE_OUTS: SCALE_OUT, SCALE_INS: SCALE_IN}


def job() -> Object:
    template = {"spec": {"containers": [{"name": "main", "image": "none"}]}}
    workers = {"replicas": 1, "minReplicas": 1, "maxReplicas": 500, "template": template}
    return {
        "metadata": {"name": "job", "namespace": "default"},
        "spec": {"etReplicaSpecs": {"launcher": {"template": template}, "worker": workers}},
    }


def scale_out(number: int) -> Object:
    return {
        "metadata": {"name": f"out-{number}", "namespace": "default"},
        "spec": {"selector": {"name": "job"}, "toAdd": {"count": 1}},
    }


async def test_each_of_many_scalers_is_told_once_that_it_waits_and_is_adopted(
    bare_cluster: LocalApi, user: User
) -> None:
    for type_, kind in KINDS.items():
        await user.create(CRDS, crd(kind, type_))
    async with run_manager(bare_cluster.kubeconfig, kinds=tuple(KINDS.values())) as manager:

        def scalers() -> tuple[Object, ...]:
            return manager.engine.jobs.list("scaleouts")

        def untold() -> int:
            return sum("status" not in each for each in scalers())

        await user.create(TRAINING_JOBS, job())
        await asyncio.gather(*(user.create(SCALE_OUTS, scale_out(n)) for n in range(MANY)))
        await async_eventually("all scalers", lambda: len(scalers()) == MANY)
        await async_eventually("a word to each", lambda: untold() == 0)
        assert {each["status"]["phase"] for each in scalers()} == {"Created"}
        await async_eventually(
            "adoptions", lambda: all("ownerReferences" in each["metadata"] for each in scalers())
        )
        assert ("patch", "409") not in manager.writes
        assert {len(each["status"]["conditions"]) for each in scalers()} == {1}
