"""Which nodes read a Model, gathered from the assignments of other jobs."""

from collections.abc import Mapping
from datetime import datetime

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from common.wire import AssignmentBody
from edgeai.api.resources import ObjectRef, ResourceType
from edgeai.api.rollouts import ModelVersion
from edgeai.ids import NodeName, TaskKey, Uid
from globalmanager.contract import Assignment, Observed, Plan
from globalmanager.engine.readers import Readers
from tests.globalmanager.cluster import LocalApi, User, run_manager
from tests.globalmanager.engine.test_fan_out import spin
from tests.globalmanager.gadgets import GADGET, assignments, gadget, plan
from tests.globalmanager.objects import GADGETS
from tests.support.waiting import async_eventually

MODELS = ResourceType("edgeai.io", "v1alpha1", "models", "Model")
SERVICES = ResourceType("edgeai.io", "v1alpha1", "jointinferenceservices", "JointInferenceService")


def model(name: str) -> ObjectRef:
    return ObjectRef(MODELS, "default", name)


def service(name: str) -> ObjectRef:
    return ObjectRef(SERVICES, "default", name)


def on(**inputs: str) -> dict[NodeName, Assignment]:
    """Node -> letters of its inputs."""
    body = AssignmentBody("default", "k")
    return {
        NodeName(node): Assignment(
            TaskKey("k"), Uid("u"), 1, body, inputs=dict.fromkeys(map(model, letters))
        )
        for node, letters in inputs.items()
    }


def test_two_jobs_on_one_node_read_one_model_until_both_have_gone() -> None:
    readers = Readers()
    assert readers.set(service("a"), on(n1="m", n2="m")) == [model("m")]
    assert readers.set(service("b"), on(n2="m")) == []
    assert readers.nodes(model("m")).keys() == {"n1", "n2"}
    assert readers.set(service("a"), {}) == [model("m")]
    assert readers.nodes(model("m")).keys() == {"n2"}
    assert readers.set(service("b"), {}) == [model("m")]
    assert not readers.nodes(model("m"))


def test_two_contents_with_one_number_are_one_on_every_replica() -> None:
    one, other = (ModelVersion(1, url, number=6) for url in ("one", "other"))
    contents = []
    for order in ((one, other), (other, one)):
        readers = Readers()
        for name, content in zip("ab", order, strict=True):
            assignment = msgspec.structs.replace(
                on(n1="m")[NodeName("n1")], inputs={model("m"): content}
            )
            readers.set(service(name), {NodeName("n1"): assignment})
        contents.append(readers.nodes(model("m"))[NodeName("n1")])
    assert contents[0] == contents[1]


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.dictionaries(st.sampled_from(["n1", "n2"]), st.text("xyz", max_size=2)),
        ),
        max_size=12,
    )
)
def test_readers_are_those_of_the_last_assignments(steps: list[tuple[str, dict[str, str]]]) -> None:
    readers, last = Readers(), dict[str, dict[str, str]]()

    def expected(letter: str) -> set[str]:
        return {n for nodes in last.values() for n, letters in nodes.items() if letter in letters}

    for job, nodes in steps:
        before = {letter: expected(letter) for letter in "xyz"}
        last[job] = nodes
        changed = {letter for letter in "xyz" if before[letter] != expected(letter)}
        assert readers.set(service(job), on(**nodes)) == sorted(map(model, changed), key=str)
        for letter in "xyz":
            assert readers.nodes(model(letter)).keys() == expected(letter)


async def test_no_job_is_planned_before_all_its_readers_are_known(
    cluster: LocalApi, user: User
) -> None:
    """A restarted manager would take from the status what the readers have told."""
    input_ = ObjectRef(GADGETS, "default", "input")
    planned: list[frozenset[NodeName]] = []

    def with_input(observed: Observed) -> Mapping[NodeName, Assignment]:
        spin(0.03)  # so plans could be made meanwhile
        inputs = {input_: None} if observed.ref.name == "z" else {}
        return {
            node: msgspec.structs.replace(assignment, inputs=inputs)
            for node, assignment in assignments(observed).items()
        }

    def recorded(observed: Observed, now: datetime) -> Plan:
        if observed.ref == input_:
            planned.append(frozenset(observed.readers))
        return plan(observed, now)

    kind = msgspec.structs.replace(GADGET, assignments=with_input, plan=recorded, has_readers=True)
    for name in ("input", *(f"j{number}" for number in range(8)), "z"):
        await user.create(GADGETS, gadget(name, node="n1"))
    async with run_manager(cluster.kubeconfig, kinds=[kind]) as manager:
        await manager.wait_for_phase("input")
        await async_eventually("the input's plan", lambda: bool(planned))
        assert set(planned) == {frozenset({NodeName("n1")})}
