"""The directory of a pod: the content of the volumes, and a symlink for each mount.

    pods/<uid>/
      volumes/<volume>/            content of emptyDir, configMap, secret, … volumes
        ..data -> ..<random>/      the current files of a configMap, secret, … volume
        <file> -> ..data/<file>
      containers/<name>/root/…     one symlink per mount, named by its mount path
      containers/<name>/logs/      log files, see `logs`
      tmp/                         TMPDIR

Containers are processes of this machine. So a mount is a symlink, and `expansion` replaces mount
paths by the paths of the symlinks; in scripts of volumes, which begin with #! and are executable,
by the paths of the volumes. The kubelet does not enforce readOnly.

When a ConfigMap or a Secret changes, `PodVolumes.refresh` writes the new files into a directory of
their own and renames one symlink, as Kubernetes does. So all files of a volume change at once. The
former directory stays until the next change, for readers that have followed the symlink.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote

from edgeai.localcluster.errors import ClusterError
from edgeai.localcluster.kubelet.expansion import PathRewriter
from edgeai.localcluster.kubelet.launch import Lookup, field_value, object_data
from edgeai.localcluster.objects.resources import CONFIGMAPS, SECRETS, Object, Resource

SECRET_MODE = 0o600
_PROJECTIONS = ("configMap", "secret", "downwardAPI", "projected")


class MountError(ClusterError):
    """The kubelet cannot mount a volume now. The error's text names the volume and the reason."""


class PodDirectory:
    """The paths in the directory of one pod. `make` creates the directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tmp = path / "tmp"

    def root(self, container: str) -> Path:
        return self.container(container) / "root"

    def container(self, container: str) -> Path:
        return self.path / "containers" / file_name(container)

    def volume(self, volume: str) -> Path:
        return self.path / "volumes" / file_name(volume)

    def make(self) -> None:
        """Create the directory. Raises: OSError"""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.tmp.mkdir(exist_ok=True)

    def remove(self) -> None:
        """Remove the directory. Symlinks are not followed, so the content of a hostPath stays."""
        shutil.rmtree(self.path, ignore_errors=True)


def file_name(name: str) -> str:
    """The name in a form that is one path component and never "." or ".."."""
    return quote(name, safe="").replace(".", "%2E")


class PodVolumes:
    """Writes the volumes of one pod. Args: token: of a ServiceAccount, for the API"""

    def __init__(
        self,
        pod: Object,
        directory: PodDirectory,
        lookup: Lookup,
        *,
        pod_ip: str,
        host_ip: str,
        token: str = "",
    ) -> None:
        self._pod = pod
        self._volumes = pod["spec"].get("volumes") or []
        self._directory = directory
        self._lookup = lookup
        self._ips = pod_ip, host_ip
        self._token = token
        self._rewrite_script = PathRewriter(self._targets())

    def mount(self) -> dict[str, dict[str, str]]:
        """Write the volumes and link them into each container's root.

        A second call writes and links the volumes again.

        Returns: for each container, mount path -> path on this machine
        Raises: MountError; OSError when the state directory is full or read-only
        """
        self._directory.make()
        paths = {str(volume["name"]): self._write(volume) for volume in self._volumes}
        spec = self._pod["spec"]
        return {
            container["name"]: _link(container, self._directory.root(container["name"]), paths)
            for container in (spec.get("initContainers") or []) + spec["containers"]
        }

    def refresh(self) -> None:
        """Write the current content of ConfigMaps, Secrets and fields into a running pod's volumes.

        Raises: MountError, ContainerConfigError, OSError; the files stay as they were then
        """
        for volume in self._volumes:
            if not volume.keys().isdisjoint(_PROJECTIONS):
                self._write(volume)

    def _write(self, volume: Object) -> Path:
        """Write one volume. Returns: path of its content. Raises: MountError, OSError"""
        name = str(volume["name"])
        for kind, source in volume.items():
            if kind == "hostPath":
                return _host_path(name, source or {})
            if kind == "emptyDir":
                path = self._directory.volume(name)
                path.mkdir(parents=True, exist_ok=True)
                return path
            if kind == "projected":
                return self._project(name, (source or {}).get("sources") or [])
            if kind in _PROJECTIONS:
                return self._project(name, [{kind: source or {}}])
        kinds = ", ".join(sorted(volume.keys() - {"name"})) or "none"
        raise MountError(
            f'volume "{name}" is of type {kinds}; the local cluster has hostPath, emptyDir, '
            f"{', '.join(_PROJECTIONS)}"
        )

    def _targets(self) -> dict[str, str]:
        """Mount path in a container -> path of the volume on this machine."""
        paths = {
            str(volume["name"]): str(
                (volume.get("hostPath") or {}).get("path") or self._directory.volume(volume["name"])
            )
            for volume in self._volumes
        }
        mounts = [
            mount
            for container in self._pod["spec"]["containers"]
            for mount in container.get("volumeMounts") or []
        ]
        return {
            str(mount["mountPath"]): paths[mount["name"]]
            for mount in mounts
            if mount["name"] in paths and not mount.get("subPath")
        }

    def _project(self, name: str, sources: list[Object]) -> Path:
        files: dict[str, tuple[bytes, int]] = {}
        for part in sources:
            for file, (content, mode) in self._files(name, part).items():
                if mode & 0o111 and content.startswith(b"#!"):
                    text = content.decode(errors="surrogateescape")
                    content = self._rewrite_script(text).encode(errors="surrogateescape")
                files[file] = content, mode
        path = self._directory.volume(name)
        _exchange_files(path, files, volume=name)
        return path

    def _files(self, volume: str, part: Object) -> dict[str, tuple[bytes, int]]:
        """The files of a volume: path in the volume -> content and mode."""
        if "configMap" in part:
            return self._keys(volume, CONFIGMAPS, part["configMap"], 0o644)
        if "secret" in part:
            return self._keys(volume, SECRETS, part["secret"], SECRET_MODE)
        if "downwardAPI" in part:
            items = part["downwardAPI"].get("items") or []
            return {item["path"]: (self._field(item), 0o644) for item in items}
        if "serviceAccountToken" in part:
            return {str(part["serviceAccountToken"]["path"]): (self._token.encode(), SECRET_MODE)}
        raise MountError(f'volume "{volume}": the local cluster does not project {", ".join(part)}')

    def _keys(
        self, volume: str, resource: Resource, source: Object, mode: int
    ) -> dict[str, tuple[bytes, int]]:
        name = str(source.get("secretName") or source.get("name"))
        object_ = self._lookup(resource, name)
        if object_ is None:
            if source.get("optional"):
                return {}
            raise MountError(f'volume "{volume}": {resource.kind.lower()} "{name}" not found')
        data = object_data(resource, object_)
        items = source.get("items") or [{"key": key, "path": key} for key in data]
        absent = [item["key"] for item in items if item["key"] not in data]
        if absent and not source.get("optional"):
            raise MountError(
                f'volume "{volume}": {resource.kind.lower()} "{name}" has no key {absent[0]}'
            )
        default_mode = source.get("defaultMode", mode)
        # The files of Secrets stay the owner's alone, because all pods share one machine.
        allowed = 0o700 if resource is SECRETS else 0o777
        return {
            item["path"]: (data[item["key"]], int(item.get("mode", default_mode)) & allowed)
            for item in items
            if item["key"] in data
        }

    def _field(self, item: Object) -> bytes:
        path = str((item.get("fieldRef") or {}).get("fieldPath"))
        if path in ("metadata.labels", "metadata.annotations"):
            texts = self._pod["metadata"].get(path.removeprefix("metadata.")) or {}
            return "\n".join(f'{key}="{value}"' for key, value in sorted(texts.items())).encode()
        return field_value(path, self._pod, *self._ips).encode()


_HOST_PATH_TYPES: Final[dict[str, Callable[[Path], bool]]] = {
    "Directory": Path.is_dir,
    "DirectoryOrCreate": Path.is_dir,
    "File": Path.is_file,
    "FileOrCreate": Path.is_file,
    "Socket": Path.is_socket,
}


def _host_path(name: str, source: Object) -> Path:
    """The path of a hostPath volume, after a check against the volume's type.

    The kubelet creates a missing path only for a type …OrCreate. Raises: MountError
    """
    path, kind = Path(str(source.get("path"))), str(source.get("type") or "")
    if kind and kind not in _HOST_PATH_TYPES:
        raise MountError(f'volume "{name}": the local cluster has no hostPath type {kind}')
    if not path.is_absolute():
        raise MountError(f'volume "{name}": hostPath {path} must be absolute')
    try:
        if kind == "DirectoryOrCreate":
            path.mkdir(parents=True, exist_ok=True)
        elif kind == "FileOrCreate":
            path.touch(exist_ok=True)
    except OSError as error:
        raise MountError(f'volume "{name}": hostPath {path}: {error.strerror}') from error
    if kind and not _HOST_PATH_TYPES[kind](path):
        noun = kind.removesuffix("OrCreate").lower()
        wrong = f"is not a {noun}" if path.exists() else f"does not exist, and must be a {noun}"
        raise MountError(f'volume "{name}": hostPath type check failed: {path} {wrong}')
    return path


def _exchange_files(path: Path, files: Mapping[str, tuple[bytes, int]], *, volume: str) -> None:
    """Give a volume these files, all at once. Raises: MountError, OSError"""
    current, draft = path / "..data", path / "..data_tmp"
    if not current.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True, mode=0o700)
    former = current.resolve().name if current.is_symlink() else ""
    if former and _content(current) == {name: content for name, (content, _) in files.items()}:
        return
    fresh = Path(tempfile.mkdtemp(prefix="..", dir=path))
    for name, (content, mode) in files.items():
        _write_file(fresh, name, content, mode, volume=volume)
    draft.unlink(missing_ok=True)
    draft.symlink_to(fresh.name)
    draft.rename(current)
    names = {Path(name).parts[0] for name in files}
    for name in names:
        if not (path / name).is_symlink():
            (path / name).symlink_to(f"..data/{name}")
    for entry in path.iterdir():
        if not entry.name.startswith("..") and entry.name not in names:
            entry.unlink()
        elif entry.is_dir() and not entry.is_symlink() and entry.name not in (former, fresh.name):
            shutil.rmtree(entry, ignore_errors=True)


def _content(directory: Path) -> dict[str, bytes]:
    """Path in the directory -> content, of all files."""
    files = (file for file in directory.rglob("*") if file.is_file())
    return {str(file.relative_to(directory)): file.read_bytes() for file in files}


def _write_file(directory: Path, name: str, content: bytes, mode: int, *, volume: str) -> None:
    relative = Path(name)
    if relative.is_absolute() or ".." in relative.parts or not relative.parts:
        raise MountError(f'volume "{volume}": {name!r} is not a path within the volume')
    path = directory / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with open(descriptor, "wb") as file:
        file.write(content)


def _link(container: Object, root: Path, volumes: Mapping[str, Path]) -> dict[str, str]:
    """Create a symlink for each mount of a container. Outer mounts come first.

    Returns: mount path -> path of the symlink
    """
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    mounts: dict[str, str] = {}
    container_mounts = container.get("volumeMounts") or []
    for mount in sorted(container_mounts, key=lambda mount: len(str(mount["mountPath"]))):
        path = os.path.normpath(str(mount["mountPath"]))
        if not path.startswith("/") or path.strip("/") in ("", ".."):
            raise MountError(f'volume "{mount["name"]}": mountPath {path} must be below /')
        # A symlink inside the volume of an outer mount would change that volume.
        is_nested = any(path.startswith(outer + "/") for outer in mounts)
        place = root / ".nested" / str(len(mounts)) if is_nested else root
        link = place / path.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(_target(mount, volumes))
        mounts["/" + path.lstrip("/")] = str(link)
    return mounts


def _target(mount: Object, volumes: Mapping[str, Path]) -> Path:
    name, below = str(mount["name"]), str(mount.get("subPath") or "")
    if name not in volumes:
        raise MountError(f'mount {mount["mountPath"]}: the pod has no volume "{name}"')
    if Path(below).is_absolute() or ".." in Path(below).parts:
        raise MountError(f"mount {mount['mountPath']}: subPath {below!r} leads out of the volume")
    target = volumes[name] / below
    if below and not target.exists():
        target.mkdir(parents=True)
    return target
