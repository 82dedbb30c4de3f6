"""Metrics of jobs: their names, and a bounded number of series."""

from prometheus_client import CollectorRegistry

from edgeai.api.resources import PODS, SERVICES, Object, ObjectRef
from globalmanager.engine.job_metrics import MAX_NAMESPACES, OTHER, JobMetrics, has_just_failed
from globalmanager.kinds.edge.dataset import KIND as DATASET
from globalmanager.kinds.training.gangs import OF_VOLCANO
from globalmanager.kinds.training.pytorchjob import KIND as PYTORCH
from globalmanager.kinds.training.tfjob import KIND as TF
from globalmanager.manifests import crds
from tests.globalmanager.cluster import CRDS, LocalApi, Manager, User, run_manager
from tests.globalmanager.kinds.training.samples import pytorch_spec
from tests.support.waiting import async_eventually

CREATED = {"conditions": [{"type": "Created", "status": "True"}]}


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return registry.get_sample_value(name, labels)


def test_the_names_and_labels_are_those_that_dashboards_know() -> None:
    registry = CollectorRegistry()
    metrics = JobMetrics(registry)
    metrics.written(PYTORCH, "team", {}, CREATED)
    metrics.written(TF, "team", {}, CREATED)
    metrics.job_deleted(TF, "team")
    for framework in ("pytorch", "tensorflow"):
        labels = {"job_namespace": "team", "framework": framework}
        assert value(registry, "training_operator_jobs_created_total", **labels) == 1
    deleted = {"job_namespace": "team", "framework": "tensorflow"}
    assert value(registry, "training_operator_jobs_deleted_total", **deleted) == 1
    own = {"kind": "TFJob", "outcome": "created"}
    assert value(registry, "edgeai_job_outcomes_total", **own) == 1


def test_pods_and_pod_groups_of_training_jobs_are_counted_and_no_others() -> None:
    registry = CollectorRegistry()
    metrics = JobMetrics(registry)
    for kind in (PYTORCH, DATASET):
        for type_ in (PODS, SERVICES, OF_VOLCANO):
            metrics.acted(kind, "Created", type_)
            metrics.acted(kind, "Deleted", type_)
        metrics.pod_failed(kind)
    names = ("created_pods", "deleted_pods", "created_pod_groups", "deleted_pod_groups")
    assert [value(registry, f"{name}_total") for name in (*names, "failed_pods")] == [1.0] * 5


def job(reason: str, message: str = "", *, type_: str = "Stalled", truth: str = "True") -> Object:
    entry = {"type": type_, "status": truth, "reason": reason, "message": message}
    return {"status": {"conditions": [entry]}}


def test_jobs_that_do_not_get_on_are_counted_by_their_cause() -> None:
    registry = CollectorRegistry()
    metrics = JobMetrics(registry)

    def stalled() -> dict[str, float | None]:
        causes = ("crash", "unschedulable", "quota")
        return {cause: value(registry, "edgeai_jobs_stalled", cause=cause) for cause in causes}

    crash, full = job("CrashLoopBackOff"), job("Unschedulable")
    assert stalled() == {"crash": 0, "unschedulable": 0, "quota": 0}
    metrics.changed(None, crash)
    metrics.changed(None, full)
    metrics.changed(None, job("Forbidden", "pods is forbidden: exceeded quota: small"))
    assert stalled() == {"crash": 1, "unschedulable": 1, "quota": 1}
    metrics.changed(full, crash)
    metrics.changed(crash, crash)
    metrics.changed(crash, job("CrashLoopBackOff", truth="False"))
    metrics.changed(None, job("Unschedulable", type_="Accepted"))
    metrics.changed(None, {"status": "odd"})
    assert stalled() == {"crash": 1, "unschedulable": 0, "quota": 1}
    metrics.changed(crash, None)
    assert stalled() == {"crash": 0, "unschedulable": 0, "quota": 1}


def test_the_number_of_series_is_bounded() -> None:
    registry = CollectorRegistry()
    metrics = JobMetrics(registry)
    for number in range(MAX_NAMESPACES + 7):
        metrics.written(PYTORCH, f"team-{number}", {}, CREATED)
    metrics.written(PYTORCH, "team-3", {}, CREATED)
    samples = [
        sample
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == "training_operator_jobs_created_total"
    ]
    assert len(samples) == MAX_NAMESPACES + 1
    labels = {"framework": "pytorch"}
    name = "training_operator_jobs_created_total"
    assert value(registry, name, job_namespace=OTHER, **labels) == 7
    assert value(registry, name, job_namespace="team-3", **labels) == 2


def test_a_pod_that_had_failed_before_it_was_listed_is_not_counted() -> None:
    running, failed = ({"status": {"phase": phase}} for phase in ("Running", "Failed"))
    assert has_just_failed(running, failed)
    assert not has_just_failed(None, failed)
    assert not has_just_failed(failed, failed)
    assert not has_just_failed(failed, None)


async def test_a_restarted_process_counts_no_job_again(bare_cluster: LocalApi, user: User) -> None:
    type_ = PYTORCH.definition.resources[0]
    await user.create(CRDS, crds.crd(PYTORCH, type_))
    metadata = {"name": "mnist", "namespace": "default"}
    labels = {"job_namespace": "default", "framework": "pytorch"}
    pod = ObjectRef(PODS, "default", "mnist-master-0")
    job = ObjectRef(type_, "default", "mnist")

    def count(manager: Manager, name: str) -> float:
        return (
            manager.registry.get_sample_value(f"training_operator_jobs_{name}_total", labels) or 0
        )

    async with run_manager(bare_cluster.kubeconfig, kinds=(PYTORCH,)) as manager:
        spec = pytorch_spec(None, policy="ExitCode")
        await user.create(type_, {"metadata": metadata, "spec": spec})
        await async_eventually("a counted job", lambda: count(manager, "created") == 1)
        await async_eventually(
            "a counted pod", lambda: value(manager.registry, "created_pods_total") == 1
        )
        terminated = {"exitCode": 137}
        states = [{"name": "pytorch", "state": {"terminated": terminated}}]
        failed = {"status": {"phase": "Failed", "containerStatuses": states}}
        await user.client.merge_patch(pod, failed, subresource="status")
        await async_eventually("a restart", lambda: count(manager, "restarted") == 1)
        assert value(manager.registry, "failed_pods_total") == 1

    async with run_manager(bare_cluster.kubeconfig, kinds=(PYTORCH,)) as manager:
        await async_eventually(
            "a look at the job", lambda: manager.engine.initially_assigned.is_set()
        )
        await user.delete(type_, job.name)
        await async_eventually("a counted end", lambda: count(manager, "deleted") == 1)
        again = [count(manager, each) for each in ("created", "restarted", "failed")]
        assert again == [0, 0, 0]
