"""The init container with which a worker waits until the master listens on its port.

The container has the image of the container that trains, so it needs no other image. It asks with
Python, or with bash where the image has no Python. Without both it says so and does not wait. The
annotation `edgeai.io/wait-for-master: "false"` on the job turns the wait off. The Kubeflow operator
asks only whether the master's name is known, with an image of its own.
"""

from typing import Any, Final

from edgeai.api.pytorchjob import MASTER
from edgeai.api.resources import Object
from edgeai.api.status import mapping
from globalmanager.contract import Observed
from globalmanager.kinds.shared.pods import literal
from globalmanager.kinds.training.framework import KubeflowJob
from globalmanager.kinds.training.replicas import name_of, port_of, trainer

WAIT: Final = "edgeai.io/wait-for-master"
"""Annotation of a job."""
NAME: Final = "init-pytorch"  # as the Kubeflow operator calls its own
_POLL_S: Final = 1
# A try ends after 5 s, because a packet without an answer would hold it for minutes.
_PYTHON: Final = """\
import os, socket
socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), 5).close()
"""
_SCRIPT: Final = f"""\
if command -v python3 >/dev/null; then python=python3; else python=python; fi
if command -v "$python" >/dev/null; then
  answers() {{ "$python" -c "$ASK" 2>/dev/null; }}
elif command -v bash >/dev/null; then
  answers() {{ bash -c ': < "/dev/tcp/$MASTER_ADDR/$MASTER_PORT"' 2>/dev/null; }}
else
  echo "the image has neither python nor bash: not waiting for $MASTER_ADDR:$MASTER_PORT"
  exit 0
fi
echo "waiting for the master at $MASTER_ADDR:$MASTER_PORT"
until answers; do sleep {_POLL_S}; done
"""


def init_containers(observed: Observed, type_: str, _index: int) -> list[Object]:
    """The container of a worker whose job has a master; none of other pods."""
    spec: KubeflowJob = observed.spec
    master, own = spec.of_type(MASTER), spec.of_type(type_)
    if master is None or own is None or type_ == MASTER or not _is_wanted(observed):
        return []
    container = trainer(spec.framework, own.template)
    # A namespace may demand a security context of each container, this one included.
    trainer_fields: dict[str, Any] = {
        key: container[key] for key in ("imagePullPolicy", "securityContext") if key in container
    }
    return [
        {
            "name": NAME,
            "image": container["image"],
            **trainer_fields,
            "command": ["sh", "-c", _SCRIPT],
            "env": [
                literal("MASTER_ADDR", name_of(observed.ref.name, MASTER, 0)),
                literal("MASTER_PORT", str(port_of(spec.framework, master))),
                literal("ASK", _PYTHON),
            ],
            # A quota on limits refuses a pod of which one container has none.
            "resources": {"limits": {"cpu": "100m", "memory": "64Mi"}},
        }
    ]


def _is_wanted(observed: Observed) -> bool:
    annotations = mapping(observed.object["metadata"].get("annotations"))
    return str(annotations.get(WAIT, "true")).lower() != "false"
