"""Which API groups of the kinds are not installed here, because an installation chooses its groups.

A group is installed when its CustomResourceDefinitions are there and the GlobalManager has rights
to them; each group has a component in deploy/.
"""

from collections.abc import Iterable
from itertools import groupby

from globalmanager.cache.informer import Informer


def unserved_groups(jobs: Iterable[Informer]) -> dict[str, str]:
    """API group -> why the group is not served.

    Nobody installs a part of a group by choice, so a group that serves one type is served, and what
    the others lack is a fault. Without any group the installation itself is a fault: {}.

    Args: jobs: the informers of all job resources
    """
    by_group = groupby(sorted(jobs, key=_group), key=_group)
    installed = {group: tuple(informers) for group, informers in by_group}
    reasons = {
        group: _reason(group, informers)
        for group, informers in installed.items()
        if all(informer.absent or informer.forbidden for informer in informers)
    }
    return {} if reasons.keys() == installed.keys() else reasons


def _group(informer: Informer) -> str:
    return informer.type.group


def _reason(group: str, informers: tuple[Informer, ...]) -> str:
    for informer in informers:
        if informer.forbidden:
            return f"its rights are not granted (component {group}): {informer.problem}"
    return f"its CustomResourceDefinitions are not installed (deploy/crds/{group}_*.yaml)"
