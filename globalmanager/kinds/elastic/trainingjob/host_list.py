"""Decides which list of hosts the launcher of an elastic job gets next.

The kind trainingjob keeps the list in the job's ConfigMap. The launcher's program reads the list
again and again, misses some of the lists, and compares the list with the last one that it has read.
Horovod hangs or fails after these changes (horovod/runner/elastic/driver.py,
`_update_host_assignments`):

- from a list to the empty list, and from there to a new host;
- from a list to a list without any of its hosts.

So the list is never empty again after the first host, and two lists between which the program has
surely read share a host. Hosts come or go, not both at once: after hosts came, none goes until the
program has surely read the list, and after hosts went, none comes. Then every list that the program
may have missed lies between two lists that it may have read.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Final

import msgspec

READ_S: Final = 10.0
"""Seconds after which the launcher's program has surely read a list. The kubelet needs about one
second (docs/decisions/0021), Horovod asks for the list every two to four seconds."""


class HostList(msgspec.Struct, frozen=True, kw_only=True):
    """A list of hosts, and when hosts came and went last (UTC)."""

    hosts: tuple[str, ...] = ()
    former: tuple[str, ...] = ()
    """Hosts that the job wants and that the list had once. Horovod may never use them again."""
    came: datetime | None = None
    went: datetime | None = None

    @property
    def present_and_former(self) -> frozenset[str]:
        """The hosts that the launcher has or had."""
        return frozenset((*self.hosts, *self.former))


class Next(msgspec.Struct, frozen=True):
    """The list that the launcher gets now.

    `wait_s`: seconds after which another list follows; None when nothing follows by time alone
    """

    list: HostList
    wait_s: float | None = None


def next_list(
    current: HostList,
    *,
    desired: Sequence[str],
    ready: Collection[str],
    has_launcher: bool,
    now: datetime,
) -> Next:
    """The next list. Repeated after each `wait_s`, it reaches the desired hosts.

    Args:
        current: the list that the ConfigMap has
        desired: the hosts that the job keeps, in the order of their index
        ready: the hosts that can start processes now; a host that is not ready never comes, but a
            desired host that is listed stays
        has_launcher: whether a launcher exists that may have read `current`
        now: UTC
    """
    usable = tuple(host for host in desired if host in ready)
    # A launcher that starts has read no list before, so no list can stop it.
    if not has_launcher:
        return Next(HostList(hosts=usable))
    current_names, desired_names = frozenset(current.hosts), frozenset(desired)
    remaining = tuple(host for host in current.hosts if host in desired_names)
    new = tuple(host for host in usable if host not in current_names)
    # Where no host would remain, new ones come first, so that both lists share a host.
    if remaining and len(remaining) < len(current.hosts):
        following = HostList(hosts=remaining, came=current.came, went=now)
        return _after(current.came, current, following, now, follows=bool(new))
    if new:
        following = HostList(hosts=(*current.hosts, *new), came=now, went=current.went)
        return _after(
            current.went, current, following, now, follows=len(remaining) < len(current.hosts)
        )
    return Next(current)


def _after(
    opposite: datetime | None,
    current: HostList,
    following: HostList,
    now: datetime,
    *,
    follows: bool,
) -> Next:
    """`following`, or `current` until the program has surely read what the opposite change made.

    Args: follows: whether another change must follow this one
    """
    if opposite is not None:
        left_s = READ_S - (now - opposite).total_seconds()
        if left_s > 0:
            # A clock that was set back must not hold the list for longer than READ_S.
            return Next(current, min(left_s, READ_S))
    return Next(following, READ_S if follows else None)
