"""A resource with two versions is one resource: one watch, one key, one definition."""

from pathlib import Path

import pytest

from edgeai.api.resources import ResourceType, ref_of
from globalmanager.contract import task_key
from globalmanager.engine.build import served_types
from globalmanager.manifests import crds
from tests.globalmanager.cluster import key_of, run_manager
from tests.globalmanager.gadgets import GADGET, with_types
from tests.globalmanager.objects import GADGETS, make
from tests.globalmanager.scripted_api import ScriptedApi
from tests.support.kubeconfig import write_kubeconfig
from tests.support.waiting import async_eventually

SECOND = ResourceType(GADGETS.group, "v2", GADGETS.plural, GADGETS.kind)
KIND = with_types(GADGET, GADGETS, SECOND)


async def test_only_the_stored_version_is_listed_and_watched(
    scripted: ScriptedApi, tmp_path: Path
) -> None:
    made = make("a", namespace="default", spec={"node": "n1"})
    empty, gadgets = scripted.listing(version=1), scripted.listing(made, version=1)
    scripted.lists = [lambda request: (gadgets if "gadgets" in request.path else empty)(request)]
    scripted.watches = [scripted.stream(then="hang")]
    scripted.others = [scripted.json(made)]
    path = write_kubeconfig(tmp_path / "kubeconfig", scripted.url)
    async with run_manager(path, kinds=[KIND]) as manager:
        await async_eventually(
            "len(scripted.paths('watch')) == 5 and manager.edge.desired",
            lambda: len(scripted.paths("watch")) == 5 and manager.edge.desired,
        )
        watched = [each.path for each in scripted.paths("watch")]
        assert [path for path in watched if path.endswith("/gadgets")] == [GADGETS.path()]
        assert list(manager.edge.desired) == [key_of("a")]
        assert manager.engine.jobs.list("gadgets") == (made,)


def test_both_versions_of_an_object_have_one_task_key() -> None:
    job = make("a")
    assert {task_key(ref_of(type_, job)) for type_ in KIND.definition.types} == {key_of("a", "ns")}


@pytest.mark.parametrize("groups", [None, (GADGETS.group,)])
def test_one_type_is_served(groups: tuple[str, ...] | None) -> None:
    assert served_types([KIND], groups) == {GADGETS: KIND}


def test_one_definition_has_both_versions_and_stores_the_first() -> None:
    definition = crds.crd(KIND, GADGETS)
    versions = {each["name"]: each for each in definition["spec"]["versions"]}
    assert {name: each["storage"] for name, each in versions.items()} == {"v1": True, "v2": False}
    assert all(each["served"] for each in versions.values())
