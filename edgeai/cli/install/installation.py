"""Installs, upgrades and rolls back: one way to apply a revision, in the right order.

    namespace -> lock -> record -> definitions -> rights, configuration -> certificates -> workloads
    -> removal of what is no longer wanted -> readiness -> record

Every step may be done again. A command that is killed leaves the record, and the next one goes on.
"""

from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import msgspec

from edgeai import times
from edgeai.api.resources import NODES, PODS, Object
from edgeai.cli.doctor.definitions import definition_problem
from edgeai.cli.doctor.kubernetes import OLDEST
from edgeai.cli.install import lock, record, rights
from edgeai.cli.install.cluster import Cluster, Name, name_of, some
from edgeai.cli.install.credentials import Credentials, names
from edgeai.cli.install.errors import InstallError
from edgeai.cli.install.readiness import (
    daemon_set_missing,
    definition_missing,
    deployment_missing,
    session_missing,
)
from edgeai.cli.install.record import Record, Revision
from edgeai.cli.install.rendering import definitions, render
from edgeai.cli.install.values import Values, assign_all, values_of
from edgeai.kube.user import Version
from globalmanager.engine.events import EVENTS
from globalmanager.ha.elector import LEASES, REPLICA_LABEL
from globalmanager.ha.presence import CONFIG_MAPS

_WORKLOADS: Final = ("Deployment", "DaemonSet")
_LOOK: Final = "edgeai doctor says more; type the same command to go on, or edgeai rollback"


def version() -> str:
    return metadata.version("edgeai")


def namespace_of(name: str) -> Name:
    return Name("v1", "Namespace", "", name)


async def _check_version(cluster: Cluster) -> None:
    """Raises: InstallError when the API server is older than edgeai supports"""
    version = (await cluster.retried(cluster.client.about)).version
    if version is not None and Version(1, 0) <= version < OLDEST:
        raise InstallError(f"the cluster has Kubernetes {version}; edgeai needs {OLDEST} or newer")


async def install(
    cluster: Cluster,
    given: Mapping[str, Any],
    values: Values,
    *,
    is_adopting: bool = False,
    node_directory: Path | None = None,
) -> None:
    """Install, or go on where an earlier command ended.

    Args: node_directory: gets the credentials of edge nodes
    Raises: InstallError
    """
    crds = definitions(values)
    # Before anything is made: what is refused leaves nothing behind.
    await _check_version(cluster)
    objects = render(values)
    await _refuse_others(cluster, [*objects, *crds], is_adopting=is_adopting)
    await _check_rights(cluster, [*objects, *crds])
    await Credentials(cluster, objects, times.utc_now()).check()
    await ensure_namespace(cluster)
    async with lock.held(cluster):
        present = await record.load(cluster)
        wanted = revision(given, values, present)
        if present is not None and present.is_complete and present.current != wanted:
            raise InstallError(
                f"edgeai is installed in namespace {cluster.namespace} with other values or of "
                "another version; change it with: edgeai upgrade"
            )
        await converge(
            cluster,
            following(present, wanted),
            crds,
            is_adopting=is_adopting,
            node_directory=node_directory,
        )
        await _wait_for_session(cluster)


async def upgrade(
    cluster: Cluster,
    given: Mapping[str, Any] | None,
    changes: Sequence[str],
    *,
    is_adopting: bool = False,
    node_directory: Path | None = None,
) -> None:
    """Apply this version, with the values that are recorded unless others are given.

    Args: given: all values; None: those of the record
        changes: as of --set
        is_adopting: take over definitions of somebody else that do not do
    Raises: InstallError, ValuesError
    """
    async with lock.held(cluster):
        present = await loaded(cluster)
        chosen = dict(present.current.values if given is None else given)
        assign_all(chosen, changes)
        if given is not None:
            chosen.setdefault("namespace", cluster.namespace)
            dropped = sorted(present.current.values.keys() - chosen.keys())
            if dropped:
                cluster.say(f"values that go back to their defaults: {', '.join(dropped)}")
        values = values_of(chosen)
        if values.namespace != cluster.namespace:
            raise InstallError(
                f"the installation in namespace {cluster.namespace} cannot move to "
                f"{values.namespace}; leave namespace out, or uninstall it first"
            )
        await _check_version(cluster)
        wanted = revision(chosen, values, present)
        if wanted == present.current and present.is_complete:
            cluster.say(
                f"revision {wanted.number} is installed already; looking whether all is there"
            )
        crds = definitions(values)
        await _check_rights(cluster, [*wanted.objects, *crds])
        await converge(
            cluster,
            following(present, wanted),
            crds,
            is_adopting=is_adopting,
            node_directory=node_directory,
        )


async def rollback(cluster: Cluster) -> None:
    """Go back to the rendering of before the last change. Definitions stay as they are.

    Raises: InstallError when there is none
    """
    async with lock.held(cluster):
        present = await loaded(cluster)
        if present.previous is None:
            raise InstallError(
                f"there is no earlier revision of edgeai in namespace {cluster.namespace}; only "
                "what edgeai upgrade has changed can be taken back"
            )
        wanted = present.previous
        await _check_rights(cluster, wanted.objects)
        cluster.say(f"going back from revision {present.current.number} to {wanted.number}")
        # A revision that never became ready is nothing to go forward to.
        forward = present.current if present.is_complete else None
        changed = msgspec.structs.replace(
            present, current=wanted, previous=forward, is_complete=False
        )
        await converge(cluster, changed, [])


async def loaded(cluster: Cluster) -> Record:
    """Raises: InstallError when edgeai is not installed here"""
    present = await record.load(cluster)
    if present is None:
        raise InstallError(
            f"edgeai install has made no installation in namespace {cluster.namespace}; name "
            "another one with --namespace, or take over one of kubectl with: "
            "edgeai install --apply --adopt"
        )
    return present


def revision(given: Mapping[str, Any], values: Values, present: Record | None) -> Revision:
    """What is wanted now. It is the present one, with its number, when nothing differs."""
    wanted = Revision(1, version(), msgspec.to_builtins(dict(given)), render(values))
    if present is None:
        return wanted
    same = msgspec.structs.replace(wanted, number=present.current.number)
    if same == present.current:
        return same
    newest = max(each.number for each in (present.current, present.previous) if each is not None)
    return msgspec.structs.replace(wanted, number=newest + 1)


def following(present: Record | None, wanted: Revision) -> Record:
    """The record while `wanted` is applied. The one to go back to is the last that was ready."""
    if present is None:
        return Record(wanted)
    previous = present.previous
    if present.current != wanted and present.is_complete:
        previous = present.current
    return msgspec.structs.replace(present, current=wanted, previous=previous, is_complete=False)


async def converge(
    cluster: Cluster,
    wanted: Record,
    crds: list[Object],
    *,
    is_adopting: bool = False,
    node_directory: Path | None = None,
) -> None:
    """Apply the current revision of `wanted`, remove what is left of others, wait until ready."""
    objects = wanted.current.objects
    mine = tuple(map(name_of, [*objects, *crds]))
    kept = {*mine, *names(cluster.namespace)}
    kept |= {name for name in wanted.inventory if name.kind == "CustomResourceDefinition"}
    inventory = tuple(sorted({*wanted.inventory, *kept}))
    wanted = msgspec.structs.replace(wanted, inventory=inventory)
    await record.save(cluster, wanted)
    await _define(cluster, crds, is_adopting=is_adopting)
    others = [each for each in objects if each["kind"] not in (*_WORKLOADS, "Namespace")]
    for each in others:
        await cluster.apply(each)
    cluster.say(f"applied {len(others)} objects: rights, configuration, Services")
    await Credentials(cluster, objects, times.utc_now(), node_directory).ensure()
    workloads = [each for each in objects if each["kind"] in _WORKLOADS]
    for each in workloads:
        await cluster.apply(each)
        cluster.say(f"applied {name_of(each)}")
    for name in inventory:
        if name not in kept and await cluster.delete(name):
            cluster.say(f"removed {name}, which is no longer wanted")
    await _wait_for(cluster, workloads)
    await record.save(
        cluster,
        msgspec.structs.replace(wanted, is_complete=True, inventory=tuple(sorted(kept))),
    )


async def ensure_namespace(cluster: Cluster) -> None:
    """Raises: InstallError when the namespace ends just now"""
    name = namespace_of(cluster.namespace)
    found = await cluster.find(name)
    if found is None:
        await cluster.create(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name.name}}
        )
        cluster.say(f"made {name}")
    elif "deletionTimestamp" in found["metadata"]:
        raise InstallError(
            f"namespace {name.name} is being deleted; wait for its end, and type it again: "
            f"kubectl wait --for=delete namespace/{name.name} --timeout=120s"
        )


async def _refuse_others(cluster: Cluster, objects: list[Object], *, is_adopting: bool) -> None:
    """Raises: InstallError when another installation, or somebody else, has made an object"""
    found = await cluster.find_all(map(name_of, objects))
    free = ("Namespace", "CustomResourceDefinition")
    for name, each in found:
        owner = cluster.owner(each)
        if owner and owner != cluster.namespace and name.kind not in free:
            raise InstallError(
                f"{name} belongs to the installation in namespace {owner}; a cluster has one: name "
                f"that namespace, or remove it with: edgeai uninstall --namespace {owner}"
            )
    foreign = [name for name, each in found if not cluster.owner(each) and name.kind not in free]
    if foreign and not is_adopting:
        raise InstallError(
            f"{some(foreign)} of edgeai were made by another tool, such as kubectl apply -k: take "
            "them over with --adopt and the same components, or remove them first"
        )


async def _check_rights(cluster: Cluster, objects: list[Object]) -> None:
    """Raises: InstallError"""
    namespace = cluster.namespace
    await rights.check(cluster, objects, [*names(namespace), record.name(namespace)])


async def _define(cluster: Cluster, crds: list[Object], *, is_adopting: bool) -> None:
    """Apply the definitions, and wait until the API server serves them. One that somebody else has
    made, such as Kubeflow's operator, stays as it is, if it does.
    """
    for each in crds:
        name = name_of(each)
        found = await cluster.find(name)
        if found is not None and not cluster.is_ours(found) and not is_adopting:
            if problem := definition_problem(found, each):
                raise InstallError(
                    f"{name} was made by somebody else and {problem}: leave its group out of "
                    "groups, or take it over with --adopt"
                )
            cluster.say(f"{name} is there already, and stays as it is")
            continue
        await cluster.apply(each)

    async def missing() -> str:
        found = dict(await cluster.find_all(map(name_of, crds)))
        unserved = {name_of(each): definition_missing(found.get(name_of(each))) for each in crds}
        return next((f"{name.name}: {why}" for name, why in unserved.items() if why), "")

    if crds:
        await cluster.wait("definitions", missing, remedy=_LOOK, poll_s=0.3)
        cluster.say(f"{len(crds)} definitions are served")


async def _wait_for(cluster: Cluster, workloads: list[Object]) -> None:
    for workload in workloads:
        name = name_of(workload)

        async def missing(name: Name = name) -> str:
            found = await cluster.find(name)
            list_ = cluster.client.list
            pods = await cluster.retried(lambda: list_(PODS, namespace=cluster.namespace))
            if name.kind == "Deployment":
                return deployment_missing(found, pods.items)
            nodes = await cluster.retried(lambda: list_(NODES))
            about = f"involvedObject.kind={name.kind},involvedObject.name={name.name}"
            events = await cluster.retried(
                lambda: list_(EVENTS, namespace=cluster.namespace, field_selector=about)
            )
            return daemon_set_missing(found, pods.items, nodes.items, events.items)

        await cluster.wait(str(name), missing, remedy=_LOOK)
        cluster.say(f"{name} is ready")


async def _wait_for_session(cluster: Cluster) -> None:
    """Pods may be ready with a wrong address, a wrong CA or a closed port between them."""

    async def missing() -> str:
        list_, namespace = cluster.client.list, cluster.namespace
        about = await cluster.retried(cluster.client.about)
        nodes = await cluster.retried(lambda: list_(NODES))
        leases = await cluster.retried(lambda: list_(LEASES, namespace=namespace))
        claims = await cluster.retried(
            lambda: list_(CONFIG_MAPS, namespace=namespace, label_selector=REPLICA_LABEL)
        )
        now = about.clock or times.utc_now()
        return session_missing(nodes.items, leases.items, claims.items, now)

    remedy = (
        f"see the log of its LocalController: kubectl -n {cluster.namespace} logs "
        "daemonset/localcontroller; edgeai doctor says more; type the same command to go on"
    )
    await cluster.wait("a session of an edge node", missing, remedy=remedy)
