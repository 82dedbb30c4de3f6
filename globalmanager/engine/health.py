"""Says whether the engine can be relied on, and if not, what a person has to do."""

from collections.abc import Collection, Iterable, Iterator
from itertools import islice
from typing import Final

import msgspec

from globalmanager.cache.informer import Informer
from globalmanager.contract import ResourceType

_MAX_NAMED: Final = 5  # of a type; the metric counts them, the log names each


class Health(msgspec.Struct, frozen=True):
    """Whether this process can be relied on. `reasons` also names faults that are not fatal."""

    ready: bool
    reasons: tuple[str, ...] = ()


def health_of(
    informers: Iterable[Informer],
    *,
    jobs: Collection[ResourceType],
    stale_after_s: float,
    reconciled: bool,
) -> Health:
    """
    Args:
        jobs: types of the job resources
        stale_after_s: a failing informer may go on with what it has for so long
        reconciled: every resource that was there at the start was looked at
    """
    fatal: list[str] = []
    tolerable: list[str] = []
    for informer in informers:
        if informer.absent:
            # Without an optional built-in (an old cluster's autoscaling/v2) the rest works.
            to = fatal if informer.type in jobs else tolerable
            to.append(_absence(informer.type, is_job=informer.type in jobs))
        elif not informer.synced:
            fatal.append(f"{informer.type}: not listed yet: {informer.problem or 'under way'}")
        elif informer.problem and informer.stale_for_s() >= stale_after_s:
            since_s = int(informer.stale_for_s())
            fatal.append(f"{informer.type}: no contact for {since_s} s: {informer.problem}")
        elif informer.problem:
            tolerable.append(f"{informer.type}: {informer.problem}")
        tolerable += _set_aside(informer)
    if not fatal and not reconciled:
        fatal.append("not every resource was looked at since the start")
    return Health(ready=not fatal, reasons=(*fatal, *tolerable))


def _set_aside(informer: Informer) -> Iterator[str]:
    """Each is one tenant's trouble, and no reason to turn the others away."""
    named = islice(informer.set_aside, _MAX_NAMED)
    for object_ in named:
        yield f"{object_.ref(informer.type)} is set aside: {object_.problem}"
    if len(informer.set_aside) > _MAX_NAMED:
        yield f"{informer.type}: {len(informer.set_aside) - _MAX_NAMED} more are set aside"


def _absence(type_: ResourceType, *, is_job: bool) -> str:
    if is_job:
        return (
            f"{type_}: its CustomResourceDefinition is not installed, or is of a version without "
            f"{type_.api_version}: run `kubectl apply -f deploy/crds`, or leave {type_.group} out "
            "of the setting groups"
        )
    return f"{type_}: the API server does not serve {type_.api_version}"
