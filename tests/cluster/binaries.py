"""The programs of a Kubernetes: from a directory of the user, from the cache, or built by Go.

    python -m tests.cluster.binaries      # prints their directory

A folder of tests/kubernetes is a Go module for one minor version: it requires Kubernetes and etcd,
its `tool` lines name their programs, and go.sum has the hashes. Other folders of tests have such a
module, too. Go itself is in requirements/go.lock. Nothing is written into the checkout.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

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
_VERSION_PACKAGE: Final = "k8s.io/component-base/version"
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})


class Unavailable(Exception):
    """There are no programs, and they cannot be built here; the message says what to do."""


class GoModule(NamedTuple):
    """A Go module whose `tool` lines name programs.

    Args:
    folder: of go.mod, and of go.sum with the hashes
    name: of the programs, like "kubernetes"
    path: of the module that gives the programs their version
    variables: string variable of a package -> the value that the linker sets
    renames: name of a package that is built -> name of its program
    uses_c: whether a C compiler takes part
    """

    folder: Path
    name: str
    path: str
    variables: Mapping[str, str] = _NOTHING
    renames: Mapping[str, str] = _NOTHING
    uses_c: bool = False

    def release(self) -> str:
        """The version that go.mod requires: "1.37.2"."""
        required = re.compile(rf"^\t{re.escape(self.path)} v(\S+)( // indirect)?$", re.MULTILINE)
        match = required.search((self.folder / "go.mod").read_text())
        assert match is not None, f"{self.folder}/go.mod requires no {self.path}"
        return match.group(1)

    def directory(self) -> Path:
        """In the user's cache. Another module or another Go has another directory."""
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        modules = [self.folder / "go.mod", self.folder / "go.sum", runtime("go").lock]
        sources = [*modules, *sorted(self.folder.glob("*.go"))]
        digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
        return Path(home) / "edgeai" / f"{self.name}-{self.release()}-{digest[:12]}"

    def obtain(self) -> Path:
        """The directory that holds its programs. The first build takes minutes.

        Raises: Unavailable
        """
        target = self.directory()
        if target.exists():
            return target
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(target.parent / f"{target.name}.lock"):
            if not target.exists():  # another process may have built them meanwhile
                self._build(target)
        return target

    def _build(self, target: Path) -> None:
        what = f"{self.name} {self.release()}"
        say(f"building {what} from its Go modules; this takes minutes")
        started_s = time.monotonic()
        output = target.with_name(f"building-{target.name}")
        shutil.rmtree(output, ignore_errors=True)  # of a build that was killed
        # Go would keep all objects, 4 GB of a Kubernetes, and no other build uses them.
        objects = output / "objects"
        objects.mkdir(parents=True)
        places = {"GOCACHE": str(objects), "GOTMPDIR": str(objects)}
        self.run_go("build", *self._flags(), "-o", f"{output}/", "tool", variables=places)
        shutil.rmtree(objects)
        for old, new in self.renames.items():
            (output / old).rename(output / new)
        output.rename(target)
        say(f"{what} is in {target} after {time.monotonic() - started_s:.0f} s")

    def _flags(self) -> tuple[str, ...]:
        sets = " ".join(f"-X {name}={value}" for name, value in self.variables.items())
        return ("-trimpath", "-buildvcs=false", "-ldflags", f"-s -w {sets}")

    def run_go(self, *arguments: str, variables: Mapping[str, str] = _NOTHING) -> str:
        """What Go says, run in the folder. Raises: Unavailable, with its last lines"""
        done = subprocess.run(
            [_go(), *arguments],
            cwd=self.folder,
            env={**self._environment(), **variables},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            reason = "\n".join(done.stderr.strip().splitlines()[-15:])
            raise Unavailable(f"go {arguments[0]} of {self.name} failed:\n{reason}")
        return done.stdout

    def _environment(self) -> dict[str, str]:
        """Where Go finds modules is the user's choice; what it builds is not."""
        own = {name: value for name, value in os.environ.items() if name not in ("GOOS", "GOARCH")}
        fixed = {"CGO_ENABLED": str(int(self.uses_c)), "GOFLAGS": "-mod=readonly"}
        return {**own, **fixed, "GOTOOLCHAIN": "local", "GOWORK": "off"}


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


def kubernetes(minor: str) -> GoModule:
    module = GoModule(
        MODULES / minor, "kubernetes", "k8s.io/kubernetes", renames={"server": "etcd"}
    )
    version = module.release()
    numbers = version.split(".")
    values = {"gitVersion": f"v{version}", "gitMajor": numbers[0], "gitMinor": numbers[1]}
    return module._replace(
        variables={f"{_VERSION_PACKAGE}.{name}": value for name, value in values.items()}
    )


def release(minor: str) -> str:
    """The version that the module of a minor version requires: "1.37.2"."""
    return kubernetes(minor).release()


def obtain(programs: Sequence[str] = PROGRAMS) -> Path:
    """The directory that holds `programs`. A first build takes minutes, and builds all programs.

    Raises: Unavailable
    """
    if assets := os.environ.get(ASSETS_VARIABLE):
        return _checked(Path(assets), programs)
    module = kubernetes(tested_minor())
    try:
        return module.obtain()
    except Unavailable as error:
        raise Unavailable(f"{error}\n{_ALTERNATIVE}") from None


def cache_directory() -> Path:
    """Of Kubernetes' programs of the tested minor version."""
    return kubernetes(tested_minor()).directory()


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


def _go() -> str:
    """The path of Go. Raises: Unavailable"""
    try:
        python = runtime("go").install()
    except RuntimeUnavailable as error:
        raise Unavailable(f"there is no Go ({error})") from None
    code = "import go, os; print(os.path.join(os.path.dirname(go.__file__), 'bin', 'go'))"
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def print_path(path_of: Callable[[], Path]) -> None:
    """Print what was obtained. Raises: SystemExit when it cannot be had here"""
    try:
        print(path_of())
    except Unavailable as unavailable:
        sys.exit(f"{path_of.__module__}: {unavailable}")


if __name__ == "__main__":
    print_path(obtain)
