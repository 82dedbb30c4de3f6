"""A federation of an earlier release, in which one Secret had the secrets of all workers."""

import pytest

from edgeai.api.objects import SPEC_HASH
from edgeai.api.resources import ref_of
from globalmanager.contract import Delete
from globalmanager.kinds.edge.federatedlearningjob import worker_secrets, workers
from globalmanager.kinds.edge.federatedlearningjob.worker_secrets import Layout
from tests.globalmanager.kinds.edge.samples import federated_job, federated_learning_spec
from tests.support.world import NOW, World, at

JOINT = "Secret/digits-federation"
SEPARATE = {f"Secret/digits-{each}" for each in ("aggregation", "train-0", "train-1")}
PODS = ["digits-aggregation", "digits-train-0", "digits-train-1"]


def earlier_release() -> World:
    """A job whose pods run and refer to the joint Secret."""
    world = federated_job(2)
    observed = world.observed()
    secrets = worker_secrets.desired(observed, observed.spec, joint=PODS)
    pods = workers.pods(observed, observed.spec, Layout.JOINT)
    joint = [each for each in secrets if each.object["metadata"]["name"] == "digits-federation"]
    for number, create in enumerate([*joint, *pods]):
        metadata = {**create.object["metadata"], "uid": f"earlier-{number}"}
        world.children[ref_of(create.type, create.object)] = {**create.object, "metadata": metadata}
    return world.pods_become("Running")


def uids(world: World) -> dict[str, str]:
    return {
        ref.name: child["metadata"]["uid"]
        for ref, child in world.children.items()
        if ref.type.kind == "Pod"
    }


def joint_keys(world: World) -> set[str]:
    return {*world.child("Secret", "digits-federation")["data"]}


def test_the_pods_and_the_secret_are_as_the_release_before_made_them() -> None:
    world = earlier_release()
    aggregator = world.child("Pod", "digits-aggregation")
    secret = world.child("Secret", "digits-federation")
    hashes = [each["metadata"]["annotations"][SPEC_HASH] for each in (aggregator, secret)]
    assert hashes == ["46ff4d369900b6f0", "b207ca6847c1cf9f"]


def test_no_running_worker_is_restarted_and_its_secret_stays() -> None:
    world = earlier_release()
    before, secret = uids(world), world.child("Secret", "digits-federation")
    world.settle().pods_become("Running").settle()
    assert uids(world) == before
    assert world.child("Secret", "digits-federation") == secret
    assert {*world.names()} > SEPARATE


@pytest.mark.parametrize("name", PODS)
def test_a_worker_that_is_made_again_uses_its_own_secret_and_its_keys_go(name: str) -> None:
    world = earlier_release().settle()
    before = joint_keys(world)
    world.gone("Pod", name).settle().pods_become("Running").settle()
    assert f"'{name}'" in str(world.child("Pod", name)["spec"])
    assert "digits-federation" not in str(world.child("Pod", name)["spec"])
    keys = {"job", "participants.json"}
    if "train" in name:
        index = name[-1]
        keys = {f"train-{index}", f"participant-{index}"}
    assert before - joint_keys(world) == keys


def test_the_joint_secret_goes_with_the_last_worker_that_uses_it() -> None:
    world = earlier_release().settle()
    for name in PODS[:2]:
        world.gone("Pod", name).settle().pods_become("Running").settle()
        assert JOINT in world.names()
    world.gone("Pod", PODS[2]).settle()
    assert JOINT not in world.names()
    assert {*world.names()} > SEPARATE
    world.pods_become("Running").settle()
    assert world.plan().actions == ()


def test_the_joint_secret_goes_after_the_pods_and_not_with_them() -> None:
    """An edit concerns all workers: the pods are deleted first, the Secret once they are gone."""
    world = earlier_release().settle()
    world.dataset("data2", "edge2").nodes("edge2").change(federated_learning_spec(3))
    deleted = [each.ref.name for each in world.plan().actions if isinstance(each, Delete)]
    assert sorted(deleted) == PODS
    world.settle()
    assert JOINT not in world.names()


def test_a_pod_that_is_being_deleted_still_uses_the_secret() -> None:
    world = earlier_release().settle()
    for ref, child in list(world.children.items()):
        if ref.type.kind == "Pod":
            metadata = {**child["metadata"], "deletionTimestamp": "2026-01-02T03:04:05Z"}
            world.children[ref] = {**child, "metadata": metadata}
    world.settle()
    assert JOINT in world.names()


def test_who_takes_part_goes_on_reaching_an_aggregator_that_runs() -> None:
    world = earlier_release().settle()
    before = world.child("Secret", "digits-federation")["data"]["participants.json"]
    world.other("Dataset", "data0")["status"] = {"numberOfSamples": 1200}
    world.settle()
    assert world.child("Secret", "digits-federation")["data"]["participants.json"] != before


@pytest.mark.parametrize("phase", ["Succeeded", "Running"])
def test_the_joint_secret_of_a_job_that_has_ended_goes(phase: str) -> None:
    world = earlier_release().settle()
    world.pods_become("Succeeded", "digits-aggregation")
    world.pods_become(phase, "digits-train-0", "digits-train-1").settle()
    world.settle(at(1000)).settle(at(1001))
    assert world.condition("Complete")["status"] == "True"
    assert JOINT not in world.names()
    assert world.plan(NOW).actions == ()


def test_the_joint_secret_of_a_job_that_has_ended_waits_for_a_pod_that_stays() -> None:
    """A container that the kubelet starts again reads the Secret."""
    world = earlier_release().settle()
    world.terminates = True
    world.pods_become("Succeeded", "digits-aggregation").settle()
    world.settle(at(1000)).settle(at(1001))
    assert world.condition("Complete")["status"] == "True"
    assert JOINT in world.names()
    world.end_deleted().settle(at(1002))
    assert JOINT not in world.names()


def test_a_new_job_has_no_joint_secret() -> None:
    assert JOINT not in federated_job(2).settle().names()
