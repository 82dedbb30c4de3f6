"""Samples of training jobs, and the shorthand in which tests compare their status."""

from typing import Any

from edgeai.api.resources import PODS
from globalmanager.contract import Kind
from tests.support.world import World, job


def template(container: str = "pytorch", **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": container, "image": "train:1"}], **spec}}


def pytorch_spec(
    workers: int | None = 2,
    *,
    master: bool = True,
    policy: str = "",
    run: dict[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """Args: workers: None for a job without workers"""
    restart = {"restartPolicy": policy} if policy else {}
    replicas: dict[str, Any] = {}
    if master:
        replicas["Master"] = {"template": template(), **restart}
    if workers is not None:
        replicas["Worker"] = {"replicas": workers, "template": template(), **restart}
    run_policy = {} if run is None else {"runPolicy": run}
    return {"pytorchReplicaSpecs": replicas, **run_policy, **spec}


def tf_spec(
    run: dict[str, Any] | None = None,
    policy: str = "",
    **counts: int,
) -> dict[str, Any]:
    """Args: counts: replica type -> number"""
    restart = {"restartPolicy": policy} if policy else {}
    replicas = {
        type_: {"replicas": count, "template": template("tensorflow"), **restart}
        for type_, count in counts.items()
    }
    return {
        "tfReplicaSpecs": replicas,
        **({} if run is None else {"runPolicy": run}),
    }


def started(kind: Kind, spec: dict[str, Any], name: str = "mnist") -> World:
    """A job whose pods exist."""
    return World(kind, job(name, spec)).settle()


def conditions(world: World) -> list[str]:
    """In their order: "Running", or "Running=False:PyTorchJobSuspended"."""
    return [
        one["type"] if one["status"] == "True" else f"{one['type']}={one['status']}:{one['reason']}"
        for one in world.status.get("conditions", [])
    ]


def pods(world: World) -> list[str]:
    return sorted(ref.name for ref in world.children if ref.type == PODS)


def numbers(world: World, field: str = "replicaStatuses") -> dict[str, dict[str, int]]:
    """The numbers of pods by type, without the selectors."""
    return {
        type_: {key: value for key, value in entry.items() if key != "selector"}
        for type_, entry in world.status[field].items()
    }


def ended(code: int, *, container: str = "pytorch", reason: str = "Error") -> dict[str, Any]:
    """The state of a pod whose container has ended."""
    terminated = {"exitCode": code, "reason": reason}
    return {"containerStatuses": [{"name": container, "state": {"terminated": terminated}}]}
