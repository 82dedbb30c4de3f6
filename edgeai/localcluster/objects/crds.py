"""CustomResourceDefinitions (CRDs): their resources, their validation, their status. Pure."""

from datetime import datetime

import msgspec

from edgeai.localcluster.objects import errors
from edgeai.localcluster.objects.errors import FieldError
from edgeai.localcluster.objects.resources import Object, Resource
from edgeai.times import rfc3339

CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"


def resources(crd: Object) -> list[tuple[Resource, bool]]:
    """For each served version of a valid CRD: the resource, and whether it is the stored one."""
    spec = crd["spec"]
    return [
        (_resource(spec, version), bool(version.get("storage")))
        for version in spec["versions"]
        if version.get("served")
    ]


def _resource(spec: Object, version: Object) -> Resource:
    """Raises: AttributeError, KeyError, TypeError or ValueError for a part of a wrong type"""
    names, subresources = spec["names"], version.get("subresources") or {}
    fields = {
        "group": spec["group"],
        "version": version["name"],
        "plural": names["plural"],
        "kind": names["kind"],
        "singular": names.get("singular") or names["kind"].lower(),
        "namespaced": spec["scope"] == "Namespaced",
        "short_names": names.get("shortNames") or (),
        "categories": names.get("categories") or (),
        "status": "status" in subresources,
        "scale": subresources.get("scale"),
        "columns": version.get("additionalPrinterColumns") or (),
        "schema": version["schema"]["openAPIV3Schema"],
        "custom": True,
    }
    return msgspec.convert(fields, Resource)


def check(crd: Object) -> list[FieldError]:
    """The reasons to refuse a CRD. Its schemas are taken as they are.

    Raises: AttributeError, KeyError, TypeError or ValueError for a wrong or missing part
    """
    spec = crd["spec"]
    names, versions = spec["names"], spec["versions"]
    fields = [field for field in ("plural", "kind") if not names.get(field)]
    faults = [errors.required(f"spec.names.{field}") for field in fields]
    name = f"{names['plural']}.{spec['group']}"
    if crd["metadata"]["name"] != name:
        why = f'must be spec.names.plural+"."+spec.group, that is "{name}"'
        faults.append(errors.invalid("metadata.name", crd["metadata"]["name"], why))
    if spec["scope"] not in ("Namespaced", "Cluster"):
        faults.append(errors.unsupported("spec.scope", spec["scope"], ("Cluster", "Namespaced")))
    if (spec.get("conversion") or {}).get("strategy", "None") != "None":
        faults.append(errors.unsupported("spec.conversion.strategy", "Webhook", ("None",)))
    if [version.get("served") for version in versions if version.get("storage")] != [True]:
        why = "must have exactly one version marked as storage version, and serve it"
        faults.append(errors.invalid("spec.versions", [v.get("name") for v in versions], why))
    faults += [
        errors.required(f"spec.versions[{index}].schema.openAPIV3Schema", "schemas are required")
        for index, version in enumerate(versions)
        if not isinstance(schema := version["schema"].get("openAPIV3Schema"), dict)
        or not isinstance(schema.get("properties", {}), dict)
    ]
    if not faults:
        resources(crd)
    return faults


def with_defaults(spec: Object) -> Object:
    """A copy of a CRD's spec with default names and conversion. `check` has accepted the spec."""
    names = spec["names"]
    kind = names["kind"]
    filled = {"singular": kind.lower(), "listKind": f"{kind}List"} | names
    return {**spec, "names": filled, "conversion": spec.get("conversion") or {"strategy": "None"}}


def status(crd: Object, now: datetime) -> Object:
    """The status of an accepted CRD. The API serves its resources as soon as it is stored."""
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
