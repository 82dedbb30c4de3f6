"""Where a pod finds the data of a URL, and which volumes and containers bring it there.

A URL without a scheme is a path on the worker's node. The pod mounts the directory of the path
below /home/data, read-only unless the worker writes the data. The settings say which directories
may be mounted. For an s3, http or https URL, an init container fetches the data into /downloads.
For an output path, Kubernetes creates a missing directory on the node. An output URL goes to the
worker, which sends the data itself.

Sedna defines the layout and the environment variables, so Sedna's worker images find their models.
Credentials are references to Secrets. Of a Secret, this module reads two annotations, in which
Sedna's users write the S3 server.
"""

import posixpath
import re
from collections.abc import Iterable, Sequence
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

import msgspec

from common.node_paths import normal, obstacle
from edgeai.api.resources import Object
from edgeai.api.specs import InvalidSpec, shown
from globalmanager.contract import STORAGE_ANNOTATIONS, WorkerSettings

HOST_DATA: Final = "/home/data"
DOWNLOADS: Final = "/downloads"
# The schemes that Sedna's init container can fetch.
SCHEMES: Final = ("s3", "http", "https")
# Sedna's names: the workers of its users read these variables.
ENDPOINT: Final = "S3_ENDPOINT_URL"
CREDENTIAL_KEYS: Final = (ENDPOINT, "ACCESS_KEY_ID", "SECRET_ACCESS_KEY")

_HOST_AND_PORT: Final = re.compile(
    r"([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?/?"
)
_USER_INFO: Final = re.compile(r"//[^/]*@")
# As the level "restricted" wants it. The user is the pod's, to whom the data belongs.
RESTRICTED: Final = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
_DOWNLOADS_VOLUME: Final = "edgeai-downloads"


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Data that a worker needs. `env`: the variable that says where the data is."""

    env: str
    url: str
    credential: str = ""
    """Name of a Secret with CREDENTIAL_KEYS, of which AWS needs no S3_ENDPOINT_URL; "" for none."""
    endpoint: str = ""
    """URL of the S3 server, where the Secret names the server in its annotations."""
    is_output: bool = False
    """True when the worker writes the data."""


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """Parts of a pod spec, in the form of the Kubernetes API."""

    env: tuple[dict[str, Any], ...] = ()
    volumes: tuple[dict[str, Any], ...] = ()
    mounts: tuple[dict[str, Any], ...] = ()
    init_containers: tuple[dict[str, Any], ...] = ()


def _shown(url: str) -> str:
    """The URL for a message, without the password."""
    # Whoever may read the job may read its conditions, and they may not be allowed to read keys.
    return shown(_USER_INFO.sub("//…@", url))


def check_url(url: str, path: str = "spec.url") -> None:
    """Raises: InvalidSpec unless a worker could use the URL's data"""
    try:
        parts = urlsplit(url)
    # urlsplit refuses some texts, as an IPv6 address without its bracket.
    except ValueError as error:
        raise InvalidSpec(path, f"{_shown(url)} is no URL ({error})", "correct it") from error
    if parts.scheme:
        _check_remote(url, parts, path)
    else:
        _check_host_path(url, path)


def fault_of_place(
    url: str, settings: WorkerSettings, path: str = "spec.url"
) -> InvalidSpec | None:
    """Why no pod may mount the directory of the URL, a checked one; None: pods may."""
    # A remote URL mounts nothing of the node.
    return None if urlsplit(url).scheme else fault_of_directory(mounted(url), settings, path)


def fault_of_directory(directory: str, settings: WorkerSettings, path: str) -> InvalidSpec | None:
    """Why the settings let no pod mount this directory of a node; None: they do."""
    # Prefixes are compared as texts, and /data//a is the same directory as /data/a. For a Dataset,
    # the LocalController checks again behind symbolic links, which no text shows.
    wrong = obstacle(normal(directory), settings.node_path_prefixes)
    if not wrong:
        return None
    problem = f"workers may not have {shown(directory)} of a node, because of {shown(wrong)}"
    remedy = "move the data, or name its directory in --node-path-prefixes of the GlobalManager"
    return InvalidSpec(path, problem, remedy)


def check_bucket_url(url: str, path: str) -> None:
    """Raises: InvalidSpec unless `url` names an object in an S3 bucket"""
    if not url.startswith("s3://"):
        problem = f"{_shown(url)} is not in a bucket"
        raise InvalidSpec(path, problem, "write it like s3://bucket/key")
    check_url(url, path)


def _check_remote(url: str, parts: SplitResult, path: str) -> None:
    if parts.scheme not in SCHEMES:
        remedy = f"use {', '.join(SCHEMES)} or the path of a file on the node"
        raise InvalidSpec(path, f"scheme of {_shown(url)} is not supported", remedy)
    if not parts.netloc or not parts.path.strip("/"):
        raise InvalidSpec(path, f"{_shown(url)} names no file", "give host or bucket, and path")
    if ".." in parts.path.split("/"):
        raise InvalidSpec(path, f"{_shown(url)} has a '..'", "write the path without it")


def _check_host_path(url: str, path: str) -> None:
    # Kubernetes refuses '..' in a hostPath. For a file in / the pod would mount the whole node.
    if not url.startswith("/") or ".." in url.split("/") or _is_in_root(url):
        problem = f"{_shown(url)} is no absolute path of a file within a directory of the node"
        raise InvalidSpec(path, problem, "write it like /models/small/model.onnx")


def _is_in_root(url: str) -> bool:
    """Whether the path is / or a file directly in /."""
    path = normal(url)
    # A dot tells a file from a directory. Nothing else does: the node is not in sight.
    return path == "/" or (mounted(url) == path and "." in path)


def mounted(url: str) -> str:
    """The directory of the node that the pod mounts for a path: the parent of the path.

    A path directly below / counts as a directory, as in Sedna's examples.
    """
    parent = posixpath.dirname(normal(url))
    return normal(url) if parent == "/" else parent


def place(sources: Sequence[Source], settings: WorkerSettings) -> Placement:
    """The parts of a pod spec that bring `sources`, whose URLs are checked, into the pod."""
    local = [source for source in sources if not urlsplit(source.url).scheme]
    remote = [source for source in sources if urlsplit(source.url).scheme]
    outputs = [source for source in remote if source.is_output]
    on_host = _host_paths(local)
    fetched = _downloads([source for source in remote if not source.is_output], settings)
    places = {source.env: path_in_pod(source.url) for source in sources}
    # An init container runs before there is a result, so the worker sends it to the URL itself.
    places |= {source.env: source.url for source in outputs}
    # Several outputs use one Secret, so each variable stands in the container once.
    keys = {
        entry["name"]: entry
        for source in outputs
        for entry in credentials(source.credential, source.endpoint)
    }
    variables = ({"name": name, "value": path} for name, path in places.items())
    return Placement(
        env=(*variables, *on_host.env, *keys.values()),
        volumes=on_host.volumes + fetched.volumes,
        mounts=on_host.mounts + fetched.mounts,
        init_containers=fetched.init_containers,
    )


def joined(*placements: Placement) -> Placement:
    return Placement(
        env=tuple(item for placement in placements for item in placement.env),
        volumes=tuple(item for placement in placements for item in placement.volumes),
        mounts=tuple(item for placement in placements for item in placement.mounts),
        init_containers=tuple(
            item for placement in placements for item in placement.init_containers
        ),
    )


def credentials(secret: str, endpoint: str) -> tuple[dict[str, Any], ...]:
    """Environment variables for a worker that uses a bucket itself. Empty when `secret` is "".

    Args: endpoint: URL of the S3 server; "" when the Secret may have it as a key
    """
    literals = {ENDPOINT: {"value": endpoint}} if endpoint else {}
    return tuple(
        {"name": key, **literals.get(key, _from_key(secret, key))}
        for key in CREDENTIAL_KEYS
        if secret
    )


def _from_key(secret: str, key: str) -> dict[str, Any]:
    # A Secret for AWS has no endpoint, and the kubelet starts no container without a key.
    return {"valueFrom": {"secretKeyRef": {"name": secret, "key": key, "optional": True}}}


def endpoint(secret: Object) -> str:
    """URL of the S3 server that annotations of the Secret name, as for Sedna; "" for none.

    Raises: InvalidSpec when the annotation is no host with or without a port
    Source: Sedna v0.7, globalmanager/runtime/secret_injector.go
    """
    server = (secret["metadata"].get("annotations") or {}).get(STORAGE_ANNOTATIONS[0], "")
    if not server:
        return ""
    scheme, separator, host = server.rpartition("://")
    if not separator:
        use_https = secret["metadata"]["annotations"].get(STORAGE_ANNOTATIONS[1])
        # Sedna, too, uses https unless the annotation says "0".
        scheme = "http" if use_https == "0" else "https"
    if scheme not in ("http", "https") or not _HOST_AND_PORT.fullmatch(host):
        path = f"metadata.annotations.{STORAGE_ANNOTATIONS[0]}"
        raise InvalidSpec(
            path, f"{_shown(server)} is no S3 server", "write it like host or host:9000"
        )
    return f"{scheme}://{host}"


def secrets(sources: Iterable[Source]) -> list[str]:
    """The names of the Secrets that `sources` need. More than one name is a conflict, because one
    container can use the keys of one Secret only.
    """
    # A file of the node needs no keys, so a job does not wait for a Secret beside a path.
    remote = (source for source in sources if urlsplit(source.url).scheme)
    return sorted({source.credential for source in remote if source.credential})


def path_in_pod(url: str) -> str:
    """Where a pod has the data of the URL, if it does not write them."""
    parts = urlsplit(url)
    if not parts.scheme:
        return HOST_DATA + normal(url)
    # Without the user info, because the path stands in the environment of the worker.
    return posixpath.join(DOWNLOADS, parts.netloc.rpartition("@")[2] + normal(parts.path))


def _host_paths(sources: Sequence[Source]) -> Placement:
    if not sources:
        return Placement()
    # Kubernetes refuses two mounts at one path, so files of one directory share a volume.
    parents = dict.fromkeys(mounted(source.url) for source in sources)
    directories = [(f"edgeai-data-{index}", parent) for index, parent in enumerate(parents)]
    output_parents = {mounted(source.url) for source in sources if source.is_output}
    mounts = (
        {
            "name": name,
            "mountPath": HOST_DATA + parent,
            # Other jobs have this data, too. A worker changes nothing but its own result.
            **({} if parent in output_parents else {"readOnly": True}),
        }
        for name, parent in directories
    )
    return Placement(
        env=({"name": "DATA_PATH_PREFIX", "value": HOST_DATA},),
        volumes=tuple(
            host_directory(name, parent, make=parent in output_parents)
            for name, parent in directories
        ),
        mounts=tuple(mounts),
    )


def host_directory(name: str, path: str, *, make: bool = False) -> dict[str, Any]:
    """A hostPath volume. Without `make`, the pod waits for the directory."""
    # Never an input: a mistyped path would become an empty directory of data.
    type_ = "DirectoryOrCreate" if make else "Directory"
    return {"name": name, "hostPath": {"path": path, "type": type_}}


def _downloads(sources: Sequence[Source], settings: WorkerSettings) -> Placement:
    if not sources:
        return Placement()
    mount = {"name": _DOWNLOADS_VOLUME, "mountPath": DOWNLOADS}
    credentials, urls = secrets(sources), [source.url for source in sources]
    fetch: dict[str, Any] = {
        # Name and arguments (URL, directory, …) are Sedna's, so the settings may name its image.
        "name": "storage-initializer",
        "image": settings.storage_initializer_image,
        "imagePullPolicy": "IfNotPresent",
        "args": [word for url in urls for word in (url, posixpath.dirname(path_in_pod(url)))],
        # The last lines of the log become the message of the fault, beside the exit code.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": RESTRICTED,
        "volumeMounts": [mount],
    }
    # For inputs, the init container alone gets the keys. The worker reads the files.
    if credentials:
        fetch["envFrom"] = [{"secretRef": {"name": name}} for name in credentials]
    servers = [source.endpoint for source in sources if source.endpoint]
    if servers:
        # One container has the keys of one Secret, so there is one server at most.
        fetch["env"] = [{"name": ENDPOINT, "value": servers[0]}]
    return Placement(
        volumes=({"name": _DOWNLOADS_VOLUME, "emptyDir": {}},),
        mounts=({**mount, "readOnly": True},),
        init_containers=(fetch,),
    )


def scratch() -> Placement:
    """An empty directory of the pod, MODEL_DIR, for content that the worker itself fetches."""
    return Placement(
        env=({"name": "MODEL_DIR", "value": DOWNLOADS},),
        volumes=({"name": _DOWNLOADS_VOLUME, "emptyDir": {}},),
        mounts=({"name": _DOWNLOADS_VOLUME, "mountPath": DOWNLOADS},),
    )
