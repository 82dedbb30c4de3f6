"""The rollout of a fleet on its page: waves, nodes by version, the guard and its curve."""

import re
from typing import Any

import msgspec
import pytest

from edgeai.api.resources import ref_of
from edgeai.api.rollouts import Guard, Phase, Rollout
from edgeai.ids import NodeName
from edgeai.times import parse
from globalmanager.kinds.edge.jointinferenceservice.rollout import Member, decide, place_of
from globalmanager.rest.console.board import ZONE_LABEL
from globalmanager.rest.console.recent import SAMPLE_S
from globalmanager.rest.console.views import MAX_ROLLOUT_CELLS, MAX_SITES
from tests.globalmanager.kinds.edge.samples import EDGEAI
from tests.globalmanager.rest.cluster import RestSide, object_of
from tests.globalmanager.rest.console.conftest import Browser
from tests.globalmanager.rest.fleets import NEW, PAGE, FleetSide, state_of

STATE = msgspec.to_builtins(state_of(Phase.PROGRESSING, wave=1, reach=0))


async def text_of(world: RestSide, path: str = PAGE) -> str:
    async with world.client.get(world.url + path) as answer:
        assert answer.status == 200
        return await answer.text()


def steps(text: str) -> list[tuple[str, str, str]]:
    """(class, name, text) of each wave."""
    [part] = re.findall(r'<ol class="steps".*?</ol>', text, re.DOTALL)
    return re.findall(r'<li class="(\w+)"[^>]*><b>(.*?)</b> (.*?)</li>', part)


def counts(text: str) -> list[str]:
    """What the line above the map says."""
    [line] = re.findall(r'<p class="facts">(<span><span class="cell.*?)</p>', text)
    return [re.sub("<.*?>", "", each).strip() for each in line.split("</span> <span>")]


async def test_a_version_on_its_way_is_drawn_by_waves_and_nodes(world: RestSide) -> None:
    fleet = FleetSide(world, count=80)
    fleet.show(Phase.PROGRESSING, waiting=2, broken=1)
    text = await text_of(world)
    assert steps(text) == [
        ("good", "1", "done: 1 node"),
        ("waiting", "10%", "5 of 8 nodes serve"),
        ("done", "50%", "to come: 40 nodes"),
        ("done", "all", "to come: 80 nodes"),
    ]
    assert counts(text) == [
        "1 unable to load version 7",
        "2 out of contact",
        "2 waiting for version 7",
        "5 with version 7",
        "70 still with version 6",
    ]
    cells = re.findall(r'<a class="cell (\w+)" href="/nodes/([\w-]+)" aria-label="(.*?)"', text)
    assert len(cells) == 80
    assert ("away", "camera-0007", "camera-0007, out of contact") in cells
    assert text.count('tabindex="0"></a>') == 1, "one stop of the Tab key"
    assert "hard of version 7 is 0.2 of 500 samples, and must be &lt; 0.3" in text


async def test_a_worker_that_ends_again_and_again_does_not_serve(world: RestSide) -> None:
    FleetSide(world, count=80).show(Phase.PROGRESSING, crashing=1)
    text = await text_of(world)
    assert steps(text)[1] == ("waiting", "10%", "7 of 8 nodes serve")
    assert counts(text)[0] == "1 with a worker that does not run"


async def test_a_worker_that_is_not_ready_does_not_serve(world: RestSide) -> None:
    FleetSide(world, count=80).show(Phase.PROGRESSING)
    for pods in world.cluster.children_of.values():
        for pod in pods.values():
            pod["status"]["conditions"] = []
    text = await text_of(world)
    assert steps(text)[1] == ("waiting", "10%", "0 of 8 nodes serve")
    assert counts(text) == ["2 out of contact", "78 with a worker that is not ready"]


@pytest.mark.parametrize(
    ("phase", "shown"),
    [
        (Phase.COMPLETE, ["done: 1 node", "done: 8 nodes", "done: 40 nodes", "done: 80 nodes"]),
        (Phase.ROLLED_BACK, ["taken back", "taken back", "not begun", "not begun"]),
        (Phase.PAUSED, ["done: 1 node", "8 of 8 nodes serve", "to come: 40 nodes"]),
    ],
)
async def test_waves_say_how_a_rollout_has_ended(
    world: RestSide, phase: Phase, shown: list[str]
) -> None:
    FleetSide(world, count=80).show(phase)
    text = await text_of(world)
    assert [each[2] for each in steps(text)][: len(shown)] == shown
    assert (", with version 6" in text) == (phase is Phase.ROLLED_BACK)


async def test_a_large_fleet_costs_a_bounded_page(world: RestSide) -> None:
    FleetSide(world, count=5000).show(Phase.PROGRESSING, broken=3)
    text = await text_of(world)
    assert text.count('<a class="cell') == MAX_ROLLOUT_CELLS
    assert counts(text)[:2] == ["3 unable to load version 7", "125 out of contact"]
    assert text.count('<a class="cell bad"') == 3, "the worst come first"
    assert " more" in text
    assert len(text) < 200_000


async def test_who_may_not_list_nodes_sees_no_sites_and_no_links(browser: Browser) -> None:
    world = browser.world
    FleetSide(world, count=8).show(Phase.PROGRESSING)
    [service], [pods] = world.cluster.objects, world.cluster.children_of.values()
    service["metadata"]["namespace"] = "b"
    world.cluster.children_of = {ref_of(EDGEAI, service): pods}
    await browser.log_in("ben's")
    text = (await browser.get(PAGE.replace("/default/", "/b/") + "?namespace=b")).text
    assert "camera-0001, still with version 6" in text
    assert ("lyon" in text, 'href="/nodes/' in text) == (False, False)


@pytest.mark.parametrize(
    "status",
    [
        {"rollout": {"version": 7}},
        {"rollout": {"phase": "Progressing", "wave": "two"}},
        {"rollout": {**STATE, "labels": ["a=b,c"]}},
        {"rollout": ["x"]},
        {"rollout": "x"},
    ],
)
async def test_a_status_that_somebody_else_wrote_breaks_no_page(
    world: RestSide, status: dict[str, Any]
) -> None:
    FleetSide(world, count=2).show(Phase.PROGRESSING)
    [service] = world.cluster.objects
    service["status"] |= status
    await text_of(world)
    await world.recent.sample()


async def test_reports_that_somebody_else_wrote_are_left_out(world: RestSide) -> None:
    FleetSide(world, count=2).show(Phase.PROGRESSING)
    for part in world.cluster.slices.values():
        deep = '{"x":' + "[" * 5000 + "]" * 5000 + "}"
        part["data"] = {"summary": deep, "a": "{", "b": "[1]", "c": '{"node": 3}', "d": deep}
    assert counts(await text_of(world)) == ["2 without a report"]
    await world.recent.sample()


async def test_a_job_that_cannot_be_read_takes_no_curve_from_others(world: RestSide) -> None:
    FleetSide(world, count=2).show(Phase.PROGRESSING)
    [service] = world.cluster.objects
    broken = {**service, "metadata": {"uid": "broken", "namespace": "default"}}
    world.cluster.objects = [broken, service]
    await world.recent.sample()
    world.cluster.objects = [service]
    assert (await world.get(f"{PAGE}/guard"))[1]["series"] != {}


async def test_of_too_many_sites_those_with_the_worst_nodes_are_drawn(world: RestSide) -> None:
    fleet = FleetSide(world, count=MAX_SITES + 50)
    in_contact = [node for node in fleet.nodes if node not in fleet.away]
    broken = min(in_contact, key=lambda node: place_of(node, NEW))
    for node, labels in world.cluster.node_labels.items():
        labels[ZONE_LABEL] = "zz" if node == broken else node
    fleet.show(Phase.PROGRESSING, wave=4, broken=1)
    assert (await text_of(world)).count('<a class="cell bad"') == 1


async def test_the_curve_of_the_guard_ends_with_its_version(world: RestSide) -> None:
    fleet = FleetSide(world, count=80)

    async def sample(phase: Phase, **more: Any) -> None:
        fleet.show(phase, **more)
        await world.recent.sample()
        world.clock.now_s += SAMPLE_S

    async def curve() -> Any:
        return (await world.get(f"{PAGE}/guard"))[1]["series"]

    for hard in (10, 20, 40):
        await sample(Phase.PROGRESSING, hard=hard)
    await sample(Phase.ROLLED_BACK)
    assert await curve() == {"hard of version 7": [0.1, 0.2, 0.4]}
    assert "data-ended" in await text_of(world)
    ended = {uid.partition(" ")[2]: trace.has_ended for uid, trace in world.recent._traces.items()}
    assert ended["hard of version 7"], "another curve may take its place"
    newer = msgspec.structs.replace(NEW, generation=8, number=9)
    await sample(Phase.PROGRESSING, hard=30, version=newer)
    assert await curve() == {"hard of version 9": [0.3]}
    await sample(Phase.PROGRESSING, hard=20, guard=None)
    assert await curve() == {}


async def test_a_job_without_a_rollout_has_no_curve_of_a_guard(world: RestSide) -> None:
    world.cluster.objects = [object_of("cameras")]
    await world.recent.sample()
    assert (await world.get(f"{PAGE}/guard"))[1]["series"] == {}


@pytest.mark.parametrize(
    "samples",
    [
        [(900, 10), (100, 90), (100, 90)],
        [(100_000, 0), (400, 400), (300, 200), (500, 100)],
        [(700, 500)],
        [(0, 0), (800, 400)],
    ],
)
def test_the_figure_is_the_one_by_which_the_kind_judges(samples: list[tuple[int, int]]) -> None:
    guard = Guard(metric="hard", operator="<", threshold=0.0, min_samples=500)
    members = [
        Member(NodeName(f"n{number}"), {}, True, True, NEW.number, samples=seen, hits=hard)
        for number, (seen, hard) in enumerate(samples)
    ]
    state = state_of(Phase.PROGRESSING, wave=1, reach=max(place_of(m.node, NEW) for m in members))
    rollout = Rollout(waves=["1"], guard=guard)
    after = decide(rollout, state, None, members, parse("2026-01-02T03:04:05Z")).state
    assert after is not None
    total, hits = guard.share_of(samples)
    assert f"hard is {hits / total:.4g} of {total:.0f} samples" in after.message
