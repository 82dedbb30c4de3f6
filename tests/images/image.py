"""Programs of an image as processes of this machine, without a container runtime.

A process has the image's root, read-only, its user and its environment, and no way to more rights.
It shares the network and the process ids of this machine, so a test sends a signal to the program
itself, also where qemu runs it.
"""

import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

import msgspec

_START: Final = """\
set -e
mount --types overlay --options "ro,lowerdir=$LAYERS" overlay "$ROOT"
for each in /proc /dev "$DATA"; do mount --bind "$each" "$ROOT$each"; done
exec "$@"
"""
_NAME: Final = "org.opencontainers.image.ref.name"


class Image(msgspec.Struct, frozen=True, kw_only=True):
    """Args:
    layers: directories, the lowest first
    config: how a container starts, as OCI names it: User, Env, Entrypoint, Cmd
    compressed_bytes: what a node downloads
    scratch: directory for what a start needs
    """

    architecture: str
    layers: Sequence[Path]
    config: dict[str, Any]
    compressed_bytes: int
    scratch: Path

    def command(self, data: Path, *arguments: str, entrypoint: Sequence[str] = ()) -> list[str]:
        """The command line that starts it, by root.

        Args:
        data: at the same path in the container, where the user of the image owns it
        entrypoint: instead of the image's
        """
        user, group = map(int, self.config["User"].split(":"))
        for path in (data, *data.rglob("*")):
            shutil.chown(path, user, group)
        layers = ":".join(map(str, (self._mount_points(data), *reversed(self.layers))))
        return [
            *("env", f"LAYERS={layers}", f"ROOT={self._root()}", f"DATA={data}"),
            *("unshare", "--mount", "sh", "-c", _START, "sh"),
            *("env", "--ignore-environment", *self.config["Env"]),
            *("/usr/bin/setpriv", "--no-new-privs"),
            *("/usr/sbin/chroot", f"--userspec={user}:{group}", "--groups=", str(self._root())),
            *(entrypoint or self.config["Entrypoint"]),
            *arguments,
        ]

    def _root(self) -> Path:
        """Empty here: each process mounts its root there for itself."""
        root = self.scratch / "root"
        root.mkdir(exist_ok=True)
        return root

    def _mount_points(self, data: Path) -> Path:
        """A layer with the directories that a root without rights to write cannot get later."""
        layer = self.scratch / f"points{str(data).replace('/', '-')}"
        for path in ("/proc", "/dev", data):
            Path(f"{layer}{path}").mkdir(parents=True, exist_ok=True)
        for directory in (layer, *layer.rglob("*")):
            directory.chmod(0o755)  # whatever the umask of the tests is
        return layer

    def read(self, path: str) -> bytes:
        """A file, by its path below the root. Raises: StopIteration if there is none"""
        return next(
            (layer / path).read_bytes()
            for layer in reversed(self.layers)
            if (layer / path).is_file()
        )


def unpacked(archive: Path, scratch: Path) -> dict[str, Image]:
    """The images of an OCI layout packed by tar, by their names without registry and tag."""
    layout = _extracted(archive, scratch / "layout")
    index = json.loads((layout / "index.json").read_bytes())
    return {
        PurePosixPath(each["annotations"][_NAME]).name.partition(":")[0]: _image(
            layout, each["digest"], scratch
        )
        for each in index["manifests"]
    }


def _image(layout: Path, digest: str, scratch: Path) -> Image:
    manifest = json.loads(_blob(layout, digest).read_bytes())
    config = json.loads(_blob(layout, manifest["config"]["digest"]).read_bytes())
    blobs = [_blob(layout, layer["digest"]) for layer in manifest["layers"]]
    return Image(
        architecture=config["architecture"],
        layers=[_extracted(blob, scratch / blob.name) for blob in blobs],
        config=config["config"],
        compressed_bytes=sum(blob.stat().st_size for blob in blobs),
        scratch=scratch,
    )


def _blob(layout: Path, digest: str) -> Path:
    return layout / "blobs" / Path(*digest.split(":"))


def _extracted(archive: Path, directory: Path) -> Path:
    """Nothing, if it is there: images share layers."""
    if not directory.exists():
        directory.mkdir()
        tar = ("tar", "--extract", "--file", str(archive), "--directory", str(directory))
        subprocess.run(tar, check=True)
    return directory
