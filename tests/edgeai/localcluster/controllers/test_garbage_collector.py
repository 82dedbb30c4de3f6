"""The garbage collector: the limit of Events, and its start. tests/conformance tests the rest."""

from edgeai.localcluster.controllers.garbage_collector import GarbageCollector
from edgeai.localcluster.objects.resources import CONFIGMAPS, EVENTS
from edgeai.localcluster.objects.store import Store
from tests.edgeai.localcluster.conftest import configmap


def test_only_the_newest_events_are_kept(store: Store) -> None:
    collector = GarbageCollector(store, max_events=10)
    store.listen(collector.enqueue_concerned)
    for index in range(15):
        metadata = {"name": f"e{index:02}", "namespace": "default"}
        store.create(EVENTS, {"metadata": metadata, "involvedObject": {}})
        collector.process_pending()
    names = [event["metadata"]["name"] for event in store.list(EVENTS).items]
    assert len(names) <= 11
    assert names[-1] == "e14"
    assert "e00" not in names


async def test_what_happened_while_it_was_down_is_caught_up(store: Store) -> None:
    owner = store.create(CONFIGMAPS, configmap("owner"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner"}
    reference["uid"] = owner["metadata"]["uid"]
    store.create(CONFIGMAPS, configmap("child", ownerReferences=[reference]))
    store.delete(CONFIGMAPS, "default", "owner")
    collector = GarbageCollector(store)
    collector.enqueue_all()
    assert collector.process_pending()
    assert store.list(CONFIGMAPS).items == []
