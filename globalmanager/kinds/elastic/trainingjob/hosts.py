"""The launcher's list of hosts: which list follows, and how the job's ConfigMap keeps it.

The launcher's program reads the list again and again, misses some of the lists, and compares the
list with the last one that it has read. Horovod hangs or fails after these changes
(horovod/runner/elastic/driver.py, `_update_host_assignments`):

- from a list to the empty list, and from there to a new host;
- from a list to a list without any of its hosts.

So the list is never empty again after the first host, and two lists between which the program has
surely read share a host. Hosts come or go, not both at once: after hosts came, none goes until the
program has surely read the list, and after hosts went, none comes. Then every list that the program
may have missed lies between two that it may have read. Annotations have the times of changes.
"""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from edgeai.api.elastic import LAUNCHER, WORKER
from edgeai.api.resources import CONFIG_MAPS, Object, ObjectRef
from edgeai.api.status import mapping, parse_time
from edgeai.times import rfc3339
from globalmanager.contract import Create, Observed
from globalmanager.kinds.elastic.trainingjob import files
from globalmanager.kinds.elastic.trainingjob.launcher import config_name
from globalmanager.kinds.elastic.trainingjob.spec import TrainingJob
from globalmanager.kinds.shared import objects, status
from globalmanager.kinds.shared.replication import index_of

NUDGE: Final = "edgeai.io/host-list"
"""Annotation of the launcher's pod: the hash of the list. A changed pod makes the kubelet read the
ConfigMap again at once (docs/decisions/0021)."""
_CAME: Final = "edgeai.io/hosts-came"
_WENT: Final = "edgeai.io/hosts-went"
_FORMER: Final = "edgeai.io/hosts-former"


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


def current_hosts(observed: Observed) -> HostList:
    """The list that the launcher has. When somebody has deleted the ConfigMap, the status tells."""
    job = observed.ref
    config = observed.children.get(ObjectRef(CONFIG_MAPS, job.namespace, config_name(job.name)))
    # Else no worker counts as one that the launcher had, and a lost one comes back under its name.
    if config is None:
        recorded = status.status_of(observed).get("currentWorkers")
        return HostList(hosts=_workers(job.name, recorded if isinstance(recorded, list) else []))
    marks = mapping(config["metadata"].get("annotations"))
    return HostList(
        hosts=_workers(job.name, files.hosts_in(config.get("data"))),
        former=_workers(job.name, str(marks.get(_FORMER, "")).split(",")),
        came=parse_time(marks.get(_CAME)),
        went=parse_time(marks.get(_WENT)),
    )


def with_former_hosts(new: HostList, current: HostList, target: Iterable[str]) -> HostList:
    """The new list, with the wanted hosts that left it. It changes only together with the hosts."""
    if new.hosts == current.hosts:
        return msgspec.structs.replace(new, former=current.former)
    earlier, present = current.present_and_former, frozenset(new.hosts)
    former = tuple(name for name in target if name in earlier and name not in present)
    return msgspec.structs.replace(new, former=former)


def _workers(job: str, names: Iterable[Any]) -> tuple[str, ...]:
    """The names that can be workers of the job, each once. Somebody's edit can hold any text."""
    texts = (name for name in names if isinstance(name, str))
    return tuple(dict.fromkeys(name for name in texts if index_of(job, WORKER, name) is not None))


def config(observed: Observed, spec: TrainingJob, hosts: HostList) -> Create:
    content = {"data": files.file_contents(hosts.hosts, spec.slots)}
    name = config_name(observed.ref.name)
    child = objects.child(observed, CONFIG_MAPS, name=name, role=LAUNCHER, content=content)
    # In the ConfigMap itself, so one write changes the list and its times.
    times = {_CAME: hosts.came, _WENT: hosts.went}
    # Whole seconds would let a change come up to one second before the list has surely been read.
    marks = {key: rfc3339(time, "milliseconds") for key, time in times.items() if time is not None}
    metadata: Object = child.object["metadata"]
    marks[_FORMER] = ",".join(hosts.former)
    annotated = {**metadata, "annotations": {**metadata["annotations"], **marks}}
    return Create(CONFIG_MAPS, {**child.object, "metadata": annotated})


def hash_of(hosts: Sequence[str], slots: int) -> str:
    """The value of NUDGE."""
    return objects.content_hash([list(hosts), slots])
