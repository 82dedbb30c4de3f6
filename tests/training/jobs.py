"""What the tests ask about the example's jobs on the local cluster."""

import json
from typing import Any, Final

from edgeai.cli.api import Object, path_of
from edgeai.cli.environment import Environment
from tests.support.waiting import eventually

NAMESPACE: Final = "default"
PATIENCE_S: Final = 300.0


def pods(running: Environment) -> dict[str, Object]:
    items = running.api.get(f"/api/v1/namespaces/{NAMESPACE}/pods")["items"]
    return {pod["metadata"]["name"]: pod for pod in items}


def told(running: Environment, pod: str) -> list[dict[str, Any]]:
    """What the script has told in the log of a pod."""
    lines = running.api.log(NAMESPACE, pod)
    return [json.loads(line) for line in lines if line.startswith("{")]


def wait_for_end(running: Environment, object_: Object) -> Object:
    def check() -> Object | None:
        held = running.api.get(path_of(object_))
        listed = held.get("status", {}).get("conditions", [])
        last = listed[-1]["type"] if listed else ""
        texts = [f"{one['type']}: {one['message']}" for one in listed]
        assert last in ("Succeeded", "Failed"), texts
        return held

    return eventually("the end of the job", check, timeout_s=PATIENCE_S)
