"""Discovery: the groups, versions and resources that the API serves.

Pure. There is one list for each group and version. Clients that would rather have all in one
document (apidiscovery.k8s.io) take these lists, too.
"""

from collections.abc import Iterable

from edgeai.localcluster.objects.resources import VERBS, Object, Resource

_SUBRESOURCE_KINDS = {"scale": {"group": "autoscaling", "version": "v1", "kind": "Scale"}}
_SUBRESOURCE_VERBS = {"log": ["get"]}


def group_list(resources: Iterable[Resource]) -> Object:
    """APIGroupList of all groups except the core group."""
    versions = _versions(resources)
    groups = [_group(name, versions[name]) for name in versions if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(resources: Iterable[Resource], name: str) -> Object | None:
    versions = _versions(resources).get(name)
    if not versions:
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}


def resource_list(resources: Iterable[Resource], group_version: str) -> Object | None:
    """APIResourceList of one group and version; None if no resource has them."""
    entries = [
        entry
        for resource in resources
        if resource.group_version == group_version
        for entry in _entries(resource)
    ]
    head = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version}
    return {**head, "resources": entries} if entries else None


def _versions(resources: Iterable[Resource]) -> dict[str, list[str]]:
    """The versions of each group. The preferred version comes first: v1, v1beta1, v1alpha1."""
    versions: dict[str, list[str]] = {}
    for resource in resources:
        names = versions.setdefault(resource.group, [])
        if resource.version not in names:
            names.append(resource.version)
    return {group_: sorted(names, key=_rank) for group_, names in versions.items()}


def _rank(version: str) -> tuple[int, list[int], str]:
    """Sort key of a version: first v2, v1, then beta versions, then alpha versions, then others."""
    stages = {"v": 0, "vbeta": 1, "valpha": 2}
    letters = "".join(character for character in version if character.isalpha())
    numbers = "".join(c if c.isdecimal() else " " for c in version).split()
    return stages.get(letters, 3), [-int(number) for number in numbers], version


def _group(name: str, versions: list[str]) -> Object:
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def _entries(resource: Resource) -> list[Object]:
    main: Object = {
        "name": resource.plural,
        "singularName": resource.singular_name,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(VERBS),
    }
    names = {"shortNames": resource.short_names, "categories": resource.categories}
    subresources = [
        {
            "name": f"{resource.plural}/{name}",
            "singularName": "",
            "namespaced": resource.namespaced,
            **_SUBRESOURCE_KINDS.get(name, resource.group_version_kind),
            "verbs": _SUBRESOURCE_VERBS.get(name, ["get", "patch", "update"]),
        }
        for name in resource.subresources
    ]
    return [main | {field: list(n) for field, n in names.items() if n}, *subresources]
