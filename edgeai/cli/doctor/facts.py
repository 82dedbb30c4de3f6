"""Reads from the Kubernetes API what the checks need."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import pairwise
from typing import Any, Final

import msgspec

from edgeai import times
from edgeai.api.objects import label_of
from edgeai.api.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    Object,
    ObjectRef,
    ResourceType,
)
from edgeai.kube.client import KubeClient
from edgeai.kube.errors import Forbidden, NotFound
from edgeai.kube.user import About, UserClient, Version
from globalmanager.ha.elector import LEASES
from globalmanager.kinds import KINDS
from globalmanager.manifests.rbac import ACCOUNT, base_rules, group_rules, namespace_rules
from globalmanager.tokenreviews import ACCESS_REVIEWS

DEFINITIONS: Final = ResourceType(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
)
DAEMON_SETS: Final = ResourceType("apps", "v1", "daemonsets", "DaemonSet")
NAME_LABEL: Final = "app.kubernetes.io/name"
MANAGER: Final = "globalmanager"
CONTROLLER: Final = "localcontroller"
_TYPES: Final = (DEFINITIONS, NODES, DEPLOYMENTS, DAEMON_SETS, PODS, LEASES, CONFIG_MAPS, SECRETS)

Objects = tuple[Object, ...] | Forbidden
"""The objects of one type, or the error that names the right which the caller lacks."""

Denied = tuple[str, ...] | Forbidden
"""The rights that are missing, in words; an error where the caller may not ask."""

_AT_ONCE: Final = 16  # reviews that are under way

AskAbout = Callable[[UserClient], Awaitable[About]]


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """An installation at one moment."""

    namespace: str
    is_namespace_there: bool | None
    """None where the caller may not read it."""
    now: datetime
    """Time of this machine's clock, in UTC."""
    clock: datetime
    """The same moment by the clock of the API server."""
    version: Version | None
    """Of Kubernetes; None where the API server tells none."""
    groups: tuple[str, ...]
    """The API groups that are installed, of those that the GlobalManager is told to serve."""
    objects: Mapping[ResourceType, Objects]
    """Of the namespace of edgeai, where the type has namespaces."""
    denied: Denied

    def of(self, type_: ResourceType) -> tuple[Object, ...]:
        """Raises: Forbidden, which names the right that the caller lacks"""
        objects = self.objects[type_]
        if isinstance(objects, Forbidden):
            raise objects
        return objects


async def gather(
    client: UserClient, namespace: str, now: times.Clock, about: AskAbout = UserClient.about
) -> Facts:
    """Read everything once. A right that the caller lacks is a fact.

    Args:
        now: this machine's clock
        about: asks the API server about itself
    Raises: ApiError when the API does not answer, or does not know the caller
    """

    async def of(type_: ResourceType) -> Objects:
        where = namespace if type_.namespaced else ""
        try:
            return tuple((await client.list(type_, namespace=where)).items)
        except NotFound:
            return ()  # the local cluster has no DaemonSets
        except Forbidden as error:
            return error

    # The first request fails alone when the API is away: its error is the answer to all.
    try:
        about_cluster = await about(client)
    except Forbidden as error:
        if not error.reason:
            raise  # a proxy's page, and no Kubernetes API
        about_cluster = About(None, None)
    moment = now()  # slow lists make no Lease look silent
    objects = dict(zip(_TYPES, await asyncio.gather(*map(of, _TYPES)), strict=True))
    definitions, deployments = objects[DEFINITIONS], objects[DEPLOYMENTS]
    groups = () if isinstance(definitions, Forbidden) else installed_groups(definitions)
    if not isinstance(deployments, Forbidden):
        groups = tuple(group for group in groups if group in served_groups(deployments))
    return Facts(
        namespace=namespace,
        is_namespace_there=await _is_there(client, namespace),
        now=moment,
        clock=about_cluster.clock or moment,
        version=about_cluster.version,
        groups=groups,
        objects=objects,
        denied=await denied(client, namespace, groups),
    )


async def _is_there(client: UserClient, namespace: str) -> bool | None:
    try:
        await client.get(ObjectRef(NAMESPACES, "", namespace))
    except NotFound:
        return False
    except Forbidden:
        return None
    return True


def part_of(objects: Iterable[Object], name: str) -> list[Object]:
    """The objects whose label says that they belong to this part of edgeai."""
    return [object_ for object_ in objects if label_of(object_, NAME_LABEL) == name]


def installed_groups(definitions: Iterable[Object]) -> tuple[str, ...]:
    """The API groups of edgeai of which at least one definition is installed."""
    names = {definition["metadata"]["name"] for definition in definitions}
    types = [type_ for kind in KINDS for type_ in kind.definition.resources]
    return tuple(dict.fromkeys(type_.group for type_ in types if str(type_) in names))


def served_groups(deployments: Iterable[Object]) -> frozenset[str]:
    """The API groups that the GlobalManager is told to serve; all where nothing is said. The
    operator of Kubeflow may own the definitions of another group.
    """
    for deployment in part_of(deployments, MANAGER):
        for container in deployment["spec"]["template"]["spec"].get("containers") or ():
            values = [
                variable.get("value")
                for variable in container.get("env") or ()
                if variable.get("name") == "EDGEAI_GROUPS"
            ]
            words = [*(container.get("command") or ()), *(container.get("args") or ())]
            for word, following in pairwise([*words, ""]):
                flag, _, value = word.partition("=")
                values += [value or following] if flag == "--groups" else []
            if values:
                return frozenset(str(values[-1]).split(","))
    return frozenset(type_.group for kind in KINDS for type_ in kind.definition.resources)


async def denied(client: KubeClient, namespace: str, groups: Iterable[str]) -> Denied:
    """Ask the API about each right, those for the jobs of `groups` included."""
    everywhere = [*base_rules(), *(rule for group in groups for rule in group_rules(group))]
    reviews = [
        *(attribute for rule in everywhere for attribute in _attributes(rule, "")),
        *(attribute for rule in namespace_rules() for attribute in _attributes(rule, namespace)),
    ]
    slots = asyncio.Semaphore(_AT_ONCE)

    async def is_allowed(attributes: Object) -> bool:
        user = f"system:serviceaccount:{namespace}:{ACCOUNT}"
        members = ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
        spec = {"user": user, "groups": members, "resourceAttributes": attributes}
        async with slots:
            answer = await client.create(ACCESS_REVIEWS, {"metadata": {}, "spec": spec})
        return bool((answer.get("status") or {}).get("allowed"))

    try:
        first = await is_allowed(reviews[0])  # shows alone whether the caller may ask at all
        allowed = [first, *await asyncio.gather(*map(is_allowed, reviews[1:]))]
    except Forbidden as error:
        return error
    pairs = zip(reviews, allowed, strict=True)
    return tuple(dict.fromkeys(_words(right) for right, is_granted in pairs if not is_granted))


def _attributes(rule: dict[str, Any], namespace: str) -> Iterator[Object]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            plural, _, subresource = resource.partition("/")
            for verb in rule["verbs"]:
                for name in rule.get("resourceNames") or ("",):
                    yield {
                        "group": group,
                        "resource": plural,
                        "subresource": subresource,
                        "verb": verb,
                        "namespace": namespace,
                        "name": name,
                    }


def _words(attributes: Object) -> str:
    parts = (attributes["resource"], attributes["subresource"])
    resource = "/".join(filter(None, parts))
    return f"{attributes['verb']} {'.'.join(filter(None, (resource, attributes['group'])))}"
