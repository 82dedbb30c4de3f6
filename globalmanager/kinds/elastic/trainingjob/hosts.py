"""The launcher's list of hosts, as the job's ConfigMap keeps it.

`host_list` decides which list follows. The times of the last changes stand in
annotations of the ConfigMap.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from edgeai.api.elastic import LAUNCHER, WORKER
from edgeai.api.resources import Object, ObjectRef
from edgeai.api.status import mapping, parse_time
from edgeai.times import rfc3339
from globalmanager.contract import Create, Observed
from globalmanager.kinds.elastic.trainingjob import files
from globalmanager.kinds.elastic.trainingjob.host_list import HostList
from globalmanager.kinds.elastic.trainingjob.launcher import CONFIG_MAPS, config_name
from globalmanager.kinds.elastic.trainingjob.spec import TrainingJob
from globalmanager.kinds.shared import objects, status
from globalmanager.kinds.shared.replication import index_of

NUDGE: Final = "edgeai.io/host-list"
"""Annotation of the launcher's pod: the hash of the list. A changed pod makes the kubelet read the
ConfigMap again at once (docs/decisions/0021)."""
_CAME: Final = "edgeai.io/hosts-came"
_WENT: Final = "edgeai.io/hosts-went"
_FORMER: Final = "edgeai.io/hosts-former"


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
    """The new list, which remembers the wanted hosts that left the list. It changes only together
    with the hosts.
    """
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
    """The ConfigMap with this list."""
    content = {"data": files.file_contents(hosts.hosts, spec.slots)}
    name = config_name(observed.ref.name)
    child = objects.child(observed, CONFIG_MAPS, name=name, role=LAUNCHER, content=content)
    # In the ConfigMap itself, so one write changes the list and its times (I14).
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
