"""Container images for the nodes of the test cluster, made on this machine; no registry is used.

A base image is made of Debian packages by debootstrap. Container files are built on it by buildah
with the build argument BASE_IMAGE. While they are built, pip takes what the locks of the images
name from a directory, by /etc/pip.conf: the same files build against a package index elsewhere.
Programs of another architecture run under qemu.
All of it is kept outside the checkout; what has not changed is not made again.
"""

import hashlib
import json
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from tests.cluster import emulation
from tests.cluster.binaries import Unavailable, cache_directory, locked, say

RELEASE: Final = "bookworm"
BASE: Final = f"localhost/edgeai/base:{RELEASE}"
SANDBOX: Final = "localhost/edgeai/sandbox:1"
CHECKOUT: Final = Path(__file__).parents[2]
LOCKS: Final = tuple(
    CHECKOUT / "requirements" / f"{role}.lock" for role in ("manager", "edge", "worker")
)
MACHINES: Final = {"amd64": "x86_64", "arm64": "aarch64"}
"""Architecture, as images and Debian name it -> as the kernel and Python do."""
_PYTHON: Final = "3.11"  # of RELEASE
_GLIBC: Final = 36  # its minor version
_PACKAGES: Final = ("python3", "python3-venv", "ca-certificates")
_LEFT_OUT: Final = (
    *("usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info"),
    *("var/cache/apt", "var/lib/apt/lists", "var/log"),
)
_KEPT_ARCHIVES: Final = 4
_BUILD_S: Final = 3600.0  # a base under qemu takes a quarter of it on a busy machine
_SANDBOX_FILE: Final = f'FROM {BASE}\nCMD ["sleep", "infinity"]\n'


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """One image. `name`: as pods say it, with registry and tag; `target`: stage, "" for the last"""

    name: str
    containerfile: Path
    context: Path = CHECKOUT
    target: str = ""
    arguments: Mapping[str, str] = {}


def native() -> str:
    """The architecture of this machine."""
    return next(name for name, machine in MACHINES.items() if machine == platform.machine())


class Images:
    """Args: architecture: of MACHINES, this machine's if empty. Each has a cache of its own."""

    def __init__(self, architecture: str = "") -> None:
        self._architecture = architecture or native()
        name = "containers" if self._architecture == native() else f"containers-{architecture}"
        self._cache = cache_directory().parent / name
        self._storage = self._cache / "storage"

    def archive(self, recipes: Sequence[Recipe] = ()) -> Path:
        """BASE, SANDBOX and `recipes` as one OCI layout packed by tar. Raises: Unavailable"""
        if self._architecture != native():
            emulation.enable(MACHINES[self._architecture])
        with self._at_work() as scratch:
            return self._archive(recipes, scratch)

    def wheels(self) -> Path:
        """Directory with a wheel for each package of LOCKS. Raises: Unavailable"""
        with self._at_work() as scratch:
            return self._wheels(scratch)

    @contextmanager
    def _at_work(self) -> Iterator[Path]:
        """A directory for a while, in which nobody else changes the cache. Raises: Unavailable"""
        self._cache.mkdir(parents=True, exist_ok=True)
        with locked(self._cache / "lock"), tempfile.TemporaryDirectory(dir=self._cache) as scratch:
            try:
                yield Path(scratch)
            except subprocess.CalledProcessError as error:
                said = (error.stderr or error.stdout or "").strip()[-3000:]
                raise Unavailable(f"`{' '.join(error.cmd)}` failed:\n{said}") from error

    def _archive(self, recipes: Sequence[Recipe], scratch: Path) -> Path:
        ids = {BASE: self._base(scratch), SANDBOX: self._sandbox(scratch)}
        if recipes:
            wheels = self._wheels(scratch)
            ids |= {recipe.name: self._build(recipe, wheels, scratch) for recipe in recipes}
        path = self._cache / f"images-{_digest(ids)}" / "images.tar"
        if not path.exists():
            self._pack(ids, path, scratch)
        path.parent.touch()  # used now
        self._forget_old()
        return path

    # ---- base ----------------------------------------------------------------------------------

    def _base(self, scratch: Path) -> str:
        """Its id."""
        made_of = _digest([RELEASE, _PACKAGES, _LEFT_OUT, MACHINES[self._architecture]])
        label = f"{BASE}-{made_of}"
        found = self._buildah("images", "--quiet", "--no-trunc", "--filter", f"reference={label}")
        if not found:
            say("making the base image of Debian packages")
            self._buildah_commit(self._bootstrapped(scratch / "base"), label)
        self._buildah("tag", label, BASE)
        return self._buildah("inspect", "--type", "image", "--format", "{{.FromImageID}}", label)

    def _bootstrapped(self, root: Path) -> Path:
        what = (f"--arch={self._architecture}", f"--include={','.join(_PACKAGES)}")
        _run("debootstrap", "--variant=minbase", *what, RELEASE, str(root), _debian_mirror())
        for name in _LEFT_OUT:
            shutil.rmtree(root / name)
            (root / name).mkdir()
        return root

    def _buildah_commit(self, root: Path, name: str) -> None:
        container = self._buildah("from", "scratch")
        try:
            self._buildah("add", "--quiet", container, str(root), "/")
            self._buildah("config", f"--arch={self._architecture}", "--cmd=python3", container)
            self._buildah("commit", "--quiet", container, name)
        finally:
            self._buildah("rm", container)

    # ---- images from container files -----------------------------------------------------------

    def _sandbox(self, scratch: Path) -> str:
        context = scratch / "sandbox"
        context.mkdir()
        (context / "Containerfile").write_text(_SANDBOX_FILE)
        recipe = Recipe(name=SANDBOX, containerfile=context / "Containerfile", context=context)
        return self._build(recipe, None, scratch)

    def _build(self, recipe: Recipe, wheels: Path | None, scratch: Path) -> str:
        """Its id; quick when nothing that it is made of has changed."""
        say(f"building {recipe.name}")
        arguments = {"BASE_IMAGE": BASE, **recipe.arguments}
        id_file = scratch / f"id-{_digest(recipe.name)}"
        self._buildah(
            *("build", "--quiet", "--layers", "--isolation=chroot", "--pull-never"),
            f"--arch={self._architecture}",
            *(f"--build-arg={name}={value}" for name, value in arguments.items()),
            *self._index(wheels, scratch),
            *([f"--target={recipe.target}"] if recipe.target else []),
            *(f"--iidfile={id_file}", f"--tag={recipe.name}"),
            *(f"--file={recipe.containerfile}", str(recipe.context)),
        )
        return id_file.read_text().strip()

    @staticmethod
    def _index(wheels: Path | None, scratch: Path) -> list[str]:
        """Flags that let pip see `wheels` and nothing else."""
        if wheels is None:
            return []
        config = scratch / "pip.conf"
        config.write_text("[global]\nno-index = true\nfind-links = /wheels\n")
        return [f"--volume={wheels}:/wheels:ro", f"--volume={config}:/etc/pip.conf:ro"]

    def _wheels(self, scratch: Path) -> Path:
        """What LOCKS name, from where this machine's pip is told to find it."""
        machine = MACHINES[self._architecture]
        lock = hashlib.sha256(b"".join(path.read_bytes() for path in LOCKS)).hexdigest()[:16]
        target = self._cache / f"wheels-{machine}-{lock}"
        if not target.exists():
            say(f"downloading wheels for {machine}")
            directory = scratch / "wheels"
            _download_wheels(machine, directory)
            directory.rename(target)
        return target

    # ---- archives ------------------------------------------------------------------------------

    def _pack(self, ids: Mapping[str, str], path: Path, scratch: Path) -> None:
        say("packing images")
        layout = scratch / "layout"
        for name in ids:
            self._buildah("push", "--quiet", name, f"oci:{layout}:{name}")
        packed = scratch / path.name
        _run("tar", "--directory", str(layout), "--create", "--file", str(packed), ".")
        path.parent.mkdir()
        packed.rename(path)

    def _forget_old(self) -> None:
        archives = sorted(self._cache.glob("images-*"), key=lambda each: each.stat().st_mtime)
        for each in archives[:-_KEPT_ARCHIVES]:
            shutil.rmtree(each)

    def _buildah(self, *arguments: str) -> str:
        with tempfile.TemporaryDirectory(prefix="edgeai-buildah-") as run_root:
            storage = ("--root", str(self._storage), "--runroot", run_root)
            return _run("buildah", *storage, "--storage-driver=overlay", *arguments)


def _download_wheels(machine: str, directory: Path) -> None:
    pip = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes")
    # The best first. Some wheels have the old name of manylinux_2_17 only.
    platforms = [f"manylinux_2_{minor}" for minor in range(_GLIBC, 16, -1)] + ["manylinux2014"]
    tags = (f"--platform={each}_{machine}" for each in platforms)
    locks = (f"--requirement={path}" for path in LOCKS)
    only = ("--only-binary=:all:", f"--python-version={_PYTHON}", *tags)
    _run(*pip, *only, *locks, "--dest", str(directory))


def _run(*argv: str) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=_BUILD_S, check=True)
    return done.stdout.strip()


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _debian_mirror() -> str:
    """The one that this machine is configured with for RELEASE. Raises: Unavailable"""
    form = "$(RELEASE) $(SITE)"
    said = _run("apt-get", "indextargets", "--format", form, "Created-By: Packages")
    mirrors = [line.split()[1] for line in said.splitlines() if line.split()[0] == RELEASE]
    if not mirrors:
        raise Unavailable(f"apt has no source of {RELEASE} configured: use a Debian 12")
    return mirrors[0]
