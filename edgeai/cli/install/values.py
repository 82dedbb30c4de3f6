"""The values of an installation: read from a file and from --set, and checked.

A key that is unknown is named with the most similar known key. A bad value is named with its field
and with what the field wants.
"""

import ipaddress
import re
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin

import msgspec
import yaml

from common.settings import Field, Setting, fields_of, suggest
from edgeai.cli.install.errors import ValuesError
from edgeai.ids import is_subdomain

GROUPS: Final = ("edgeai.io", "sedna.io", "kubeflow.org", "kai.alibabacloud.com")
COMPONENTS: Final = ("kubeedge", "nodeport")
NODE_PORT: Final = 30900  # of deploy/components/nodeport
Role = Literal["globalmanager", "localcontroller"]
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")
_REGISTRY: Final = re.compile(
    r"[a-z0-9]+([._-]+[a-z0-9]+)*(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*\Z"
)
_TAG: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}\Z")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}\Z")
_URL: Final = re.compile(r"https?://[^/\s]+/?\Z")
_QUANTITY: Final = re.compile(r"[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi|T|Ti)?\Z")
_SHOWN_CHARS: Final = 80
_MAX_FILE_BYTES: Final = 256 * 1024
"""All values together take a few KiB; YAML takes seconds for a megabyte."""


class Requirements(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Resources of a container, as in Kubernetes. What is not named stays as deploy/ has it."""

    requests: dict[Literal["cpu", "memory"], str | int | float] = {}
    limits: dict[Literal["cpu", "memory"], str | int | float] = {}


class Values(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What one may choose. `edgeai install` without values installs what
    deploy/overlays/serviceaccount has.
    """

    namespace: Annotated[str, Setting("namespace of edgeai itself")] = "edgeai-system"
    registry: Annotated[
        str, Setting("where the images are, as in registry.example/edgeai; empty: docker.io/edgeai")
    ] = ""
    tag: Annotated[str, Setting("tag of the images; empty: this version")] = ""
    digests: Annotated[
        dict[Role, str],
        Setting("digest of an image, instead of its tag; globalmanager: sha256:…"),
    ] = {}
    groups: Annotated[
        tuple[str, ...], Setting("API groups to install, with their definitions and rights")
    ] = GROUPS
    replicas: Annotated[int, Setting("GlobalManagers, 1 to 9; with 1 a restart is an outage")] = 2
    edge_auth: Annotated[
        Literal["", "serviceaccount", "mtls", "token"],
        Setting("how edge nodes prove who they are; empty: serviceaccount, with kubeedge mtls"),
    ] = ""
    edge_host: Annotated[
        str,
        Setting(
            "name or address at which edge nodes reach the GlobalManager; empty: its Service, "
            "which needs the cluster's DNS at the edge"
        ),
    ] = ""
    node_port: Annotated[
        int,
        Setting("port of the cloud nodes for edge nodes, 30000 to 32767; 0: none"),
    ] = 0
    components: Annotated[
        tuple[str, ...],
        Setting("of kubeedge and nodeport, which is nodePort: 30900"),
    ] = ()
    pods_api: Annotated[
        str,
        Setting(
            "URL at which each LocalController watches the pods of its node, as KubeEdge's "
            "MetaServer: http://127.0.0.1:10550; empty: off"
        ),
    ] = ""
    monitoring: Annotated[
        bool, Setting("ServiceMonitor, alerts and dashboard, for the Prometheus operator")
    ] = False
    prometheus: Annotated[
        str, Setting("NAMESPACE/NAME of Prometheus' ServiceAccount, which may read /metrics")
    ] = "monitoring/prometheus-k8s"
    resources: Annotated[
        dict[Role, Requirements],
        Setting("requests and limits of cpu and memory; localcontroller.limits.memory: 512Mi"),
    ] = {}

    @property
    def identity(self) -> str:
        """The component by which edge nodes prove who they are."""
        return "kubeedge" if "kubeedge" in self.components else self.edge_auth or "serviceaccount"

    @property
    def edge_port(self) -> int:
        """The port at `edge_host`."""
        return self.published_port or 9000

    @property
    def published_port(self) -> int:
        """The port of the cloud nodes; 0 when the Service is the only way in."""
        return self.node_port or (NODE_PORT if "nodeport" in self.components else 0)

    @property
    def host(self) -> str:
        """A name or address that the certificate of the edge port must have."""
        return self.edge_host or f"globalmanager.{self.namespace}.svc"


FIELDS: Final = {field.key: field for field in fields_of(Values)}


def read_values(file: Path | None, assignments: Sequence[str] = ()) -> dict[str, Any]:
    """The values that are given, not checked yet. Raises: ValuesError"""
    given = {} if file is None else _from_file(file)
    assign_all(given, assignments)
    return given


def assign_all(given: dict[str, Any], assignments: Sequence[str]) -> None:
    """Set what each --set says. Raises: ValuesError"""
    for each in assignments:
        _assign(given, each)


def values_of(given: Mapping[str, Any], source: str = "values") -> Values:
    """The checked values. Raises: ValuesError"""
    _check_keys(given, Values, source)
    fields = {}
    for key, value in given.items():
        field = FIELDS[key]
        try:
            fields[field.name] = msgspec.convert(value, field.type, strict=False)
        except msgspec.ValidationError as error:
            shown = repr(value)[:_SHOWN_CHARS]
            raise ValuesError(f"{source}: {key}", _bad(field, shown, str(error))) from error
    values = Values(**fields)
    for key, problem in _problems(values):
        raise ValuesError(f"{source}: {key}", problem)
    return values


def _bad(field: Field, shown: str, problem: str) -> str:
    return f"{shown} is no {field.type_text()} ({problem}); it is: {field.setting.help}"


# ---- reading ------------------------------------------------------------------------------------


class _Loader(yaml.SafeLoader):
    """Refuses a key that is there twice: YAML would silently take the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    problem = f"key {key.value!r} is there twice, again"
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _from_file(path: Path) -> dict[str, Any]:
    source = f"values file {path}"
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
        if len(content) > _MAX_FILE_BYTES:
            raise ValuesError(source, f"has more than {_MAX_FILE_BYTES} bytes; is it another file?")
        document = _Loader(content.decode()).get_single_data()
    except (OSError, UnicodeDecodeError) as error:
        raise ValuesError(source, f"cannot be read: {error}") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise ValuesError(source, f"is not valid YAML: {' '.join(str(error).split())}") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ValuesError(source, "must be a map of keys, as in `replicas: 3`")
    return document


def _assign(given: dict[str, Any], assignment: str) -> None:
    """Set what one --set says, as in `replicas=3`. A list has commas: `groups=edgeai.io,sedna.io`.
    A key in a map has dots: `resources.globalmanager.limits.memory=2Gi`.
    """
    path, equals, text = assignment.partition("=")
    source = f"--set {assignment[:_SHOWN_CHARS]}"
    if not equals or not path:
        raise ValuesError(source, "must be KEY=VALUE, as in --set replicas=3")
    first, *deeper = path.split(".")
    field = FIELDS.get(first)
    if field is None:
        raise ValuesError(source, f"{first!r} is unknown" + suggest(first, [*FIELDS]))
    kind = get_origin(field.type)
    if (kind is dict) != bool(deeper) or not all(deeper):
        example = "digests.globalmanager=sha256:…" if kind is dict else f"{first}=VALUE"
        raise ValuesError(source, f"{first} is of type {field.type_text()}; write --set {example}")
    value: Any = text
    if kind is tuple:
        value = [item.strip() for item in text.split(",") if item.strip()]
    place = given
    for name in [first, *deeper][:-1]:
        below = place.get(name)
        place[name] = dict(below) if isinstance(below, dict) else {}  # never that of the caller
        place = place[name]
    place[(deeper or [first])[-1]] = value


def _check_keys(value: Any, type_: Any, source: str) -> None:
    """Raises: ValuesError for a key that the type does not have"""
    known: dict[Any, Any] = {}
    if isinstance(type_, type) and issubclass(type_, msgspec.Struct):
        known = {each.encode_name: each.type for each in msgspec.structs.fields(type_)}
    elif get_origin(type_) is dict:
        keys, below = get_args(type_)
        known = dict.fromkeys(get_args(keys), below)
    if not known or not isinstance(value, Mapping):
        return
    for key, inner in value.items():
        if key not in known:
            problem = f"key {str(key)[:_SHOWN_CHARS]!r} is unknown"
            raise ValuesError(source, problem + suggest(str(key), [*known]))
        _check_keys(inner, _plain(known[key]), f"{source}: {key}")


def _plain(type_: Any) -> Any:
    return get_args(type_)[0] if get_origin(type_) is Annotated else type_


# ---- checks -------------------------------------------------------------------------------------


def _problems(values: Values) -> list[tuple[str, str]]:
    """(key, what is wrong and what to write) of each value that no type tells."""
    checks = (
        ("namespace", _LABEL, values.namespace, "a name of letters a-z, digits and -, at most 63"),
        ("registry", _REGISTRY, values.registry, "as in registry.example:5000/edgeai"),
        ("tag", _TAG, values.tag, "as in 0.1.0; a digest belongs to digests"),
        *(
            (f"digests.{role}", _DIGEST, digest, "sha256: and 64 hexadecimal digits")
            for role, digest in values.digests.items()
        ),
        *(
            (f"resources.{role}.{part}.{name}", _QUANTITY, str(quantity), "as in 250m or 512Mi")
            for role, requirements in values.resources.items()
            for part in ("requests", "limits")
            for name, quantity in getattr(requirements, part).items()
        ),
    )
    found = [
        (key, f"{text[:_SHOWN_CHARS]!r} is wrong; write {wanted}")
        for key, pattern, text, wanted in checks
        if not pattern.match(text) and (text or key == "namespace" or "." in key)
    ]
    found += _wrong_items("groups", values.groups, GROUPS)
    found += _wrong_items("components", values.components, COMPONENTS)
    if not values.groups:
        found.append(("groups", f"is empty; name at least one of {', '.join(GROUPS)}"))
    if not 1 <= values.replicas <= 9:
        found.append(("replicas", f"{values.replicas} is out of range; write 1 to 9"))
    return found + _edge_problems(values)


def _wrong_items(key: str, items: Sequence[str], known: Sequence[str]) -> list[tuple[str, str]]:
    unknown = [
        (key, f"{each!r} is unknown{suggest(each, known)}") for each in items if each not in known
    ]
    twice = [(key, f"{each!r} is there twice") for each in set(items) if items.count(each) > 1]
    return unknown + twice


def _edge_problems(values: Values) -> list[tuple[str, str]]:
    found = []
    if values.node_port and not 30000 <= values.node_port <= 32767:
        found.append(("nodePort", f"{values.node_port} is no port of nodes; write 30000 to 32767"))
    if values.edge_host and not _is_host(values.edge_host):
        problem = "is no name or IP address; write it without wss:// and without a port"
        found.append(("edgeHost", f"{values.edge_host!r} {problem}"))
    if values.published_port and not values.edge_host:
        problem = (
            f"is missing; say at which name or address edge nodes reach port {values.edge_port}"
        )
        found.append(("edgeHost", problem))
    if "kubeedge" in values.components and values.edge_auth not in ("", "mtls"):
        found.append(("edgeAuth", f"{values.edge_auth!r} does not go with kubeedge; leave it out"))
    if values.pods_api and not _URL.match(values.pods_api):
        problem = f"{values.pods_api[:_SHOWN_CHARS]!r} is no URL; write http://127.0.0.1:10550"
        found.append(("podsApi", problem))
    namespace, slash, name = values.prometheus.partition("/")
    if not (slash and _LABEL.match(namespace) and is_subdomain(name)):
        problem = f"{values.prometheus!r} is no NAMESPACE/NAME; write monitoring/prometheus-k8s"
        found.append(("prometheus", problem))
    return found


def _is_host(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return is_subdomain(text)
    return True
