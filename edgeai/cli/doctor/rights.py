"""Whether the GlobalManager's ServiceAccount has the rights that deploy/ grants it."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import Any, Final

from edgeai.api.resources import Object
from edgeai.kube.client import KubeClient
from edgeai.kube.errors import Forbidden
from globalmanager.manifests.rbac import ACCOUNT, base_rules, group_rules, namespace_rules
from globalmanager.tokenreviews import ACCESS_REVIEWS

Denied = tuple[str, ...] | Forbidden
"""The rights that are missing, in words; an error where the caller may not ask."""

_AT_ONCE: Final = 16  # reviews that are under way


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
