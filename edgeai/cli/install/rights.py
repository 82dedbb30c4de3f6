"""What the user needs the rights for, asked before anything is made: what is refused in the middle
leaves a part of an installation behind.
"""

import asyncio
from collections.abc import Iterable
from typing import Final

from edgeai.api.resources import Object, ResourceType
from edgeai.cli.install.cluster import Cluster, Name, name_of
from edgeai.cli.install.errors import InstallError
from edgeai.kube.errors import Forbidden, NotFound

_REVIEWS: Final = ResourceType(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    namespaced=False,
)
_VERBS: Final = ("create", "patch")  # of server-side apply
_AT_ONCE: Final = 16

_Place = tuple[ResourceType, str]
"""A type, and the namespace of its objects."""


async def check(cluster: Cluster, objects: Iterable[Object], more: Iterable[Name] = ()) -> None:
    """Args: more: further objects that will be applied
    Raises: InstallError, which names every right that is missing
    """
    objects = list(objects)
    names = [*map(name_of, objects), *more]
    places = sorted({(name.ref.type, name.namespace) for name in names}, key=str)
    missing = await _missing(cluster, places)
    if missing:
        raise InstallError(
            f"you may not {'; '.join(missing)}: nothing was changed; type it as an administrator "
            "of the cluster"
        )
    for each in objects:
        if each["kind"] == "ClusterRole":  # nobody may grant what he may not do himself
            await cluster.rehearse(each)


async def _missing(cluster: Cluster, places: list[_Place]) -> list[str]:
    """As "create and patch secrets, configmaps in namespace edgeai-system"."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def is_allowed(place: _Place, verb: str) -> bool:
        type_, namespace = place
        about = {"group": type_.group, "resource": type_.plural, "namespace": namespace}
        body: Object = {"metadata": {}, "spec": {"resourceAttributes": {**about, "verb": verb}}}
        async with slots:
            answer = await cluster.retried(lambda: cluster.client.create(_REVIEWS, body))
        return bool((answer.get("status") or {}).get("allowed"))

    async def lacking(place: _Place) -> str:
        allowed = await asyncio.gather(*(is_allowed(place, verb) for verb in _VERBS))
        return " and ".join(
            verb for verb, is_there in zip(_VERBS, allowed, strict=True) if not is_there
        )

    try:
        verbs = await asyncio.gather(*map(lacking, places))
    except (Forbidden, NotFound):
        return []  # who may not ask, or has an API without rights, sees what is refused
    found: dict[tuple[str, str], list[str]] = {}
    for (type_, namespace), lacks in zip(places, verbs, strict=True):
        if lacks:
            found.setdefault((lacks, namespace), []).append(str(type_))
    return [
        f"{lacks} {', '.join(types)}" + (f" in namespace {namespace}" if namespace else "")
        for (lacks, namespace), types in found.items()
    ]
