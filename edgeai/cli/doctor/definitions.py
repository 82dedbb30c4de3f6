"""Whether edgeai supports the API server, and that serves edgeai's resources, with all fields."""

from collections.abc import Iterator
from typing import Any, Final

from edgeai.api.resources import Object
from edgeai.api.status import condition_of
from edgeai.cli.doctor.facts import DEFINITIONS, Facts
from edgeai.cli.doctor.finding import INSTALL, Note
from edgeai.kube.remedies import UPGRADE
from edgeai.kube.user import Version
from globalmanager.kinds import KINDS
from globalmanager.manifests import crds

OLDEST: Final = Version(1, 30)


def kubernetes(facts: Facts) -> Iterator[Note]:
    version = facts.version
    if version is None or version.major == 0:  # as builds without a release tell
        yield "ok", "the API server does not report its version"
    elif version < OLDEST:
        message = f"Kubernetes {version} is older than {OLDEST}, the oldest that edgeai supports"
        yield "error", message, "upgrade the cluster"
    else:
        yield "ok", f"Kubernetes {version}"


def definitions(facts: Facts) -> Iterator[Note]:
    installed = {crd["metadata"]["name"]: crd for crd in facts.of(DEFINITIONS)}
    expected = {
        str(type_): crds.crd(kind, type_) for kind in KINDS for type_ in kind.definition.resources
    }
    if not facts.groups:
        yield "error", "no CustomResourceDefinition of edgeai is installed", INSTALL
        return
    problems = 0
    for name, crd in expected.items():
        if crd["spec"]["group"] not in facts.groups:
            continue  # an installation may leave a whole group out
        problem = definition_problem(installed.get(name), crd)
        if problem:
            problems += 1
            yield "error", f"CustomResourceDefinition {name} {problem}", UPGRADE
    if not problems:
        yield "ok", f"CustomResourceDefinitions of {', '.join(sorted(facts.groups))}"


def definition_problem(installed: Object | None, expected: Object) -> str:
    """Why the installed definition does not do; "" when it does."""
    if installed is None:
        return "is not installed, though others of its group are"
    for condition in (condition_of(installed, one) for one in ("NamesAccepted", "Established")):
        if condition.get("status") == "False":
            return f"is not served: {condition.get('message') or condition.get('reason')}"
    served_versions = {
        version["name"] for version in installed["spec"]["versions"] if version.get("served")
    }
    gap = {version["name"] for version in expected["spec"]["versions"]} - served_versions
    if gap:
        return f"does not serve version {', '.join(sorted(gap))}; it is from an older release"
    absent = _absent_fields(_spec_fields(installed), _spec_fields(expected))
    if absent:
        return f"has no field {absent}, so the API server drops it; it is from an older release"
    return ""


def _spec_fields(crd: Object) -> Any:
    """The schema of the stored version."""
    storage_version = next(version for version in crd["spec"]["versions"] if version.get("storage"))
    return (storage_version.get("schema") or {}).get("openAPIV3Schema") or {}


def _absent_fields(installed: Any, expected: Any, path: str = "") -> str:
    """The path of the first field that the installed schema lacks; "" when it has all."""
    if installed.get("x-kubernetes-preserve-unknown-fields"):
        return ""
    present = installed.get("properties") or {}
    for name, schema in (expected.get("properties") or {}).items():
        here = f"{path}.{name}"
        if name not in present:
            return here
        if absent_path := _absent_fields(present[name], schema, here):
            return absent_path
    if "items" in expected and "items" in installed:
        return _absent_fields(installed["items"], expected["items"], f"{path}[]")
    return ""
