"""One command at a time changes an installation: a Lease that its holder renews.

A command that was killed renews no more. The next one sees this by its own clock, and goes on.
"""

import asyncio
import os
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

from common.tasks import TaskGroup
from edgeai import times
from edgeai.api.resources import Object, ObjectRef
from edgeai.cli.install.cluster import Cluster
from edgeai.cli.install.errors import InstallError
from edgeai.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from globalmanager.ha.elector import LEASES

LEASE: Final = "edgeai-install"
RENEW_S: Final = 3.0
EXPIRY_S: Final = 12.0
"""Four renewals may be late before another command takes over."""
_POLL_S: Final = 1.0


@asynccontextmanager
async def held(cluster: Cluster) -> AsyncIterator[None]:
    """Raises: InstallError when another command is at work, or takes over"""
    ref = ObjectRef(LEASES, cluster.namespace, LEASE)
    holder = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
    await _acquire(cluster, ref, holder)
    try:
        async with TaskGroup() as group:
            renewing = group.create_task(_renew(cluster, ref, holder), name="renew lock")
            yield
            renewing.cancel()
    except BaseExceptionGroup as found:
        raise found.exceptions[0] from None  # the group has one task beside the body
    finally:
        await asyncio.shield(_release(cluster, ref, holder))


async def _acquire(cluster: Cluster, ref: ObjectRef, holder: str) -> None:
    """Take the Lease when nobody has it, or when its holder has not renewed it for long enough."""
    silent_s, seen = 0.0, ""
    fresh: Object = {"metadata": {"namespace": ref.namespace, "name": ref.name}}
    while True:
        try:
            lease = await cluster.retried(lambda: cluster.client.get(ref))
        except NotFound:
            lease = fresh
        spec = lease.get("spec") or {}
        other = str(spec.get("holderIdentity") or "")
        if not other or silent_s >= EXPIRY_S:
            if await _take(cluster, lease, holder):
                return
            continue  # another command was faster
        mark = f"{other} {spec.get('renewTime')}"
        if seen and mark != seen:
            raise InstallError(
                f"{other} changes this installation now; wait until it has ended, and type it again"
            )
        if not seen:
            cluster.say(f"waiting for {other}, which was at work here; for {EXPIRY_S:g} s at most")
        seen = mark
        await asyncio.sleep(_POLL_S)
        silent_s += _POLL_S


async def _take(cluster: Cluster, lease: Object, holder: str) -> bool:
    wanted = _taken(lease, holder)
    is_there = "resourceVersion" in lease["metadata"]
    write = cluster.client.replace if is_there else cluster.client.create
    try:
        await cluster.retried(lambda: write(LEASES, wanted))
    except (AlreadyExists, Conflict, NotFound):
        return False
    return True


async def _renew(cluster: Cluster, ref: ObjectRef, holder: str) -> None:
    while True:
        await asyncio.sleep(RENEW_S)
        try:
            lease = await cluster.client.get(ref)
            if (lease.get("spec") or {}).get("holderIdentity") != holder:
                raise InstallError(
                    "another command has taken over; type it again when it has ended"
                )
            await cluster.client.replace(LEASES, _taken(lease, holder))
        except ApiError:
            continue  # the body notices what is wrong, and the next turn tries again


async def _release(cluster: Cluster, ref: ObjectRef, holder: str) -> None:
    """The Lease of a namespace that is gone is gone, too."""
    with suppress(ApiError):
        lease = await cluster.client.get(ref)
        if (lease.get("spec") or {}).get("holderIdentity") == holder:
            await cluster.client.delete(ref, uid=lease["metadata"]["uid"])


def _taken(lease: Object, holder: str) -> Object:
    spec = {
        "holderIdentity": holder,
        "renewTime": times.micro_time(times.utc_now()),
        "leaseDurationSeconds": int(EXPIRY_S),
    }
    return {**lease, "spec": spec}
