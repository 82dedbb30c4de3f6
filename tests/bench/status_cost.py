"""What a status write costs the control plane, whoever sends it: a part of the section `scale`.

The same merge patch that a report leads to, four at a time, to jobs with and without
.metadata.managedFields. The API server computes these fields for each write, and compares the whole
object with its schema for that. Nobody but the API server can leave that out.
"""

import asyncio
from typing import Any, Final

import aiohttp
import msgspec

from tests.bench.onlooker import api_session
from tests.bench.samples import NAMESPACE, node_name, path_of, service
from tests.cluster.controlplane import ControlPlane
from tests.support.processes import processor_s

JOBS: Final = 20
WRITES: Final = 400
LANES: Final = 4
_MERGE: Final = {"Content-Type": "application/merge-patch+json"}
_CONDITIONS: Final = ("Accepted", "ResolvedRefs", "Running", "EdgeConnected")


def status_cost(control_plane: ControlPlane) -> dict[str, Any]:
    """Milliseconds of processor time for one write, by process."""
    return asyncio.run(_measure(control_plane))


async def _measure(control_plane: ControlPlane) -> dict[str, Any]:
    url, ca, token = control_plane.url, str(control_plane.ca), control_plane.token
    async with api_session(url, ca, token) as session:
        jobs = _Jobs(session)
        await jobs.create()
        await jobs.write(WRITES)  # so that the API server is warm
        tracked = await _cost(control_plane, jobs)
        await jobs.forget_managers()
        untracked = await _cost(control_plane, jobs)
        await jobs.delete()
    return {"with_managed_fields_ms": tracked, "without_managed_fields_ms": untracked}


async def _cost(control_plane: ControlPlane, jobs: "_Jobs") -> dict[str, float]:
    pids = control_plane.pids()
    before_s = {name: processor_s(pid) for name, pid in pids.items()}
    await jobs.write(WRITES)
    return {
        name: round(1000 * (processor_s(pid) - before_s[name]) / WRITES, 2)
        for name, pid in pids.items()
    }


class _Jobs:
    """Jobs without workers, since their Model does not exist."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._versions: dict[str, str] = {}  # name -> resourceVersion
        self._value = 0

    async def create(self) -> None:
        for number in range(JOBS):
            job = service(number, NAMESPACE, node_name(0))
            job["metadata"]["name"] = name = f"cost-{number}"
            async with self._session.post(path_of(), json=job) as answer:
                await self._note(name, answer)
            await self._patch(name, {"status": _whole_status()}, "/status")

    async def write(self, count: int) -> None:
        names = list(self._versions)

        async def lane(number: int) -> None:
            for turn in range(count // LANES):
                self._value += 1
                name = names[number + LANES * (turn % (JOBS // LANES))]
                await self._patch(name, {"status": _counts(self._value)}, "/status")

        await asyncio.gather(*map(lane, range(LANES)))

    async def forget_managers(self) -> None:
        for name in self._versions:
            await self._patch(name, {"metadata": {"managedFields": [{}]}})

    async def delete(self) -> None:
        for name in self._versions:
            async with self._session.delete(f"{path_of()}/{name}") as answer:
                answer.raise_for_status()

    async def _patch(self, name: str, patch: dict[str, Any], subresource: str = "") -> None:
        metadata = {**patch.get("metadata", {}), "resourceVersion": self._versions[name]}
        body = msgspec.json.encode({**patch, "metadata": metadata})
        path = f"{path_of()}/{name}{subresource}"
        async with self._session.patch(path, data=body, headers=_MERGE) as answer:
            await self._note(name, answer)

    async def _note(self, name: str, answer: aiohttp.ClientResponse) -> None:
        answer.raise_for_status()
        self._versions[name] = (await answer.json())["metadata"]["resourceVersion"]


def _whole_status() -> dict[str, Any]:
    """As a service has it whose worker reports."""
    condition = {
        "status": "True",
        "reason": "Valid",
        "message": "the spec can be carried out",
        "lastTransitionTime": "2026-11-23T00:00:00Z",
        "observedGeneration": 1,
    }
    worker = {"node": node_name(0), "instance": "of a ledger", "attempt": 1}
    counts = _counts(0)
    worker |= {"phase": "inference", "status": "running", **counts["workers"]["edge"]}
    return {
        **counts,
        "phase": "Running",
        "conditions": [{"type": each, **condition} for each in _CONDITIONS],
        "workers": {"edge": worker},
    }


def _counts(value: int) -> dict[str, Any]:
    metrics = {"seen": str(value), "uploaded": str(value), "uploadCloudRatio": "1.0000"}
    return {
        "uploadCount": value,
        "metrics": [{"key": key, "value": told} for key, told in metrics.items()],
        "workers": {"edge": {"revision": value, "taskInfo": {"seen": value, "uploaded": value}}},
    }
