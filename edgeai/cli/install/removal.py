"""`edgeai uninstall`: removes what the installation has made, and nothing else.

Jobs and definitions stay unless they are asked for. With a definition all its jobs go, and without
a GlobalManager nobody ends their workers: so jobs are removed first, while it still runs.
"""

import asyncio
import itertools
from contextlib import suppress
from functools import partial
from typing import Final

from edgeai.api.resources import PODS, SECRETS, Object, ObjectRef, ResourceType
from edgeai.cli.doctor.parts import MANAGER, part_of
from edgeai.cli.install import contents, lock, record
from edgeai.cli.install.cluster import Cluster, Name, name_of, some
from edgeai.cli.install.errors import InstallError
from edgeai.cli.install.installation import loaded, namespace_of
from edgeai.kube.errors import NotFound
from globalmanager.cache.informers import MANAGED
from globalmanager.ha.elector import LEASES, REPLICA_LABEL
from globalmanager.kinds import KINDS
from globalmanager.rootkey import SECRET_NAME

_DEFINITION: Final = "CustomResourceDefinition"
_FIRST: Final = ("DaemonSet", "Deployment")
_LOOK: Final = "its finalizers say who holds it; type the same command to go on"


async def uninstall(cluster: Cluster, *, jobs: bool = False, crds: bool = False) -> None:
    """Args:
        jobs: remove all jobs of the definitions that the installation has made
        crds: remove these definitions
    Raises: InstallError when jobs exist and would go with the definitions
    """
    namespace = await cluster.find(namespace_of(cluster.namespace))
    if namespace is None:
        raise InstallError(f"there is no namespace {cluster.namespace}, so edgeai is not there")
    if "deletionTimestamp" in namespace["metadata"]:
        cluster.say(f"namespace {cluster.namespace} is being deleted already")
        await _end_of_namespace(cluster)
        return
    # One that was killed before its record was written has made the namespace alone.
    has_record = await record.load(cluster) is not None
    if has_record or not cluster.is_ours(namespace):
        async with lock.held(cluster):
            present = await loaded(cluster)
            await _remove(cluster, present.inventory, jobs=jobs, crds=crds)
            others = await contents.of_others(cluster)
            if not cluster.is_ours(namespace) or others:
                await _keep_namespace(cluster, others)
                return
    await cluster.delete(namespace_of(cluster.namespace))
    await _end_of_namespace(cluster)


async def _remove(cluster: Cluster, inventory: tuple[Name, ...], *, jobs: bool, crds: bool) -> None:
    """All but the namespace and the record."""
    names = [name for name in inventory if name.kind == _DEFINITION]
    definitions = [each for _, each in await cluster.find_all(names) if cluster.is_ours(each)]
    found = {str(type_): len(each) for type_, each in (await _jobs(cluster, definitions)).items()}
    number = sum(found.values())
    counts = some([f"{count} {type_}" for type_, count in found.items() if count])
    if number and crds and not jobs:
        raise InstallError(
            f"{number} jobs exist ({counts}), and go with their definitions; to remove "
            "them type --jobs, too, or leave out --crds"
        )
    if number and jobs:
        cluster.say(f"removing {number} jobs: {counts}")
        await _delete_jobs(cluster, definitions)
    if jobs or crds:
        # An earlier command may have removed the jobs, and not have seen the end of their objects.
        await _end_of_jobs(cluster, definitions)
    elif number:
        cluster.say(f"warning: {number} jobs stay ({counts}), and nobody serves them from now on")
    others = [name for name in inventory if name.kind not in (_DEFINITION, "Namespace")]
    order = [*_FIRST, *sorted({name.kind for name in others} - {*_FIRST})]
    removed = [
        name
        for name in sorted(others, key=lambda name: order.index(name.kind))
        if await cluster.delete(name)
    ]
    cluster.say(f"removed {len(removed)} objects")
    if crds:
        for each in definitions:
            await cluster.delete(name_of(each))
        cluster.say(f"removed {len(definitions)} definitions")


async def _jobs(cluster: Cluster, definitions: list[Object]) -> dict[ResourceType, list[Object]]:
    """All jobs of the definitions, in all namespaces."""
    types = [_type_of(definition) for definition in definitions]
    jobs = await asyncio.gather(*(_all_of(cluster, type_) for type_ in types))
    return dict(zip(types, jobs, strict=True))


async def _all_of(cluster: Cluster, type_: ResourceType, label_selector: str = "") -> list[Object]:
    """Their metadata, from all namespaces."""
    list_ = partial(cluster.client.list, type_, label_selector=label_selector, metadata_only=True)
    try:
        return (await cluster.retried(list_)).items
    except NotFound:
        return []  # nobody has installed the type, or its definition was deleted meanwhile


def _type_of(definition: Object) -> ResourceType:
    spec = definition["spec"]
    version = next(each["name"] for each in spec["versions"] if each.get("storage"))
    names = spec["names"]
    return ResourceType(
        spec["group"],
        version,
        names["plural"],
        names["kind"],
        namespaced=spec.get("scope") == "Namespaced",
    )


async def _delete_jobs(cluster: Cluster, definitions: list[Object]) -> None:
    for type_, found in (await _jobs(cluster, definitions)).items():
        for each in found:
            metadata = each["metadata"]
            ref = ObjectRef(type_, metadata["namespace"], metadata["name"])
            try:
                await cluster.retried(partial(cluster.client.delete, ref))
            except NotFound:
                continue


async def _end_of_jobs(cluster: Cluster, definitions: list[Object]) -> None:
    """Wait until all jobs and their children are gone. Raises: InstallError at the deadline"""
    types = [_type_of(each) for each in definitions]

    async def missing() -> str:
        left = sum(map(len, (await _jobs(cluster, definitions)).values()))
        children = await _children(cluster, {type_.group for type_ in types})
        return f"{left} jobs and {children} of their objects" if left or children else ""

    await cluster.wait("the end of all jobs", missing, remedy=_LOOK)


async def _children(cluster: Cluster, groups: set[str]) -> int:
    """How many objects of jobs of these groups are left; pods of Deployments go with these.

    Kubernetes collects them one after the other, and none whose job has no definition any more: a
    Secret or a ConfigMap would stay for ever.
    """
    types = {type_ for kind in KINDS for type_ in kind.owns}
    objects = await asyncio.gather(*(_all_of(cluster, type_, MANAGED) for type_ in types))
    owners = (each["metadata"].get("ownerReferences") or () for each in itertools.chain(*objects))
    return sum(
        any(owner["apiVersion"].partition("/")[0] in groups for owner in each) for each in owners
    )


async def _keep_namespace(cluster: Cluster, others: list[str]) -> None:
    why = f"it holds {some(others)}" if others else "edgeai install has not made it"
    await _remove_state(cluster)
    await cluster.delete(record.name(cluster.namespace))
    cluster.say(f"namespace {cluster.namespace} stays: {why}")


async def _remove_state(cluster: Cluster) -> None:
    """What GlobalManagers write beside their jobs. One that still runs would write it again."""

    async def running() -> str:
        pods = await cluster.retried(
            lambda: cluster.client.list(PODS, namespace=cluster.namespace, metadata_only=True)
        )
        number = len(part_of(pods.items, MANAGER))
        return f"{number} pods" if number else ""

    await cluster.wait("the end of the GlobalManager", running, remedy=_LOOK)
    leases = await cluster.retried(
        lambda: cluster.client.list(
            LEASES, namespace=cluster.namespace, label_selector=REPLICA_LABEL, metadata_only=True
        )
    )
    # The ConfigMap of a replica goes with its Lease.
    names = [(LEASES, lease["metadata"]["name"]) for lease in leases.items]
    for type_, name in (*names, (SECRETS, SECRET_NAME)):
        delete = partial(cluster.client.delete, ObjectRef(type_, cluster.namespace, name))
        with suppress(NotFound):
            await cluster.retried(delete)


async def _end_of_namespace(cluster: Cluster) -> None:
    async def missing() -> str:
        found = await cluster.find(namespace_of(cluster.namespace))
        if found is None:
            return ""
        conditions = (found.get("status") or {}).get("conditions") or ()
        held = [each["message"] for each in conditions if each["status"] == "True"]
        return held[0] if held else "it is there"

    await cluster.wait(f"the end of namespace {cluster.namespace}", missing, remedy=_LOOK)
    cluster.say(f"removed namespace {cluster.namespace}")
