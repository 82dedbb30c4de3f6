"""The types of names and identifiers that several modules use, and checks of their form.

A NewType costs nothing at run time. With it mypy finds a node's name in place of a worker's.
"""

import re
from typing import NamedTuple, NewType

from edgeai.errors import InvalidName

NodeName = NewType("NodeName", str)  # Kubernetes Node metadata.name, RFC 1123 subdomain
WorkerName = NewType("WorkerName", str)  # one worker of a task, unique within the task
Uid = NewType("Uid", str)  # Kubernetes metadata.uid of the job resource
TaskKey = NewType("TaskKey", str)  # "<plural>.<group>/<namespace>/<name>"

MAX_NAME_CHARS = 253

_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")


class TaskRef(NamedTuple):
    """The parts of a TaskKey."""

    plural: str
    group: str
    namespace: str
    name: str

    @property
    def key(self) -> TaskKey:
        return TaskKey(f"{self.plural}.{self.group}/{self.namespace}/{self.name}")


def is_subdomain(text: str) -> bool:
    """Whether `text` is an RFC 1123 subdomain, as Kubernetes demands of object names."""
    return len(text) <= MAX_NAME_CHARS and _SUBDOMAIN.match(text) is not None


def parse_task_key(key: str) -> TaskRef:
    """Split "<plural>.<group>/<namespace>/<name>".

    Raises: InvalidName if a part is no RFC 1123 name; so no part has "..", "/" or NUL
    """
    resource, _, rest = key.partition("/")
    namespace, _, name = rest.partition("/")
    plural, _, group = resource.partition(".")
    if not all(is_subdomain(part) for part in (plural, group, namespace, name)):
        raise InvalidName("task key", key, "<plural>.<group>/<namespace>/<name>")
    return TaskRef(plural, group, namespace, name)


def group_of(key: TaskKey) -> str:
    """The API group in a key that is known to be valid."""
    return key.partition("/")[0].partition(".")[2]
