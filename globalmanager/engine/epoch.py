"""Claims the fencing epoch: a number that is higher for every GlobalManager that starts.

Edges refuse a GlobalManager of a lower epoch than they have seen, so that one which was replaced
while it hung does no harm. The number is `leaseTransitions` of a Lease, raised by an optimistic
update. Called once, by app, at start. The Lease is not renewed: it elects nobody.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from common import logs
from globalmanager.engine.patience import OnProblem, ignore, insist
from globalmanager.kube.client import KubeClient
from globalmanager.kube.errors import NotFound
from globalmanager.model import Object, ObjectRef, ResourceType

log = logs.get_logger(__name__)

LEASES: Final = ResourceType("coordination.k8s.io", "v1", "leases", "Lease")
LEASE_NAME: Final = "edgeai-globalmanager"
_LEASE_DURATION_S: Final = 15


async def claim_epoch(
    client: KubeClient,
    *,
    namespace: str,
    identity: str,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
    on_problem: OnProblem = ignore,
) -> int:
    """An epoch above all that were claimed before in this namespace, from 1.

    Args:
        namespace: the GlobalManager's own
        identity: of this process, for people who look at the Lease
        on_problem: told while the API is away; this waits until it is there
    Raises: ApiError when the API refuses
    """

    async def attempt() -> int:
        return await _claim(client, ObjectRef(LEASES, namespace, LEASE_NAME), identity, now())

    epoch = await insist("epoch", attempt, on_problem=on_problem)
    log.info("epoch claimed", epoch=epoch)
    return epoch


async def _claim(client: KubeClient, ref: ObjectRef, identity: str, now: datetime) -> int:
    try:
        lease = await client.get(ref)
    except NotFound:
        metadata = {"name": ref.name, "namespace": ref.namespace}
        lease = {"metadata": metadata, "spec": _spec(identity, now, epoch=1)}
        await client.create(LEASES, lease)
        return 1
    spec = lease.get("spec") or {}
    epoch = int(spec.get("leaseTransitions") or 0) + 1
    # The resourceVersion that was read goes along: of two that claim at once, one meets Conflict.
    await client.replace(LEASES, {**lease, "spec": {**spec, **_spec(identity, now, epoch=epoch)}})
    return epoch


def _spec(identity: str, now: datetime, *, epoch: int) -> Object:
    micro_time = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return {
        "holderIdentity": identity,
        "acquireTime": micro_time,
        "renewTime": micro_time,
        "leaseDurationSeconds": _LEASE_DURATION_S,
        "leaseTransitions": epoch,
    }
