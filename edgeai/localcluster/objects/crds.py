"""CustomResourceDefinitions (CRDs): their resources, their validation, their status. Pure."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from edgeai.localcluster.objects import errors, structural
from edgeai.localcluster.objects.errors import FieldError
from edgeai.localcluster.objects.resources import Column, Object, Resource, ScalePaths
from edgeai.times import rfc3339

CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


def resources(crd: Object) -> list[tuple[Resource, bool]]:
    """The resources that a valid CRD defines, one for each served version.

    Returns: pairs of a resource and whether its version is the storage version
    """
    spec = crd["spec"]
    return [
        (_resource(spec, version), bool(version.get("storage")))
        for version in spec["versions"]
        if version.get("served")
    ]


def _resource(spec: Object, version: Object) -> Resource:
    names, subresources = spec["names"], version.get("subresources") or {}
    return Resource(
        group=spec["group"],
        version=version["name"],
        plural=names["plural"],
        kind=names["kind"],
        singular=names.get("singular") or names["kind"].lower(),
        namespaced=spec["scope"] == "Namespaced",
        short_names=tuple(names.get("shortNames") or ()),
        categories=tuple(names.get("categories") or ()),
        status="status" in subresources,
        scale=_scale(subresources.get("scale")),
        columns=tuple(_column(column) for column in version.get("additionalPrinterColumns") or ()),
        schema=version["schema"]["openAPIV3Schema"],
        custom=True,
    )


def _scale(paths: Object | None) -> ScalePaths | None:
    if paths is None:
        return None
    return ScalePaths(
        replicas=paths["specReplicasPath"].lstrip("."),
        status_replicas=paths["statusReplicasPath"].lstrip("."),
        selector=paths.get("labelSelectorPath", "").lstrip("."),
    )


def _column(column: Object) -> Column:
    return Column(
        name=column["name"],
        type=column["type"],
        json_path=column["jsonPath"],
        format=column.get("format", ""),
        description=column.get("description", ""),
        priority=column.get("priority", 0),
    )


def check(crd: Object, others: Iterable[Resource]) -> list[FieldError]:
    """All reasons to refuse a CRD.

    Args:
        others: the resources that the API serves already
    """
    spec = crd.get("spec")
    if not isinstance(spec, dict):
        return [errors.required("spec")]
    faults = _check_names(spec)
    if faults:
        return faults
    name = f"{spec['names']['plural']}.{spec['group']}"
    if crd["metadata"]["name"] != name:
        why = f'must be spec.names.plural+"."+spec.group, that is "{name}"'
        return [errors.invalid("metadata.name", crd["metadata"]["name"], why)]
    return _check_conflicts(spec, others) + _check_versions(spec)


def _check_names(spec: Object) -> list[FieldError]:
    faults = []
    names = spec.get("names") if isinstance(spec.get("names"), dict) else {}
    if not _is_text(spec.get("group")):
        faults.append(errors.required("spec.group"))
    faults += [
        errors.required(f"spec.names.{field}")
        for field in ("plural", "kind")
        if not _is_text((names or {}).get(field))
    ]
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        faults.append(
            errors.unsupported("spec.scope", spec.get("scope"), ("Cluster", "Namespaced"))
        )
    if spec.get("preserveUnknownFields"):
        faults.append(errors.invalid("spec.preserveUnknownFields", True, "must be false"))
    return faults


def _check_conflicts(spec: Object, resources: Iterable[Resource]) -> list[FieldError]:
    """Check that no other resource of the CRD's group has the same plural, short name or kind."""
    group, names = spec["group"], spec["names"]
    others = [
        resource
        for resource in resources
        if resource.group == group and not (resource.custom and resource.plural == names["plural"])
    ]
    names_in_use = {name for other in others for name in (other.plural, *other.short_names)}
    names_in_use |= {other.singular for other in others if other.singular}
    kinds = {other.kind for other in others}
    claims = [(field, names.get(field), names_in_use) for field in ("plural", "singular")]
    claims += [("shortNames", name, names_in_use) for name in names.get("shortNames") or ()]
    claims.append(("kind", names["kind"], kinds))
    return [
        errors.invalid(f"spec.names.{field}", name, f"is already in use in group {group}")
        for field, name, names_of_others in claims
        if name in names_of_others
    ]


def _check_versions(spec: Object) -> list[FieldError]:
    versions = spec.get("versions")
    if not isinstance(versions, list) or not versions:
        return [errors.required("spec.versions")]
    if sum(1 for version in versions if version.get("storage")) != 1:
        why = "must have exactly one version marked as storage version"
        return [errors.invalid("spec.versions", [v.get("name") for v in versions], why)]
    faults = []
    for index, version in enumerate(versions):
        faults += _check_version(version, f"spec.versions[{index}]")
    if (spec.get("conversion") or {}).get("strategy", "None") != "None":
        faults.append(errors.unsupported("spec.conversion.strategy", "Webhook", ("None",)))
    return faults


def _check_version(version: Object, path: str) -> list[FieldError]:
    if not _is_text(version.get("name")):
        return [errors.required(f"{path}.name")]
    if version.get("storage") and not version.get("served"):
        why = "a storage version that is not served is not supported by the local cluster"
        return [errors.invalid(f"{path}.served", False, why)]
    schema = (version.get("schema") or {}).get("openAPIV3Schema")
    if not isinstance(schema, dict):
        return [errors.required(f"{path}.schema.openAPIV3Schema", "schemas are required")]
    faults = structural.check(schema, f"{path}.schema.openAPIV3Schema")
    for index, column in enumerate(version.get("additionalPrinterColumns") or ()):
        faults += [
            errors.required(f"{path}.additionalPrinterColumns[{index}].{field}")
            for field in ("name", "type", "jsonPath")
            if not _is_text(column.get(field))
        ]
    return faults + _check_scale(version, path)


def _check_scale(version: Object, path: str) -> list[FieldError]:
    scale = (version.get("subresources") or {}).get("scale")
    if scale is None:
        return []
    return [
        errors.required(f"{path}.subresources.scale.{field}")
        for field in ("specReplicasPath", "statusReplicasPath")
        if not _is_text(scale.get(field))
    ]


def with_defaults(spec: Object) -> Object:
    """A copy of a CRD's spec with default names and conversion. `check` has accepted the spec."""
    names = spec["names"]
    kind = names["kind"]
    filled = {"singular": kind.lower(), "listKind": f"{kind}List"} | names
    return {**spec, "names": filled, "conversion": spec.get("conversion") or {"strategy": "None"}}


def status(crd: Object, now: datetime) -> Object:
    """The status of an accepted CRD. As soon as the CRD is stored, the API serves the CRD's
    resources.
    """
    spec = crd["spec"]
    previous = crd.get("status") or {}
    storage = next(version["name"] for version in spec["versions"] if version.get("storage"))
    stored_versions = list(previous.get("storedVersions") or [])
    if storage not in stored_versions:
        stored_versions.append(storage)
    return {
        "acceptedNames": spec["names"],
        "storedVersions": stored_versions,
        "conditions": previous.get("conditions") or _conditions(now),
    }


def _conditions(now: datetime) -> list[Object]:
    since = rfc3339(now)
    no_conflict = ("NamesAccepted", "NoConflicts", "no conflicts found")
    established = ("Established", "InitialNamesAccepted", "the initial names have been accepted")
    return [
        {
            "type": type_,
            "status": "True",
            "lastTransitionTime": since,
            "reason": reason,
            "message": message,
        }
        for type_, reason, message in (no_conflict, established)
    ]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)
