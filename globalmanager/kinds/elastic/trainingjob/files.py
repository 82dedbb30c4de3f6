"""The files that the launcher gets from the job's ConfigMap. Training images know their paths.

Source of paths and contents: AliyunContainerService/et-operator, pkg/controllers/resource.go.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from edgeai.api.status import mapping

HOSTFILE: Final = "hostfile"
DISCOVER_HOSTS: Final = "discover_hosts.sh"
KUBEXEC: Final = "kubexec.sh"
KUBEXEC_PROGRAM: Final = "kubexec.py"
"""An asset: it runs in the launcher's pod, and no module imports it."""
DEEPSPEED_HOSTFILE: Final = "deepspeed-hostfile"

ELASTIC_DIRECTORY: Final = "/etc/edl"
MPI_DIRECTORY: Final = "/etc/mpi"
DEEPSPEED_DIRECTORY: Final = "/job"
KUBEXEC_PATH: Final = f"{MPI_DIRECTORY}/{KUBEXEC}"

# The text of the et-operator, which images may know.
_DISCOVER_HOSTS: Final = (
    f"#!/bin/bash\nwhile read line\ndo\necho $line\ndone < {ELASTIC_DIRECTORY}/{HOSTFILE}\n"
)
# Python comes first, because a training image has it and seldom has kubectl. -I and -S keep the
# user's modules from replacing those of the standard library.
_KUBEXEC: Final = """\
#!/bin/sh
# Runs a command in the pod of a worker, as ssh runs one on a host: kubexec.sh POD COMMAND...
# Horovod and OpenMPI start their processes so.
if command -v python3 >/dev/null; then
  exec python3 -I -S "${0%/*}/kubexec.py" "$@"
fi
if ! command -v kubectl >/dev/null; then
  echo "kubexec.sh: the image has neither python3 nor kubectl: add one of them, or set" \
    "spec.launcherAttachMode to ssh" >&2
  exit 255
fi
pod=$1
shift
exec kubectl exec "$pod" -- /bin/sh -c "$*"
"""
# Part of the program text, as an import is; read once.
_KUBEXEC_TEXT: Final = (Path(__file__).parent / "assets" / KUBEXEC_PROGRAM).read_text("utf-8")


def file_contents(hosts: Sequence[str], slots: int) -> dict[str, str]:
    """Key of the ConfigMap -> content. Args: hosts: in the order of their index"""
    return {
        HOSTFILE: "".join(f"{host}:{slots}\n" for host in hosts),
        DISCOVER_HOSTS: _DISCOVER_HOSTS,
        KUBEXEC: _KUBEXEC,
        KUBEXEC_PROGRAM: _KUBEXEC_TEXT,
        DEEPSPEED_HOSTFILE: "".join(f"{host} slots={slots}\n" for host in hosts),
    }


def hosts_in(data: Any) -> list[str]:
    """The hosts that `file_contents` makes. Total: `data` can be anything."""
    text = mapping(data).get(HOSTFILE)
    lines = text.splitlines() if isinstance(text, str) else []
    return [line.partition(":")[0] for line in lines if line]
