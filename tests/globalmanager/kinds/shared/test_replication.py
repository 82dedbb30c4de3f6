"""Names, labels and Services of workers that come in numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from globalmanager.kinds.edge.federatedlearningjob import KIND
from globalmanager.kinds.shared import objects, replication
from tests.support.world import World, job

NAME = st.text("ab0-", min_size=1, max_size=6)


def test_names_are_of_all_indices_in_order() -> None:
    assert replication.replica_names("mnist", "worker", 3) == [
        "mnist-worker-0",
        "mnist-worker-1",
        "mnist-worker-2",
    ]
    assert replication.replica_names("mnist", "worker", 0) == []


@given(NAME, NAME, st.integers(0, 9999))
def test_a_name_tells_its_index(job_name: str, replica_type: str, index: int) -> None:
    name = replication.replica_name(job_name, replica_type, index)
    assert replication.index_of(job_name, replica_type, name) == index


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("", id="empty"),
        pytest.param("mnist-worker", id="no index"),
        pytest.param("mnist-worker-", id="empty index"),
        pytest.param("mnist-worker-x", id="no number"),
        pytest.param("mnist-worker-00", id="another way to write it"),
        pytest.param("mnist-worker--1", id="negative"),
        pytest.param("mnist-worker-10000", id="more digits than there are workers"),
        pytest.param("mnist-worker-\u0661", id="digits of another script"),
        pytest.param("mnist-launcher-0", id="another type"),
        pytest.param("other-worker-0", id="another job"),
        pytest.param("a-mnist-worker-0", id="a job whose name ends so"),
    ],
)
def test_other_names_have_no_index(name: str) -> None:
    assert replication.index_of("mnist", "worker", name) is None


@given(st.text(max_size=30))
def test_any_text_is_judged(name: str) -> None:
    index = replication.index_of("mnist", "worker", name)
    assert index is None or replication.replica_name("mnist", "worker", index) == name


def test_a_service_is_headless_and_selects_one_replica() -> None:
    observed = World(KIND, job("mnist")).observed()
    made = replication.replica_service(observed, "worker", 2, ports={"ssh": 22, "http": 80})
    labels = replication.replica_labels("worker", 2)
    assert made.object["metadata"]["name"] == "mnist-worker-2"
    assert made.object["spec"] == {
        "selector": objects.selector(observed, "worker") | labels,
        "ports": [
            {"name": "ssh", "port": 22, "targetPort": 22, "protocol": "TCP"},
            {"name": "http", "port": 80, "targetPort": 80, "protocol": "TCP"},
        ],
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
    }
    others = [replication.replica_labels("worker", 1), replication.replica_labels("launcher", 2)]
    assert all(labels != other for other in others)


def test_a_service_without_ports_names_its_pod_all_the_same() -> None:
    observed = World(KIND, job("mnist")).observed()
    made = replication.replica_service(observed, "worker", 0, ports={})
    assert "ports" not in made.object["spec"]
    assert made.object["spec"]["clusterIP"] == "None"
