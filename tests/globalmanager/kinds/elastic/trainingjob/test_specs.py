"""The spec of a TrainingJob: what is refused, what is filled in, and what reaches the pods."""

from typing import Any

import pytest

from edgeai.api.resources import Object
from edgeai.api.specs import InvalidSpec
from edgeai.api.training import CleanPods, RestartPolicy
from edgeai.api.trainingjob import AttachMode
from globalmanager.kinds.elastic.trainingjob.spec import TrainingJob, read
from tests.globalmanager.kinds.elastic.world import (
    JOB,
    LAUNCHER,
    created,
    example,
    launched,
    worker,
)
from tests.support.world import World

REPLICAS = "spec.etReplicaSpecs"


def with_value(path: str, value: Any) -> Object:
    """The example with another value at a path like "worker.replicas"."""
    job = example()
    at: Any = job if path.startswith(("metadata", "spec")) else job["spec"]["etReplicaSpecs"]
    *parents, last = path.split("/")
    for key in parents:
        at = at[int(key)] if isinstance(at, list) else at[key]
    at[last] = value
    return job


# ---- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "field"),
    [
        ("metadata/name", "a" * 52, "metadata.name"),
        ("metadata/name", "1st", "metadata.name"),
        ("metadata/annotations", {"arena.kubeflow.org/ssh-secret": "A B"}, "metadata.annotations"),
        ("spec/etReplicaSpecs", {}, REPLICAS),
        ("spec/etReplicaSpecs", None, REPLICAS),
        ("launcher/replicas", 2, f"{REPLICAS}.launcher.replicas"),
        ("launcher/template", {}, f"{REPLICAS}.launcher.template"),
        ("worker/replicas", 0, f"{REPLICAS}.worker.replicas"),
        ("worker/replicas", 1001, f"{REPLICAS}.worker.replicas"),
        ("worker/replicas", "two", f"{REPLICAS}.worker.replicas"),
        ("worker/minReplicas", 0, f"{REPLICAS}.worker.minReplicas"),
        ("worker/restartPolicy", "Sometimes", f"{REPLICAS}.worker.restartPolicy"),
        ("worker/template", {"spec": {"containers": []}}, f"{REPLICAS}.worker.template"),
        (
            "worker/template",
            {"spec": {"containers": [{"name": "a"}]}},
            f"{REPLICAS}.worker.template",
        ),
        ("spec/launcherAttachMode", "rsh", "spec.launcherAttachMode"),
        ("spec/slotsPerWorker", 0, "spec.slotsPerWorker"),
        ("spec/slotsPerWorker", 10**9, "spec.slotsPerWorker"),
        ("spec/cleanPodPolicy", "Some", "spec.cleanPodPolicy"),
        ("spec/restartPolicy", "Always", "spec.restartPolicy"),
        ("spec/backoffLimit", -1, "spec.backoffLimit"),
    ],
)
def test_a_wrong_field_is_named(path: str, value: Any, field: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        read(with_value(path, value))
    assert refused.value.path.startswith(field)


@pytest.mark.parametrize(("field", "value"), [("minReplicas", 3), ("maxReplicas", 1)])
def test_a_new_job_beyond_its_own_limits_has_failed(field: str, value: int) -> None:
    world = created(example(worker={field: value}))
    assert world.status["phase"] == "Failed"
    assert f"{REPLICAS}.worker.{field}" in world.condition("Failed")["message"]
    assert world.names() == []


# ---- what is filled in --------------------------------------------------------------------------


def accepted(**changes: Any) -> TrainingJob:
    return read(example(**changes))


def test_the_defaults_are_those_of_the_operator() -> None:
    job = example()
    worker_form = job["spec"]["etReplicaSpecs"]["worker"]
    for field in ("replicas", "minReplicas", "maxReplicas"):
        del worker_form[field]
    del job["spec"]["cleanPodPolicy"]
    spec = read(job)
    assert (spec.replicas, spec.min_replicas, spec.max_replicas) == (1, None, None)
    assert (spec.attach_mode, spec.slots, spec.restarts) == (AttachMode.SSH, 1, 0)
    assert spec.clean_pods == CleanPods.RUNNING
    assert spec.worker_policy is RestartPolicy.EXIT_CODE


@pytest.mark.parametrize(
    ("spec", "restarts"),
    [
        ({}, 0),
        ({"backoffLimit": 3}, 0),
        ({"restartPolicy": "OnFailure"}, 6),
        ({"restartPolicy": "OnFailure", "backoffLimit": 0}, 0),
        ({"restartPolicy": "OnFailure", "backoffLimit": 3}, 3),
    ],
)
def test_how_often_the_launcher_may_start_again(spec: dict[str, Any], restarts: int) -> None:
    assert accepted(**spec).restarts == restarts


@pytest.mark.parametrize(
    ("given", "limit", "slots"),
    [
        (None, None, 1),
        (None, "4", 4),
        (None, 4, 4),
        (None, "many", 1),
        (None, "0", 1),
        (None, "9" * 5000, 1),
        (2, "4", 2),
    ],
)
def test_the_slots_follow_the_processors_of_a_worker(
    given: int | None, limit: Any, slots: int
) -> None:
    job = example(slotsPerWorker=given)
    container = job["spec"]["etReplicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
    if limit is not None:
        container["resources"] = {"limits": {"nvidia.com/gpu": limit}}
    assert read(job).slots == slots


# ---- what reaches the pods ----------------------------------------------------------------------


def container_of(world: World, pod: str) -> dict[str, Any]:
    found: dict[str, Any] = world.child("Pod", pod)["spec"]["containers"][0]
    return found


@pytest.mark.parametrize(
    ("mode", "command"),
    [("ssh", "/usr/sbin/sshd  && sleep 365d"), ("kubexec", "sleep 365d")],
)
def test_a_worker_without_a_command_waits_for_the_launcher(mode: str, command: str) -> None:
    world = created(example(launcherAttachMode=mode))
    assert container_of(world, worker(0))["command"] == ["sh", "-c", command]
    assert world.child("Pod", worker(0))["spec"]["restartPolicy"] == "Never"


def test_a_worker_keeps_its_own_command() -> None:
    job = example()
    template = job["spec"]["etReplicaSpecs"]["worker"]["template"]
    template["spec"]["containers"][0]["command"] = ["serve"]
    assert container_of(created(job), worker(0))["command"] == ["serve"]


def test_all_pods_have_the_labels_of_the_operator() -> None:
    world = launched()
    common = {"group-name": "kai.alibabacloud.com", "training-job-name": JOB}
    expected = {
        worker(1): {**common, "training-job-role": "worker", "replica-index": "1"},
        LAUNCHER: {**common, "training-job-role": "launcher"},
    }
    for name, labels in expected.items():
        assert labels.items() <= world.child("Pod", name)["metadata"]["labels"].items()


def test_the_launcher_has_the_files_of_the_operator_as_directories() -> None:
    world = launched()
    spec = world.child("Pod", LAUNCHER)["spec"]
    mounts = {each["mountPath"]: each for each in spec["containers"][0]["volumeMounts"]}
    assert mounts.keys() == {"/root/.ssh", "/etc/edl", "/etc/mpi", "/job"}
    assert not any("subPath" in each for each in mounts.values())
    volumes = {each["name"]: each for each in spec["volumes"]}
    shown = {
        path: sorted(item["path"] for item in volumes[each["name"]]["configMap"]["items"])
        for path, each in mounts.items()
        if "configMap" in volumes[each["name"]]
    }
    assert shown["/job"] == ["hostfile"]
    assert {"hostfile", "discover_hosts.sh"} <= {*shown["/etc/edl"]}
    assert {"hostfile", "discover_hosts.sh", "kubexec.sh", "deepspeed-hostfile"} <= {
        *shown["/etc/mpi"]
    }
    data = world.child("ConfigMap", f"{JOB}-config")["data"]
    assert data["deepspeed-hostfile"] == f"{worker(0)} slots=1\n{worker(1)} slots=1\n"


def test_kubexec_needs_no_key_and_names_the_agent_and_the_pods() -> None:
    world = launched(example(launcherAttachMode="kubexec"))
    assert not [name for name in world.names() if name.startswith("Secret/")]
    env = {each["name"]: each.get("value") for each in container_of(world, LAUNCHER)["env"]}
    assert env["OMPI_MCA_plm_rsh_agent"] == "/etc/mpi/kubexec.sh"
    rules = world.child("Role", LAUNCHER)["rules"]
    assert [rule["resourceNames"] for rule in rules] == [[worker(0), worker(1)]] * len(rules)


def test_ssh_needs_no_rights() -> None:
    world = launched()
    assert world.child("Role", LAUNCHER)["rules"] == []
    assert world.child("ServiceAccount", LAUNCHER)["automountServiceAccountToken"] is False


def test_a_secret_of_the_user_takes_the_place_of_the_jobs() -> None:
    world = created(example(annotations={"arena.kubeflow.org/ssh-secret": "ours"}))
    assert not [name for name in world.names() if name.startswith("Secret/")]
    volumes = world.child("Pod", worker(0))["spec"]["volumes"]
    assert [each["secret"]["secretName"] for each in volumes] == ["ours"]


def test_a_pod_that_names_the_job_as_its_owner_but_is_no_worker_goes() -> None:
    world = created()
    forged = world.child("Pod", worker(0))
    ref = next(ref for ref in world.children if ref.name == worker(0))
    for name in (worker(7), "stranger"):
        metadata = {**forged["metadata"], "name": name, "uid": f"uid-{name}"}
        world.children[type(ref)(ref.type, ref.namespace, name)] = {**forged, "metadata": metadata}
    world.settle()
    assert [name for name in world.names() if name.startswith("Pod/")] == [
        f"Pod/{worker(0)}",
        f"Pod/{worker(1)}",
    ]
