"""Computes what to execute for a container's spec: argv, environment, working directory.

Each start computes them again, so a restarted container gets the current Services, ConfigMaps and
Secrets. The module starts no process and writes no file.
"""

import base64
import os
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from edgeai.localcluster.errors import ClusterError
from edgeai.localcluster.kubelet.expansion import (
    Endpoint,
    HostRewriter,
    PathRewriter,
    ServiceHost,
    expand,
    port_variables,
    rendezvous_endpoints,
    store_host_variable,
)
from edgeai.localcluster.network.pod_addresses import PodAddresses, is_headless
from edgeai.localcluster.objects.resources import CONFIGMAPS, SECRETS, Object, Resource

Lookup = Callable[[Resource, str], Object | None]
"""Finds an object in the pod's namespace by its name. Returns None if there is no such object."""

_KEYED_FIELD = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
_NOT_PROVIDED = "the local cluster does not provide it"


class ContainerConfigError(ClusterError):
    """The container cannot start because of its spec. The text of the error is for the user."""


class ContainerStartError(ClusterError):
    """The machine cannot execute the container's program. The container records a failed start."""


class PodView(msgspec.Struct, frozen=True, kw_only=True):
    pod: Object
    pod_ip: str
    host_ip: str
    directory: Path
    root: Path
    """The directory that replaces / for the container, and its default working directory."""
    mounts: Mapping[str, str]
    """Mount path in the container -> path on this machine."""
    services: Sequence[ServiceHost]
    move_port: Callable[[Endpoint], int]
    """The port of this machine that replaces a port of a headless Service.

    Raises: ContainerConfigError
    """
    base_env: Mapping[str, str]
    """Environment variables of every container. Variables of the spec override these variables."""


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    executable: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str
    enter: tuple[str, ...] = ()
    """The command that moves the program into the network of its node; () if the node has none."""
    moved_ports: Mapping[int, int] = {}
    """Port of the container -> port of this machine where the program listens instead."""


def pull_error(image: str) -> str:
    """Why no node can pull the image, in the words of a kubelet with containerd; "" for an image
    whose registry may exist. This cluster pulls nothing.
    """
    registry, _, rest = image.partition("/")
    host = registry.partition(":")[0]
    if not rest or not host.endswith(".invalid"):
        return ""
    repository, _, tag = rest.partition(":")
    return (
        f'failed to pull and unpack image "{image}": failed to resolve reference "{image}": '
        f'failed to do request: Head "https://{registry}/v2/{repository}/manifests/'
        f'{tag or "latest"}": dial tcp: lookup {host}: no such host'
    )


def launch(
    container: Object, view: PodView, lookup: Lookup, *, command: Sequence[str] = ()
) -> Launch:
    """Resolve, expand and rewrite one container's spec.

    Args:
        command: what to execute instead of the container's command; `$(VAR)` in it stays
    Raises: ContainerConfigError when an object is missing that the spec refers to;
        ContainerStartError when the program is missing, or Linux cannot give a text to it
    """
    rewrite_path = PathRewriter(view.mounts)
    rewrite_host = HostRewriter(view.pod["metadata"]["namespace"], view.services)
    endpoints = rendezvous_endpoints(view.pod, rewrite_host)
    ports = {endpoint: view.move_port(endpoint) for endpoint in endpoints}
    raw = environment(container, view, lookup)
    raw |= port_variables(raw, rewrite_host, ports)
    raw |= store_host_variable(raw, rewrite_host, view.pod_ip)
    rewrite_host.move_ports(ports)
    env = {name: rewrite_host(rewrite_path(value), variable=name) for name, value in raw.items()}
    texts = command or [expand(text, raw) for text in _argv(container)]
    argv = tuple(rewrite_host(rewrite_path(text)) for text in texts)
    cwd = _working_directory(container, view, rewrite_path)
    own = {e.port: port for e, port in ports.items() if e.host.address == view.pod_ip}
    _check_texts(argv, env)
    executable = _executable(argv[0], cwd, env)
    return Launch(executable=executable, argv=argv, env=env, cwd=cwd, moved_ports=own)


def environment(container: Object, view: PodView, lookup: Lookup) -> dict[str, str]:
    """The environment variables of a container, before `launch` rewrites their paths and hosts.

    A variable may refer to an earlier variable.

    Raises: ContainerConfigError
    """
    own = {
        "HOME": str(view.directory),
        "HOSTNAME": view.pod["metadata"]["name"],
    }
    env = own | dict(view.base_env)
    for source in container.get("envFrom") or []:
        env |= _env_from(source, lookup)
    for variable in container.get("env") or []:
        value = _value(variable, env, view, lookup)
        if value is not None:
            env[variable["name"]] = value
    return env


def _env_from(source: Object, lookup: Lookup) -> dict[str, str]:
    prefix = source.get("prefix") or ""
    for kind, resource in (("configMapRef", CONFIGMAPS), ("secretRef", SECRETS)):
        if reference := source.get(kind):
            data = _data(resource, reference, lookup) or {}
            return {prefix + key: _text(value) for key, value in data.items()}
    raise ContainerConfigError(f"envFrom {sorted(source)}: {_NOT_PROVIDED}")


def _value(variable: Object, env: Mapping[str, str], view: PodView, lookup: Lookup) -> str | None:
    """The value of one variable; None if an optional reference has no target."""
    source = variable.get("valueFrom")
    if not source:
        return expand(str(variable.get("value") or ""), env)
    if reference := source.get("fieldRef"):
        return field_value(str(reference.get("fieldPath")), view.pod, view.pod_ip, view.host_ip)
    for kind, resource in (("configMapKeyRef", CONFIGMAPS), ("secretKeyRef", SECRETS)):
        if reference := source.get(kind):
            return _key_value(resource, reference, lookup)
    raise ContainerConfigError(
        f"environment variable {variable['name']}: valueFrom {sorted(source)}: {_NOT_PROVIDED}"
    )


def field_value(path: str, pod: Object, pod_ip: str, host_ip: str) -> str:
    """Raises: ContainerConfigError for a field that a fieldRef cannot name"""
    metadata, spec = pod["metadata"], pod["spec"]
    if keyed := _KEYED_FIELD.fullmatch(path):
        return str((metadata.get(keyed[1]) or {}).get(keyed[2], ""))
    fields = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName") or "default",
        "status.podIP": pod_ip,
        "status.podIPs": pod_ip,
        "status.hostIP": host_ip,
    }
    if path not in fields:
        raise ContainerConfigError(f"fieldRef {path}: {_NOT_PROVIDED}")
    return str(fields[path])


def object_data(resource: Resource, object_: Object) -> dict[str, bytes]:
    if resource is SECRETS:
        return {key: base64.b64decode(v) for key, v in (object_.get("data") or {}).items()}
    texts = {key: str(v).encode() for key, v in (object_.get("data") or {}).items()}
    binary = object_.get("binaryData") or {}
    return texts | {key: base64.b64decode(value) for key, value in binary.items()}


def _data(resource: Resource, reference: Object, lookup: Lookup) -> dict[str, bytes] | None:
    """Returns: None if the object does not exist and the reference is optional

    Raises: ContainerConfigError if the object does not exist and the reference is not optional
    """
    name = str(reference.get("name"))
    object_ = lookup(resource, name)
    if object_ is not None:
        return object_data(resource, object_)
    if reference.get("optional"):
        return None
    raise ContainerConfigError(f'{resource.singular_name} "{name}" not found')


def _key_value(resource: Resource, reference: Object, lookup: Lookup) -> str | None:
    data, key = _data(resource, reference, lookup), str(reference.get("key"))
    if data is not None and key in data:
        return _text(data[key])
    if reference.get("optional"):
        return None
    raise ContainerConfigError(f"couldn't find key {key} in {resource.kind} {reference['name']}")


def _text(value: bytes) -> str:
    if b"\0" in value:
        raise ContainerConfigError("an environment variable cannot hold a NUL byte")
    return os.fsdecode(value)


def _argv(container: Object) -> list[str]:
    command = [str(part) for part in container.get("command") or []]
    args = [str(part) for part in container.get("args") or []]
    if command:
        return command + args
    raise ContainerConfigError(
        f"container {container['name']} has no command: the local cluster runs commands, not"
        " images; give spec.containers[].command"
    )


def _working_directory(container: Object, view: PodView, rewrite_path: Callable[[str], str]) -> str:
    """The real path of workingDir.

    A path that is neither in a mount nor on this machine is below the container's root.
    """
    path = str(container.get("workingDir") or "/")
    real = rewrite_path(path)
    if path == "/" or (real == path and not Path(path).is_dir()):
        return str(view.root / path.strip("/"))
    return real


def _check_texts(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Raises: ContainerStartError for a text that Linux gives to no program"""
    if any("\0" in text for text in argv):
        raise ContainerStartError("command or args contain a NUL byte; remove it")
    for name, value in env.items():
        if "=" in name or "\0" in name or "\0" in value:
            problem = "its name contains '=', or its name or value contains a NUL byte; correct it"
            raise ContainerStartError(f"environment variable {name!r}: {problem}")


def _executable(command: str, cwd: str, env: Mapping[str, str]) -> str:
    """The path of a program. Raises: ContainerStartError when the machine has no such program"""
    is_path = "/" in command
    searched = cwd if is_path else env.get("PATH", os.defpath)
    program = shutil.which(os.path.join(cwd, command) if is_path else command, path=searched)
    if program is None:
        problem = f"is not an executable file on this machine (searched: {searched})"
        raise ContainerStartError(f"{command!r} {problem}")
    return program


def service_hosts(services: Iterable[Object], addresses: PodAddresses) -> list[ServiceHost]:
    """The Services with an address: the cluster IP, or the address of a headless Service."""
    hosts = []
    for service in services:
        metadata = service["metadata"]
        is_own = is_headless(service)
        address = addresses.address(service) if is_own else service["spec"].get("clusterIP") or ""
        if address:
            hosts.append(ServiceHost(metadata["name"], metadata["namespace"], address, is_own))
    return hosts
