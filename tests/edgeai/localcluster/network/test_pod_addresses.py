"""Addresses of headless Services and their pods, by the store alone."""

import pytest

from edgeai.localcluster.kubelet.launch import service_hosts
from edgeai.localcluster.network.addresses import AddressesExhausted, AddressPool, PortPool
from edgeai.localcluster.network.pod_addresses import PodAddresses
from edgeai.localcluster.objects.resources import PODS, SERVICES, Object
from edgeai.localcluster.objects.store import Store
from tests.edgeai.localcluster.running import patch


def create_service(store: Store, name: str, **spec: object) -> Object:
    given = {"clusterIP": "None", "selector": {"app": name}, "ports": [{"port": 5000}]} | spec
    metadata = {"name": name, "namespace": "default"}
    return store.create(SERVICES, {"metadata": metadata, "spec": given})


def create_pod(store: Store, name: str, app: str = "") -> Object:
    metadata = {"name": name, "namespace": "default", "labels": {"app": app or name}}
    spec = {"containers": [{"name": "main", "image": "none"}]}
    return store.create(PODS, {"metadata": metadata, "spec": spec})


def addresses_of(store: Store, *free: str) -> PodAddresses:
    return PodAddresses(store, AddressPool("pod", free))


def test_services_with_a_cluster_ip_are_untouched(store: Store) -> None:
    addresses = addresses_of(store, "a", "b")
    create_service(store, "one", clusterIP="127.9.1.1")
    create_service(store, "headless")
    create_service(store, "empty", clusterIP="")
    create_service(store, "new", clusterIP=None)
    hosts = service_hosts(store.list(SERVICES).items, addresses)
    assert {host.name: host.address for host in hosts} == {"one": "127.9.1.1", "headless": "a"}


def test_an_address_is_free_when_the_service_and_its_pod_are_gone(store: Store) -> None:
    addresses = addresses_of(store, "a")
    create_service(store, "s")
    pod = create_pod(store, "s")
    assert addresses.take(pod) == "a"
    store.delete(SERVICES, "default", "s")
    with pytest.raises(AddressesExhausted):
        addresses.take(create_pod(store, "other"))
    addresses.release(pod["metadata"]["uid"])
    assert addresses.take(create_pod(store, "third")) == "a"


def test_a_service_without_an_address_stands_for_its_pod(store: Store) -> None:
    addresses = addresses_of(store, "a")
    service = create_service(store, "s", selector={"app": "p"})
    create_service(store, "late")
    late = create_service(store, "later", selector={"app": "p"})
    assert [addresses.address(service), addresses.address(late)] == ["a", ""]
    addresses.take(create_pod(store, "p"))
    assert addresses.address(late) == "a"


def test_a_new_selector_counts_for_the_next_pod(store: Store) -> None:
    addresses = addresses_of(store, "a", "b")
    create_service(store, "s")
    patch(store, SERVICES, "default", "s", {"spec": {"selector": {"app": "other"}}})
    assert addresses.take(create_pod(store, "s")) == "b"
    assert addresses.take(create_pod(store, "other")) == "a"


def test_a_pod_that_was_there_before_the_cluster_started_has_its_address(store: Store) -> None:
    for name in ("first", "second"):
        create_service(store, name)
    create_pod(store, "new")
    old = create_pod(store, "second")
    old = store.update(PODS, old | {"status": {"podIP": "a"}}, subresource="status")
    addresses = addresses_of(store, "a", "b", "c")
    found = [addresses.address(each) for each in store.list(SERVICES).items]
    assert found == ["b", "a"]
    assert addresses.take(old) == "a"


def test_only_the_last_deleted_services_are_remembered(store: Store) -> None:
    addresses = PodAddresses(store, AddressPool("pod", "abcd"), former_limit=1)
    for name in ("one", "two"):
        create_service(store, name)
        store.delete(SERVICES, "default", name)
    assert addresses.address(create_service(store, "two")) == "b"
    assert addresses.address(create_service(store, "one")) == "c"


def test_a_name_leads_to_a_pod_that_runs_before_one_that_has_ended(store: Store) -> None:
    addresses = addresses_of(store, "a", "b")
    service = create_service(store, "s")
    first, second = (create_pod(store, name, "s") for name in ("first", "second"))
    assert [addresses.take(first), addresses.take(second)] == ["a", "b"]
    assert addresses.address(service) == "a"
    store.update(PODS, first | {"status": {"phase": "Failed"}}, subresource="status")
    assert addresses.address(service) == "b"
    store.delete(PODS, "default", "second", grace_period_s=0)
    assert addresses.address(service) == "a"


def test_a_service_made_anew_shares_its_address_with_a_pod_that_ends(store: Store) -> None:
    """An ended pod is gone from the API before its kubelet has released the address."""
    addresses = addresses_of(store, "a", "b")
    create_service(store, "s")
    pod = create_pod(store, "s")
    addresses.take(pod)
    store.delete(SERVICES, "default", "s")
    store.delete(PODS, "default", "s", grace_period_s=0)
    assert addresses.address(create_service(store, "s")) == "a"
    addresses.release(pod["metadata"]["uid"])
    assert addresses.take(create_pod(store, "other")) == "b"


def test_a_port_is_taken_once_for_each_port_of_a_service(store: Store) -> None:
    addresses = PodAddresses(store, AddressPool("pod", "ab"), PortPool(range(20_000, 20_050)))
    for name in ("one", "two"):
        create_service(store, name)
    keys = [("default", "one"), ("default", "one"), ("default", "two")]
    ports = [addresses.port(key, port) for key, port in zip(keys, (22, 23, 22), strict=True)]
    assert len(set(ports)) == 3
    assert [addresses.port(keys[0], 22), addresses.port(keys[2], 22)] == [ports[0], ports[2]]
    assert addresses.port(("default", "unknown"), 22) == 22


def test_the_ports_of_forgotten_services_are_free(store: Store) -> None:
    pool = AddressPool("pod", "abcd")
    free_port = PortPool().take()
    addresses = PodAddresses(store, pool, PortPool([free_port]), former_limit=0)
    for name in ("one", "two"):
        create_service(store, name)
        assert addresses.port(("default", name), 22) == free_port
        store.delete(SERVICES, "default", name)
