"""A deployed model becomes that of a Model, once, for the services that use the Model."""

from typing import Any

import pytest

from globalmanager.contract import Patch, Plan
from tests.globalmanager.kinds.edge.incrementallearningjob.learning import (
    condition,
    directory,
    evaluate,
    roll_out,
    tell,
    train,
)
from tests.globalmanager.kinds.edge.samples import (
    counted,
    incremental_job,
    incremental_learning_spec,
)
from tests.support.world import NOW, World, at

OWN = "s3://out/dir/helmet-uid-1"
ROUND_1 = f"{OWN}/1-0/model/m.pb"
DIGEST = "0" * 64


def publishing_spec(suspend: bool = False, **deploy: Any) -> dict[str, Any]:
    form = incremental_learning_spec()["deploySpec"] | {"publish": {"name": "fleet"}} | deploy
    return incremental_learning_spec(outputDir="s3://out/dir", suspend=suspend, deploySpec=form)


def publishing_job(**fields: Any) -> World:
    world = incremental_job(**{**publishing_spec(), **fields})
    return world.model("fleet", "s3://models/first.pb", sha256=DIGEST)


def deploying(world: World) -> World:
    """The round of the job has come to its deployment."""
    return evaluate(train(world.settle()))


def url(world: World) -> str:
    return str(world.other("Model", "fleet")["spec"]["url"])


def patches(plan: Plan | None) -> list[Patch]:
    return [each for each in (plan.actions if plan else ()) if isinstance(each, Patch)]


def reasons(plans: list[Plan]) -> list[str]:
    return [event.reason for plan in plans for event in plan.events if event.reason == "Published"]


def settled(world: World) -> list[Plan]:
    """The plans until nothing changes."""
    plans = []
    while (plan := world.step()) is not None:
        plans.append(plan)
    return plans


def test_a_deployed_model_becomes_that_of_the_model_once_with_an_event() -> None:
    world = deploying(publishing_job())
    assert url(world) == "s3://models/first.pb", "not before its worker has it"
    plans = settled(roll_out(world))
    assert [len(patches(plan)) for plan in plans].count(1) == 1
    assert world.other("Model", "fleet")["spec"] == {"url": ROUND_1}, "without the old digest"
    assert world.status["published"] == {"round": 1, "model": "fleet", "url": ROUND_1}
    (event,) = [each for plan in plans for each in plan.events if each.reason == "Published"]
    assert event.message == f"Model fleet has the model of round 1 now: {ROUND_1}"


@pytest.mark.parametrize("edit", ["s3://models/mine.pb", "/models/mine.pb"])
def test_what_a_user_writes_into_the_model_later_stays(edit: str) -> None:
    world = deploying(publishing_job())
    roll_out(world).settle()
    world.model("fleet", edit)
    assert world.step() is None
    assert url(world) == edit


def test_the_next_deployed_round_is_published_in_its_turn() -> None:
    world = deploying(publishing_job())
    roll_out(world).settle()
    counted(roll_out(world, updatedReplicas=0), data=20)
    deploying(world)
    assert url(world) == ROUND_1
    roll_out(world).settle()
    assert url(world) == "s3://out/dir/helmet-uid-1/2-0/model/m.pb"
    assert world.status["published"]["round"] == 2


def test_a_round_that_is_not_deployed_publishes_nothing() -> None:
    world = publishing_job().settle()
    assert patches(world.plan()) == []
    evaluate(train(world), new=0.55)
    assert world.status["last"]["reason"] == "NotDeployed"
    world = deploying(publishing_job())
    world.settle(at(10**4))
    assert world.status["last"]["reason"] == "DeployFailed"
    assert url(world) == "s3://models/first.pb"
    assert "published" not in world.status


def test_a_model_that_has_the_url_already_is_only_noted() -> None:
    world = deploying(publishing_job()).model("fleet", ROUND_1)
    plans = settled(roll_out(world))
    assert not [patch for plan in plans for patch in patches(plan)]
    assert world.status["published"]["round"] == 1
    assert reasons(plans) == ["Published"]


def test_a_kill_after_the_patch_repeats_nothing() -> None:
    world = roll_out(deploying(publishing_job()))
    while not patches(plan := world.plan()):
        world.apply(plan)
    world.apply(plan, actions=len(plan.actions))
    assert url(world) == ROUND_1
    assert "published" not in world.status
    plans = settled(world)
    assert not [patch for plan in plans for patch in patches(plan)]
    assert world.status["published"]["round"] == 1


def test_the_model_is_that_of_the_format_of_the_model() -> None:
    world = publishing_job().model("fleet", "s3://models/first.onnx", format="onnx").settle()
    root = directory(world)
    tell(world, "train", f"{root}/m.pb", f"{root}/m.onnx").settle()
    roll_out(evaluate(world)).settle()
    assert world.status["deployed"]["url"] == ROUND_1
    assert url(world) == "s3://out/dir/helmet-uid-1/1-0/model/m.onnx"


def test_publishing_does_not_keep_the_next_round_from_beginning() -> None:
    world = roll_out(deploying(publishing_job()))
    world.apply(world.plan())
    assert patches(world.plan())
    counted(world, data=20)
    assert not patches(world.step()), "the decision comes first"
    assert world.status["current"]["number"] == 2
    assert url(world.settle()) == ROUND_1


def test_nothing_is_published_while_the_job_is_suspended() -> None:
    world = roll_out(deploying(publishing_job()))
    world.apply(world.plan())
    assert world.status["last"]["reason"] == "Deployed"
    world.change(publishing_spec(suspend=True))
    world.settle()
    assert url(world) == "s3://models/first.pb"
    world.change(publishing_spec())
    world.settle()
    assert url(world) == ROUND_1


def test_a_model_that_is_named_later_gets_what_is_deployed() -> None:
    spec = publishing_spec()
    del spec["deploySpec"]["publish"]
    world = incremental_job(**spec)
    roll_out(deploying(world)).settle()
    assert world.step() is None
    world.change(publishing_spec())
    world.settle()
    assert condition(world)["reason"] == "Waiting"
    assert world.condition("ResolvedRefs")["reason"] == "ModelNotFound"
    world.model("fleet", "s3://models/first.pb").settle()
    assert url(world) == ROUND_1


def test_a_model_on_a_node_from_before_an_edit_of_the_directory_is_not_published() -> None:
    world = roll_out(evaluate(train(incremental_job().settle()))).settle()
    assert world.status["deployed"]["url"].startswith("/output/")
    world.change(publishing_spec())
    world.model("fleet", "s3://models/first.pb").settle()
    assert url(world) == "s3://models/first.pb"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"outputDir": "/output"}, "spec.outputDir"),
        ({"initialModel": {"name": "fleet"}}, "spec.initialModel.name"),
        ({"deploySpec": publishing_spec(model={"name": "fleet"})["deploySpec"]}, "spec.deploySpec"),
        ({"evalSpec": {"initialEvalModel": {"name": "fleet"}}}, "spec.evalSpec.initialEvalModel"),
        ({"deploySpec": publishing_spec(publish={"name": "No"})["deploySpec"]}, "spec.deploySpec"),
    ],
)
def test_what_cannot_be_published_is_refused(fields: dict[str, Any], message: str) -> None:
    spec = publishing_spec()
    for name, value in fields.items():
        spec[name] = {**spec[name], **value} if name == "evalSpec" else value
    world = incremental_job(**spec).model("fleet").settle()
    accepted = world.condition("Accepted")
    assert accepted["reason"] == "InvalidSpec"
    assert message in accepted["message"]


def test_another_model_that_is_named_later_gets_what_is_deployed_too() -> None:
    world = roll_out(deploying(publishing_job())).settle()
    world.model("other", "s3://models/other.pb")
    world.change(publishing_spec(publish={"name": "other"})).settle()
    assert world.other("Model", "other")["spec"]["url"] == ROUND_1
    assert world.status["published"]["model"] == "other"


def test_what_the_inference_worker_does_not_have_any_more_is_not_published() -> None:
    """After an edit, it answers with another Model."""
    world = roll_out(deploying(publishing_job()))
    world.apply(world.plan())
    world.model("newer").change(publishing_spec(model={"name": "newer"})).settle()
    assert url(world) == "s3://models/first.pb"


@pytest.mark.parametrize("is_of_formats", [True, False])
@pytest.mark.parametrize(
    ("forged", "is_published"),
    [
        (f"{OWN}/1-0/model/other.pb", True),
        (f"{OWN}/../../../evil/m.pb", False),
        (f"{OWN}/{'m' * 2048}", False),
        ("s3://evil/helmet-uid-1/1-0/model/m.pb", False),
        ("s3://evil/dir/1-0/model/m.pb", False),
        ("https://evil/1-0/model/m.pb", False),
    ],
)
def test_a_url_that_somebody_wrote_into_the_status_is_not_published(
    forged: str, is_published: bool, is_of_formats: bool
) -> None:
    world = publishing_job().settle()
    # Not of the round in progress, of which nothing is published.
    deployed = {"round": 9, "model": "deployed", "url": forged, "time": "2026-01-01T00:00:00Z"}
    if is_of_formats:
        deployed |= {"url": ROUND_1, "models": [{"url": forged}]}
    world.object = {**world.object, "status": {**world.status, "deployed": deployed}}
    assert url(world.settle()) == (forged if is_published else "s3://models/first.pb")
    assert world.condition("ResolvedRefs")["status"] == "True"


def test_a_model_without_its_keys_in_the_workers_is_no_clash() -> None:
    world = publishing_job(credentialName="keys").secret("keys").secret("of-fleet")
    world.model("fleet", "s3://models/first.pb", credentialName="of-fleet").settle(NOW)
    assert world.condition("ResolvedRefs")["status"] == "True"
