"""The files that the launcher gets from the job's ConfigMap. Training images know their paths.

Called by `launcher`. Source of paths and contents: AliyunContainerService/et-operator,
pkg/controllers/resource.go.
"""

from collections.abc import Sequence
from typing import Any, Final

from globalmanager.rules import status

HOSTFILE: Final = "hostfile"
DISCOVER_HOSTS: Final = "discover_hosts.sh"
KUBEXEC: Final = "kubexec.sh"
DEEPSPEED_HOSTFILE: Final = "deepspeed-hostfile"

ELASTIC_DIRECTORY: Final = "/etc/edl"
MPI_DIRECTORY: Final = "/etc/mpi"
DEEPSPEED_DIRECTORY: Final = "/job"
KUBEXEC_PATH: Final = f"{MPI_DIRECTORY}/{KUBEXEC}"

_DISCOVER_HOSTS: Final = (
    f"#!/bin/bash\nwhile read line\ndo\necho $line\ndone < {ELASTIC_DIRECTORY}/{HOSTFILE}\n"
)
_KUBEXEC: Final = """#!/bin/sh
set -e
POD_NAME=$1
shift
exec kubectl exec "$POD_NAME" -- /bin/sh -c "$*"
"""


def of(hosts: Sequence[str], slots: int) -> dict[str, str]:
    """Key of the ConfigMap -> content.

    Args:
        hosts: names of the workers that the launcher may use, in the order of their index
        slots: processes on each worker
    """
    return {
        HOSTFILE: "".join(f"{host}:{slots}\n" for host in hosts),
        DISCOVER_HOSTS: _DISCOVER_HOSTS,
        KUBEXEC: _KUBEXEC,
        DEEPSPEED_HOSTFILE: "".join(f"{host} slots={slots}\n" for host in hosts),
    }


def hosts_in(data: Any) -> list[str]:
    """The hosts that `of` wrote. Total: `data` can be anything."""
    text = status.mapping(data).get(HOSTFILE)
    lines = text.splitlines() if isinstance(text, str) else []
    return [line.partition(":")[0] for line in lines if line]
