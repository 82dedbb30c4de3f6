"""The programs of a Kubernetes: from a directory of the user, from the cache, or built by Go.

    python -m tests.cluster.binaries      # prints their directory

A folder of tests/kubernetes is a Go module for one minor version: it requires Kubernetes and etcd,
its `tool` lines name their programs, and go.sum has the hashes. Go itself is in
requirements/go.lock. Nothing is written into the checkout.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from edgeai.cli.runtimes import RuntimeUnavailable, runtime

MODULES: Final = Path(__file__).parents[1] / "kubernetes"
MINOR_VARIABLE: Final = "KUBERNETES"
"""Environment variable: the minor version to test, like 1.30; the newest if it is missing."""
PROGRAMS: Final = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
)
NODE_PROGRAMS: Final = ("kubelet", "kube-proxy")
ASSETS_VARIABLE: Final = "KUBEBUILDER_ASSETS"
_ALTERNATIVE: Final = f"set {ASSETS_VARIABLE} to a directory that holds {', '.join(PROGRAMS)}"
_RELEASE: Final = re.compile(r"^\tk8s\.io/kubernetes v(\S+)$", re.MULTILINE)
_VERSION_PACKAGE: Final = "k8s.io/component-base/version"


class Unavailable(Exception):
    """There are no programs, and they cannot be built here; the message says what to do."""


def minors() -> list[str]:
    """The minor versions that can be built, oldest first: ["1.30", …, "1.37"]."""
    names = [folder.name for folder in MODULES.iterdir() if (folder / "go.mod").exists()]
    return sorted(names, key=lambda name: int(name.partition(".")[2]))


def tested_minor() -> str:
    """Raises: Unavailable when MINOR_VARIABLE names none of `minors`"""
    minor = os.environ.get(MINOR_VARIABLE) or minors()[-1]
    if minor not in minors():
        raise Unavailable(
            f"{MINOR_VARIABLE}={minor} is no version of tests/kubernetes: use {', '.join(minors())}"
        )
    return minor


def release(minor: str) -> str:
    """The version that the module of a minor version requires: "1.37.2"."""
    match = _RELEASE.search((MODULES / minor / "go.mod").read_text())
    assert match is not None, f"go.mod of {minor} requires no k8s.io/kubernetes"
    return match.group(1)


def obtain(programs: Sequence[str] = PROGRAMS) -> Path:
    """The directory that holds `programs`. A first build takes minutes, and builds all programs.

    Raises: Unavailable
    """
    if assets := os.environ.get(ASSETS_VARIABLE):
        return _checked(Path(assets), programs)
    target = cache_directory()
    if not _missing(target, programs):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.parent / f"{target.name}.lock"):
        if _missing(target, programs):  # another process may have built them meanwhile
            _build(target)
    return target


def cache_directory() -> Path:
    """Another module or another Go has another directory."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    minor = tested_minor()
    sources = [*sorted((MODULES / minor).iterdir()), runtime("go").lock]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    return Path(home) / "edgeai" / f"kubernetes-{release(minor)}-{digest[:12]}"


def _checked(directory: Path, programs: Sequence[str]) -> Path:
    if missing := _missing(directory, programs):
        raise Unavailable(
            f"{ASSETS_VARIABLE}={directory} lacks {', '.join(missing)}: add them, or unset the "
            f"variable to use {cache_directory()}"
        )
    return directory


def _missing(directory: Path, programs: Sequence[str]) -> list[str]:
    return [name for name in programs if not os.access(directory / name, os.X_OK)]


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """While nobody else, in this process or another, has the lock of this file."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another build is under way; waiting for {path}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield  # closing the file unlocks it, also when this process is killed


def _build(target: Path) -> None:
    version = release(tested_minor())
    say(f"building Kubernetes {version} from its Go modules; this takes minutes")
    started_s = time.monotonic()
    output = target.with_name(f"building-{target.name}")
    for directory in (output, target):  # of a build that was killed
        shutil.rmtree(directory, ignore_errors=True)
    output.mkdir()
    _compile(version, output)
    (output / "server").rename(output / "etcd")  # its package is etcd/server
    output.rename(target)
    say(f"Kubernetes {version} is in {target} after {time.monotonic() - started_s:.0f} s")


def _compile(version: str, output: Path) -> None:
    """Raises: Unavailable, with the last lines of Go"""
    major, minor, _ = version.split(".")
    values = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    sets = " ".join(f"-X {_VERSION_PACKAGE}.{name}={value}" for name, value in values.items())
    flags = ["-trimpath", "-buildvcs=false", "-ldflags", f"-s -w {sets}", "-o", f"{output}/"]
    done = subprocess.run(
        [_go(), "build", *flags, "tool"],
        cwd=MODULES / tested_minor(),
        env=_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        reason = "\n".join(done.stderr.strip().splitlines()[-15:])
        raise Unavailable(f"building Kubernetes {version} failed; {_ALTERNATIVE}:\n{reason}")


def _environment() -> dict[str, str]:
    """Where Go finds modules is the user's choice; what it builds is not."""
    own = {name: value for name, value in os.environ.items() if name not in ("GOOS", "GOARCH")}
    fixed = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"}
    return {**own, **fixed, "GOWORK": "off"}


def _go() -> str:
    """The path of Go. Raises: Unavailable"""
    try:
        python = runtime("go").install()
    except RuntimeUnavailable as error:
        raise Unavailable(f"there is no Go to build Kubernetes ({error}); {_ALTERNATIVE}") from None
    code = "import go, os; print(os.path.join(os.path.dirname(go.__file__), 'bin', 'go'))"
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        print(obtain())
    except Unavailable as unavailable:
        sys.exit(f"tests.cluster.binaries: {unavailable}")
