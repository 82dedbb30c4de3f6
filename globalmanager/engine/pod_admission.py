"""Refuses pods that the Pod Security Standard of their namespace forbids, before they are created.

The label of the namespace names the level, also on API servers that do not enforce the label
themselves. A pod that runs already is never touched. The message names the fields of the job.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from edgeai.api.resources import PODS, Object, ObjectRef, ref_of
from edgeai.api.status import mapping
from edgeai.errors import EdgeAIError, Unavailable
from globalmanager.contract import Create, Event, Observed, Replace, Severity
from globalmanager.engine.caches import Caches
from globalmanager.engine.pod_security import ENFORCE, Level, Violation, level_of, violations

_MAX_NAMED: Final = 4  # fields in one message
_MAX_DEPTH: Final = 8  # of a pod template in the spec of a job


class PodForbidden(EdgeAIError):
    """The Pod Security Standard forbids a child of a job. `reason` fits a condition."""

    def __init__(self, level: Level, message: str) -> None:
        self.reason = f"Violates{level.capitalize()}"
        super().__init__(message)


class NamespaceUnknown(Unavailable):
    """The watch has not delivered the job's namespace yet, so its level is not known."""

    def __init__(self, namespace: str) -> None:
        super().__init__(f"namespace {namespace} is not in the cache yet; trying again")


class PodAdmission:
    """Judges pods by the level of their namespace.

    Args: default: level of namespaces without the label, and of all when the API server serves none
    """

    def __init__(self, caches: Caches, default: Level) -> None:
        self._caches = caches
        self._default = default

    def check(self, observed: Observed, action: Create | Replace) -> None:
        """Raises: PodForbidden, NamespaceUnknown"""
        template = _template_of(action.object, is_pod=action.type == PODS)
        # A job without children gets none while any of its templates is forbidden. Otherwise its
        # first pods would wait for pods that are never made.
        templates = [] if observed.children else _templates_in(observed.object.get("spec"), "spec")
        pod_templates = [pod_template for _, pod_template in templates]
        if template is None and not pod_templates:
            return
        level = self._level(observed.ref.namespace)
        faults = violations(level, template) if template is not None else []
        if faults or any(violations(level, pod_template) for pod_template in pod_templates):
            ref = ref_of(action.type, action.object)
            raise PodForbidden(level, _message(observed, level, {ref: faults}))

    def warning(self, observed: Observed) -> Event | None:
        """About pods that run and would be refused today, or None. Raises: NamespaceUnknown"""
        level = self._level(observed.ref.namespace)
        faults = {
            ref: wrong
            for ref, child in observed.children.items()
            if (template := _template_of(child, is_pod=ref.type == PODS)) is not None
            and (wrong := violations(level, template))
        }
        if not faults:
            return None
        message = f"{_message(observed, level, faults)}. The pods that run are left as they are"
        return Event(Severity.WARNING, f"Violates{level.capitalize()}", message)

    def _level(self, namespace: str) -> Level:
        object_ = self._caches.namespace(namespace)
        if object_ is not None:
            return level_of(object_["metadata"].get("labels"), self._default)
        if self._caches.lacks_namespaces():
            return self._default
        raise NamespaceUnknown(namespace)


def concerns_pods(old: Object | None, new: Object | None) -> bool:
    """Whether a change of a Namespace may change which of its pods are allowed."""
    labels = (mapping(mapping(object_).get("metadata")).get("labels") for object_ in (old, new))
    before, after = (mapping(object_).get(ENFORCE) for object_ in labels)
    return old is None or new is None or before != after


def _template_of(object_: Object, *, is_pod: bool) -> Mapping[str, Any] | None:
    """The pod template of a child; None when the child makes no pods."""
    if is_pod:
        return object_
    template = mapping(mapping(object_.get("spec")).get("template"))
    return template if "spec" in template else None


def _message(
    observed: Observed, level: Level, found: Mapping[ObjectRef, Sequence[Violation]]
) -> str:
    """The forbidden fields of the job's own templates, then those that edgeai adds."""
    details = [
        (violation.owner, f"{path}.{violation}")
        for path, template in _templates_in(observed.object.get("spec"), "spec")
        for violation in violations(level, template)
    ]
    owners = {owner for owner, _ in details}
    texts = dict.fromkeys(text for _, text in details)
    for ref, wrong in found.items():
        for violation in wrong:
            if violation.owner not in owners:
                texts[f"{ref.type.kind} {ref.name}: {violation}{_origin(violation)}"] = None
    listing = "; ".join([*texts][:_MAX_NAMED])
    more = f"; and {len(texts) - _MAX_NAMED} more" if len(texts) > _MAX_NAMED else ""
    remedy = f"correct the template, or ask who sets the label {ENFORCE} of the namespace"
    where = f"the Pod Security Standard {level} of namespace {observed.ref.namespace} forbids"
    return f"{where}: {listing}{more}; {remedy}"


def _origin(violation: Violation) -> str:
    """Where a field comes from that no template of the job has."""
    if violation.owner.startswith("spec.volumes[edgeai-"):
        return " (for a Model, a Dataset or a scriptDir on the node: use an s3 or http URL)"
    return ""


def _templates_in(value: Any, path: str, depth: int = 0) -> Iterator[tuple[str, Object]]:
    """(path, template) of each pod template in the spec of a job."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _templates_in(item, f"{path}[{index}]", depth + 1)
    elif isinstance(value, dict):
        for key, item in value.items():
            if key == "template" and isinstance(item, dict) and "spec" in item:
                yield f"{path}.template", item
            else:
                yield from _templates_in(item, f"{path}.{key}", depth + 1)
