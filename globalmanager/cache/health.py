"""The health of the cache: whether the informers follow the API, and what is wrong if not."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

import msgspec

from edgeai.api.resources import ResourceType
from edgeai.kube.remedies import UPGRADE
from globalmanager.cache.informer import Informer

# Largest number of set-aside objects of one type that /readyz names. A metric counts all set-aside
# objects, and the log names each of them.
_MAX_SET_ASIDE_NAMED: Final = 5


class Health(msgspec.Struct, frozen=True):
    """Whether the caches can be relied on: one answer of /readyz."""

    ready: bool
    reasons: tuple[str, ...] = ()
    """All problems. Those that make the process not ready come first."""


def health_of(
    informers: Iterable[Informer],
    *,
    jobs: Collection[ResourceType],
    stale_after_s: float,
    absent_groups: Mapping[str, str],
) -> Health:
    """The health of the cache. Args: absent_groups: API groups that are not installed -> why"""
    fatal: list[str] = []
    tolerable = [f"{group} is not served: {reason}" for group, reason in absent_groups.items()]
    for informer in informers:
        if informer.type in jobs and informer.type.group in absent_groups:
            continue
        if informer.absent:
            # Where a built-in type is missing (autoscaling/v2 is off), the other types still work.
            problems = fatal if informer.type in jobs else tolerable
            problems.append(_absence(informer, is_job=informer.type in jobs))
        elif not informer.synced:
            fatal.append(f"{informer.type}: not listed yet: {informer.problem or 'under way'}")
        elif informer.problem and informer.stale_for_s() >= stale_after_s:
            since_s = int(informer.stale_for_s())
            fatal.append(f"{informer.type}: no contact for {since_s} s: {informer.problem}")
        elif informer.problem:
            tolerable.append(f"{informer.type}: {informer.problem}")
        tolerable += _set_aside(informer)
    return Health(ready=not fatal, reasons=(*fatal, *tolerable))


def _set_aside(informer: Informer) -> Iterator[str]:
    """Sentences about the objects that are set aside. These objects never make the process not
    ready, because the fault of one tenant must not stop the jobs of other tenants.
    """
    for object_ in islice(informer.set_aside, _MAX_SET_ASIDE_NAMED):
        yield f"{object_.ref(informer.type)} is set aside: {object_.problem}"
    unnamed = len(informer.set_aside) - _MAX_SET_ASIDE_NAMED
    if unnamed > 0:
        yield f"{informer.type}: {unnamed} more are set aside"


def _absence(informer: Informer, *, is_job: bool) -> str:
    type_ = informer.type
    if is_job:
        return (
            f"{type_}: its CustomResourceDefinition is not installed, or is of a version without "
            f"{type_.api_version}: {UPGRADE}, or leave {type_.group} out of the setting groups"
        )
    return f"{type_}: the API server does not serve {type_.api_version}"


def unserved_groups(jobs: Iterable[Informer]) -> dict[str, str]:
    """API group -> why the group is not served, because an installation chooses its groups.

    A group is installed when its CustomResourceDefinitions are there and the GlobalManager has
    rights to them; each group has a component in deploy/.

    Nobody installs a part of a group by choice, so a group that serves one type is served, and what
    the others lack is a fault. Without any group the installation itself is a fault: {}.

    Args: jobs: the informers of all job resources
    """
    by_group: dict[str, list[Informer]] = {}
    for informer in jobs:
        by_group.setdefault(informer.type.group, []).append(informer)
    reasons = {
        group: _reason(group, informers)
        for group, informers in sorted(by_group.items())
        if all(informer.absent or informer.forbidden for informer in informers)
    }
    return {} if reasons.keys() == by_group.keys() else reasons


def _reason(group: str, informers: list[Informer]) -> str:
    for informer in informers:
        if informer.forbidden:
            return f"its rights are not granted (value groups): {informer.problem}"
    return f"its CustomResourceDefinitions are not installed (value groups: {group})"
