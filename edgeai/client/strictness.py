"""Fields that a kind does not have: a typo that an API server would drop without a word.

An API server of Kubernetes 1.25 or newer refuses them where a request says so. An older one knows
no such request: there a dry run shows what it would drop. No server checks the fields of a pod
template in a job, which a definition leaves open. A dry run of a pod shows these.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from common.text import printable
from edgeai.client.errors import InvalidObject
from edgeai.client.objects import CLASSES
from globalmanager.contract import Object, ResourceType
from globalmanager.kube.errors import ApiError
from globalmanager.kube.user import Version

STRICT_SINCE: Final = Version(1, 25)
TOP: Final = ("apiVersion", "kind", "metadata", "spec", "status")
METADATA: Final = (
    *("name", "generateName", "namespace", "labels", "annotations", "finalizers"),
    *("ownerReferences", "uid", "resourceVersion", "generation", "creationTimestamp"),
    *("deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink"),
)
POD: Final = (
    *("activeDeadlineSeconds", "affinity", "automountServiceAccountToken", "containers"),
    *("dnsConfig", "dnsPolicy", "enableServiceLinks", "hostAliases", "hostIPC", "hostNetwork"),
    *("hostPID", "hostname", "imagePullSecrets", "initContainers", "nodeName", "nodeSelector"),
    *("priority", "priorityClassName", "restartPolicy", "runtimeClassName", "schedulerName"),
    *("securityContext", "serviceAccountName", "shareProcessNamespace", "subdomain"),
    *("terminationGracePeriodSeconds", "tolerations", "topologySpreadConstraints", "volumes"),
    *("args", "command", "env", "envFrom", "image", "imagePullPolicy", "lifecycle"),
    *("livenessProbe", "name", "ports", "readinessProbe", "resources", "startupProbe", "stdin"),
    *("terminationMessagePath", "tty", "volumeDevices", "volumeMounts", "workingDir", "limits"),
    *("requests", "value", "valueFrom", "containerPort", "mountPath", "readOnly", "subPath"),
)
"""Fields of pods and their containers that people write."""
MAX_TEMPLATES: Final = 16
_UNKNOWN: Final = re.compile(r'unknown field "([^"]+)"|\.(\S+): field not declared in schema')
_INDEX: Final = re.compile(r"\[[^]]*\]")
_MAX_NAMED: Final = 5
_MAX_CHARS: Final = 200  # of one field in an error
_CORRECT: Final = "correct it, or leave it out"


def unknown_fields(error: ApiError) -> list[str]:
    """The unknown fields that the API server names in its refusal; none of another refusal."""
    return [first or second for first, second in _UNKNOWN.findall(error.message)]


def dropped(given: Any, stored: Any, path: str) -> Iterator[str]:
    """The fields of `given` that `stored` lacks, for example "spec.workers[0].nam". A null says
    nothing.
    """
    if isinstance(given, Mapping) and isinstance(stored, Mapping):
        for key, value in given.items():
            if key in stored:
                yield from dropped(value, stored[key], f"{path}.{key}")
            elif value is not None:
                yield f"{path}.{key}"
    elif isinstance(given, list) and isinstance(stored, list):
        for index, (one, other) in enumerate(zip(given, stored, strict=False)):
            yield from dropped(one, other, f"{path}[{index}]")


def templates(value: Any, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The different pod templates in a spec, with their paths."""
    found: list[Any] = []
    for place, template in _templates(value, path):
        if template not in found:
            found.append(template)
            yield place, template


def _templates(value: Any, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _templates(item, f"{path}[{index}]")
    elif isinstance(value, Mapping):
        spec = value.get("spec")
        if path.endswith(".template") and isinstance(spec, Mapping) and spec.get("containers"):
            yield path, value
            return
        for key, item in value.items():
            yield from _templates(item, f"{path}.{key}")


def pod_of(template: Mapping[str, Any], namespace: str) -> Object:
    """A pod for a dry run. It has no token, for which an API server may wait in a new namespace."""
    metadata = {"generateName": "edgeai-dry-run-", "namespace": namespace}
    return {
        "metadata": metadata,
        "spec": {**template["spec"], "automountServiceAccountToken": False},
    }


def check_head(document: Mapping[str, Any], what: str) -> None:
    """Raises: InvalidObject for a field beside the spec, or of the metadata, that no object has"""
    for fields, known, path in (
        (document, TOP, ""),
        (document.get("metadata") or {}, METADATA, "metadata."),
    ):
        unknown = [str(field) for field in fields if field not in known]
        if unknown:
            raise _refusal(what, "an object", [f"{path}{each}" for each in unknown], known)


def refusal(type_: ResourceType, what: str, fields: Sequence[str]) -> InvalidObject:
    """The error for unknown fields of the spec. Args: what: the object"""
    return _refusal(what, f"a {type_.kind}", fields, _siblings(type_, fields[0]))


def refusal_of_template(what: str, fields: Sequence[str]) -> InvalidObject:
    """The error for unknown fields of a pod template. Args: what: the object"""
    return _refusal(what, "a pod", fields, POD)


def _refusal(what: str, whose: str, fields: Sequence[str], known: Iterable[str]) -> InvalidObject:
    # Somebody else may have written the file: its words go to a terminal.
    named = [printable(field)[:_MAX_CHARS] for field in fields[:_MAX_NAMED]]
    others = named[1:]
    problem = f"is no field of {whose}"
    problem += f", nor is {', nor '.join(others)}" if others else ""
    problem += f", and {len(fields) - _MAX_NAMED} more" if len(fields) > _MAX_NAMED else ""
    name = named[0].rpartition(".")[2]
    similar = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    remedy = f"did you mean {similar[0]}? {_CORRECT}" if similar else _CORRECT
    return InvalidObject(what, named[0], problem, remedy)


def _siblings(type_: ResourceType, field: str) -> list[str]:
    """The fields that the definition of the type has in the place of `field`."""
    from globalmanager.manifests.crds import structural  # only a refusal needs it

    schema_of = next(each.KIND.types[type_] for each in CLASSES if type_ in each.KIND.types)
    schema = {"properties": {"spec": structural(schema_of.spec)}}
    for step in field.split(".")[:-1]:
        properties = schema.get("properties") or {}
        inner = properties.get(_INDEX.sub("", step)) or schema.get("additionalProperties") or {}
        for _ in _INDEX.findall(step):
            inner = inner.get("items") or {}
        schema = inner
    return list(schema.get("properties") or {})
