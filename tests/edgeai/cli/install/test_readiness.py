"""What is waited for, and which words say it."""

from datetime import timedelta
from typing import Any, Final

from edgeai.api.resources import Object
from edgeai.cli.doctor.edges import EDGE_LABEL
from edgeai.cli.install.readiness import (
    daemon_set_missing,
    definition_missing,
    deployment_missing,
    session_missing,
)
from edgeai.ids import NodeName
from edgeai.times import micro_time, utc_now
from globalmanager.ha.claims import Claim, encode
from globalmanager.ha.elector import REPLICA_LABEL
from globalmanager.ha.presence import CLAIMS_FIELD


def owner(name: str, status: dict[str, Any], **spec: Any) -> Object:
    status = {"observedGeneration": 2, **status}
    return {"metadata": {"name": name, "generation": 2}, "spec": spec, "status": status}


def node(name: str, ready: str, *, is_edge: bool = True) -> Object:
    labels = {EDGE_LABEL: ""} if is_edge else {}
    conditions = [{"type": "Ready", "status": ready}]
    return {"metadata": {"name": name, "labels": labels}, "status": {"conditions": conditions}}


READY: Final = {"replicas": 2, "updatedReplicas": 2, "availableReplicas": 2}


def test_a_deployment_is_ready_when_only_new_pods_are_and_all_of_them() -> None:
    def missing(**changes: Any) -> str:
        return deployment_missing(owner("globalmanager", READY | changes, replicas=2), [])

    assert missing() == ""
    assert missing(availableReplicas=1) == "1 of 2 pods are ready"
    assert missing(updatedReplicas=0) == "0 of 2 pods are ready"
    assert missing(replicas=3) == "1 pods of before still run"
    assert missing(observedGeneration=1) == "the change was not noticed yet"
    assert deployment_missing(None, []) == "the Deployment is not there"


def test_a_quota_and_a_missing_image_are_named() -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "message": "exceeded quota: pods"}
    held = owner("globalmanager", {"conditions": [failure]}, replicas=2)
    assert deployment_missing(held, []) == "0 of 2 pods are ready: exceeded quota: pods"
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    pod = {
        "metadata": {"name": "a", "labels": {"app.kubernetes.io/name": "globalmanager"}},
        "status": {"containerStatuses": [{"name": "globalmanager", "state": waiting}]},
    }
    assert "no such image" in deployment_missing(owner("globalmanager", {}, replicas=2), [pod])


def test_nodes_that_are_away_are_not_waited_for() -> None:
    nodes = [node("a", "True"), node("b", "Unknown"), node("cloud", "Unknown", is_edge=False)]
    status = {"desiredNumberScheduled": 2, "updatedNumberScheduled": 1, "numberAvailable": 1}
    assert daemon_set_missing(owner("localcontroller", status), [], nodes) == ""
    here = [node("a", "True"), node("b", "True")]
    missing = daemon_set_missing(owner("localcontroller", status), [], here)
    assert missing == "1 of 2 pods are ready"
    assert daemon_set_missing(owner("localcontroller", {}), [], []) == ""
    assert daemon_set_missing(None, [], []) == "the DaemonSet is not there"


def test_a_definition_is_served_when_it_is_established() -> None:
    def conditions(*found: tuple[str, str]) -> Object:
        return {"status": {"conditions": [{"type": t, "status": s} for t, s in found]}}

    assert definition_missing(None) == "it is not there"
    assert definition_missing({}) == "it is not NamesAccepted"
    assert definition_missing(conditions(("NamesAccepted", "True"))) == "it is not Established"
    assert definition_missing(conditions(("NamesAccepted", "True"), ("Established", "True"))) == ""


def test_a_pod_of_an_edge_node_that_cannot_be_made_says_why() -> None:
    status = {"desiredNumberScheduled": 1}
    events = [
        {"reason": "FailedCreate", "lastTimestamp": f"2026-01-01T00:00:0{second}Z"}
        | {"message": f"{prefix}Error creating: exceeded quota {second}"}
        for second, prefix in ((1, ""), (3, "(combined from similar events): "), (2, ""))
    ]
    events.append({"reason": "SuccessfulCreate", "message": "Created pod", "lastTimestamp": "9"})
    set_ = owner("localcontroller", status)
    why = daemon_set_missing(set_, [], [node("a", "True")], events)
    assert why == "0 of 1 pods are ready: exceeded quota 3"
    set_["status"]["observedGeneration"] = 0
    assert daemon_set_missing(set_, [], [], events).endswith("noticed yet: exceeded quota 3")


def test_one_session_with_an_edge_node_in_contact_is_enough() -> None:
    nodes = [node("a", "True"), node("b", "True"), node("cloud", "True", is_edge=False)]
    now = utc_now()
    metadata = {"name": "replica", "labels": {REPLICA_LABEL: "replica"}}
    claims = encode({NodeName("a"): Claim(order=1, since=0, ledger="")})
    config_map = {"metadata": metadata, "data": {CLAIMS_FIELD: claims}}
    lease = {"metadata": metadata, "spec": {"renewTime": micro_time(now)}}
    assert session_missing(nodes, [lease], [config_map], now) == ""
    assert session_missing(nodes, [], [], now) == "none of a, b"
    assert session_missing(nodes[1:], [lease], [config_map], now) == "none of b"
    later = now + timedelta(minutes=5)
    assert session_missing(nodes, [lease], [config_map], later) == "none of a, b"
    away = [node("a", "Unknown"), node("cloud", "True", is_edge=False)]
    assert session_missing(away, [], [], now) == ""
