"""The attackers of the section `hostile` that have the rights of a tenant in one namespace.

Those that make large objects leave them there.
"""

import asyncio
import json
import time
from collections import Counter
from typing import Any, Final

import aiohttp

from edgeai.api.objects import LABEL_KIND, LABEL_MANAGED_BY, LABEL_NAME, MANAGER
from edgeai.cli.api import Object
from tests.bench.onlooker import api_session
from tests.bench.pace import paced
from tests.support.manifests import manifest

Told = Counter[str]

VARIABLES: Final = 30_000
JOBS: Final = 5
PODS_OF_NOBODY: Final = 40
PARALLEL: Final = 4
CHANGES_PER_S: Final = 15


async def fat_jobs(seconds: float, *, connection: list[str], namespace: str, replicas: int) -> Told:
    """Five TFJobs of 1.1 MB, each with so many replicas."""
    path = f"/apis/kubeflow.org/v1/namespaces/{namespace}/tfjobs"
    jobs = [_fat_job(f"fat-{replicas}-{number}", replicas) for number in range(JOBS)]
    return await _make(seconds, connection, namespace, path, jobs)


async def pods_of_nobody(seconds: float, *, connection: list[str], namespace: str) -> Told:
    """Pods of 1 MB with the labels of edgeai's own pods, and without an owner."""
    path = f"/api/v1/namespaces/{namespace}/pods"
    pods = [_pod_of_nobody(number) for number in range(PODS_OF_NOBODY)]
    return await _make(seconds, connection, namespace, path, pods)


async def model_changes(seconds: float, *, connection: list[str], path: str) -> Told:
    """One Model gets another URL again and again. Args: path: of the Model"""
    told: Told = Counter()
    url, ca, token = connection
    async with api_session(url, ca, token) as api:
        async for number in paced(1 / CHANGES_PER_S, seconds):
            body = json.dumps({"spec": {"url": f"/models/{number}.onnx"}}).encode()
            async with api.patch(path, data=body, headers=_MERGE_PATCH) as answer:
                told[f"answer {answer.status}"] += 1
                await answer.read()
    return told


async def _make(
    seconds: float, connection: list[str], namespace: str, path: str, objects: list[Object]
) -> Told:
    """Create the objects, and count the pods of the namespace at the end."""
    told: Told = Counter()
    end_s = time.monotonic() + seconds
    url, ca, token = connection
    async with api_session(url, ca, token) as api:
        limit = asyncio.Semaphore(PARALLEL)

        async def create(object_: Object) -> None:
            body = json.dumps(object_).encode()
            told["bytes"] += len(body)
            async with limit, api.post(path, data=body, headers=_JSON) as answer:
                told[f"answer {answer.status}"] += 1
                await answer.read()

        await asyncio.gather(*map(create, objects))
        await asyncio.sleep(end_s - time.monotonic())
        told["pods at the end"] = await _count(api, namespace)
    return told


_MERGE_PATCH: Final = {"Content-Type": "application/merge-patch+json"}
_JSON: Final = {"Content-Type": "application/json"}
_TABLE: Final = {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}


async def _count(api: aiohttp.ClientSession, namespace: str) -> int:
    """The pods of the namespace, from the API server's cache and without their contents."""
    path = f"/api/v1/namespaces/{namespace}/pods?resourceVersion=0&includeObject=None"
    async with api.get(path, headers=_TABLE) as answer:
        listed: dict[str, Any] = await answer.json()
    return len(listed["rows"] or ())


def _template() -> Object:
    env = [{"name": f"V{number:05}", "value": "x" * 8} for number in range(VARIABLES)]
    return {"spec": {"containers": [{"name": "tensorflow", "image": "none", "env": env}]}}


def _fat_job(name: str, replicas: int) -> Object:
    worker = {"replicas": replicas, "template": _template()}
    return manifest("kubeflow.org/v1 TFJob", name, spec={"tfReplicaSpecs": {"Worker": worker}})


def _pod_of_nobody(number: int) -> Object:
    labels = {
        LABEL_MANAGED_BY: MANAGER,
        LABEL_KIND: "tfjobs.kubeflow.org",
        LABEL_NAME: f"none-{number}",
    }
    pod = manifest("v1 Pod", f"nobody-{number}", **_template())
    pod["metadata"]["labels"] = labels
    return pod
