"""Obtains the programs of a Kubernetes control plane: given, cached, or built from Debian's source.

    python -m tests.cluster.binaries      # prints their directory

Called by the fixtures of this folder. It installs nothing: packages are unpacked into a scratch
directory, and apt is told to keep its lists there. Nothing is ever written into the checkout.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

VERSION: Final = "1.20.2"  # what Debian 12 has; the steps below know this tree
PROGRAMS: Final = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubectl",
)
NODE_PROGRAMS: Final = ("kubelet", "kube-proxy")  # built along: they share most of the tree
_ASSETS: Final = "KUBEBUILDER_ASSETS"
_OTHERWISE: Final = f"or set {_ASSETS} to a directory that holds {', '.join(PROGRAMS)}"
_REFLECT: Final = "src/github.com/modern-go/reflect2"
_KUBERNETES: Final = "k8s.io/kubernetes"
_GO_PACKAGE: Final = re.compile(r"\bgolang-[0-9.]+-go\b")


class Unavailable(Exception):
    """There are no binaries, and here none can be made; the message says what to do."""


def obtain(programs: Sequence[str] = PROGRAMS) -> Path:
    """The directory that holds `programs`; a first build takes minutes, and makes all.

    Raises: Unavailable
    """
    if given := os.environ.get(_ASSETS):
        return _given(Path(given), programs)
    target = cache_directory()
    if not _missing(target, programs):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with locked(target.parent / f"{target.name}.lock"):
        if _missing(target, programs):  # still: whoever had the lock may have built it
            _build(target)
    return target


def cache_directory() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "edgeai" / f"kubernetes-{VERSION}"


def _given(directory: Path, programs: Sequence[str]) -> Path:
    if missing := _missing(directory, programs):
        raise Unavailable(
            f"{_ASSETS}={directory} lacks {', '.join(missing)}: add them, or unset the variable "
            f"to use {cache_directory()}"
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
    missing = [tool for tool in ("apt-get", "apt-cache", "dpkg-source") if not shutil.which(tool)]
    if missing:
        raise Unavailable(
            f"Kubernetes {VERSION} is not in {target}, and building it needs {', '.join(missing)}: "
            f"install dpkg-dev on a Debian 12, {_OTHERWISE}"
        )
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="building-", dir=target.parent) as scratch:
        try:
            Build(Path(scratch)).run(target)
        except subprocess.CalledProcessError as error:
            raise Unavailable(_failure(error)) from error
    say(f"Kubernetes {VERSION} is in {target} after {time.monotonic() - started:.0f} s")


def _failure(error: subprocess.CalledProcessError) -> str:
    """What was run, and the end of what it said."""
    said = (error.stderr or error.stdout or "").strip().splitlines()[-15:]
    command = " ".join(str(word) for word in error.cmd[:12])
    return "\n".join(
        [f"building Kubernetes {VERSION} failed at `{command}` ({_OTHERWISE}):", *said]
    )


class Build:
    """One build in a scratch directory, which its owner removes."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._root = scratch / "root"  # packages are unpacked here
        self._gopath = scratch / "go"
        self._tree = self._gopath / "src" / _KUBERNETES
        self._output = scratch / "bin"

    def run(self, target: Path) -> None:
        """Raises: CalledProcessError, Unavailable"""
        say(f"building Kubernetes {VERSION} from Debian's source package; this takes minutes")
        self._prepare_apt()
        self._fetch_packages()
        self._fetch_source()
        say("generating the API's OpenAPI definitions")
        self._generate_openapi()
        say("compiling the control plane")
        names = [*PROGRAMS[1:], *NODE_PROGRAMS]
        self._compile(*(f"{_KUBERNETES}/cmd/{name}" for name in names))
        shutil.copy2(self._root / "usr/bin/etcd", self._output / "etcd")
        shutil.rmtree(target, ignore_errors=True)  # it was incomplete
        self._output.rename(target)

    # ---- packages ------------------------------------------------------------------------------

    def _prepare_apt(self) -> None:
        """Let apt know the sources of the releases that the machine is configured with."""
        for name in ("lists/partial", "archives/partial", "root", "bin"):
            (self._scratch / name).mkdir(parents=True)
        form = "$(SITE) $(RELEASE) $(COMPONENT)"
        known = _output(["apt-get", "indextargets", "--format", form, "Created-By: Packages"])
        lines = sorted(set(known.splitlines()))
        if not lines:
            raise Unavailable(f"apt has no sources configured: configure Debian 12, {_OTHERWISE}")
        entries = [f"{kind} {line}\n" for line in lines for kind in ("deb", "deb-src")]
        (self._scratch / "sources.list").write_text("".join(entries))
        say("reading the lists of packages")
        self._apt("apt-get", "update", "-qq", "--error-on=any")

    def _fetch_packages(self) -> None:
        depends = _output(self._apt_command("apt-cache", "show", "golang-go"))
        go = _GO_PACKAGE.search(depends)
        if go is None:
            raise Unavailable(f"apt's golang-go names no compiler package; {_OTHERWISE}")
        names = (
            go.group(),
            go.group().removesuffix("-go") + "-src",
            "etcd-server",
            "golang-github-modern-go-reflect2-dev",
        )
        say(f"fetching {', '.join(names)}")
        self._apt("apt-get", "download", "-qq", *names)
        for package in self._scratch.glob("*.deb"):
            _run(["dpkg-deb", "-x", str(package), str(self._root)])

    def _fetch_source(self) -> None:
        say("fetching and unpacking the source")
        self._apt("apt-get", "source", "--download-only", "-qq", "kubernetes")
        (description,) = self._scratch.glob("kubernetes_*.dsc")
        if VERSION not in description.name:
            raise Unavailable(
                f"apt offers {description.stem}, but only {VERSION} of Debian 12 is known to "
                f"build this way: use Debian 12, {_OTHERWISE}"
            )
        self._tree.parent.mkdir(parents=True)
        quiet = ["--no-check", "-q"]
        _run(["dpkg-source", *quiet, "-x", str(description), str(self._tree)], self._scratch)
        # The vendored one crashes under Go 1.18 and later ("unexpected fault address").
        vendored = self._tree / "vendor" / _REFLECT.removeprefix("src/")
        shutil.rmtree(vendored)
        shutil.copytree(self._root / "usr/share/gocode" / _REFLECT, vendored)

    def _apt(self, *command: str) -> None:
        _run(self._apt_command(*command), self._scratch)

    def _apt_command(self, *command: str) -> list[str]:
        options = {
            "Dir::Etc::SourceList": self._scratch / "sources.list",
            "Dir::Etc::SourceParts": "-",
            "Dir::State::Lists": self._scratch / "lists",
            "Dir::Cache": self._scratch,
            "APT::Sandbox::User": "root",
        }
        flags = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        return [command[0], *flags, *command[1:]]

    # ---- compiling -----------------------------------------------------------------------------

    def _generate_openapi(self) -> None:
        generator = f"{_KUBERNETES}/vendor/k8s.io/kube-openapi/cmd/openapi-gen"
        self._compile(generator)
        tool = self._output / "openapi-gen"
        package = f"{_KUBERNETES}/pkg/generated/openapi"
        command = [
            *(str(tool), "--go-header-file", "/dev/null", "--report-filename", "/dev/null"),
            *("--output-base", str(self._gopath / "src"), "--output-package", package),
            *("--output-file-base", "zz_generated.openapi"),
            *("--input-dirs", ",".join(self._described_packages())),
        ]
        _run(command, self._tree, self._go_environment())
        tool.unlink()

    def _described_packages(self) -> list[str]:
        """Go packages whose types the API server publishes."""
        staging = self._tree / "staging/src"
        machinery = "k8s.io/apimachinery/pkg"
        found = {f"{machinery}/{name}" for name in ("api/resource", "util/intstr", "runtime")}
        for file in staging.rglob("doc.go"):
            folder = file.parent.relative_to(staging).as_posix()
            is_example = "example" in folder or "sample-apiserver" in folder
            if not is_example and "+k8s:openapi-gen=true" in file.read_text():
                found.add(folder)
        return sorted(f"{_KUBERNETES}/vendor/{folder}" for folder in found)

    def _compile(self, *packages: str) -> None:
        major, minor, _ = VERSION.split(".")
        module = f"{_KUBERNETES}/vendor/k8s.io/component-base/version"
        values = {"gitVersion": f"v{VERSION}", "gitMajor": major, "gitMinor": minor}
        sets = " ".join(f"-X {module}.{name}={value}" for name, value in values.items())
        flags = ["-ldflags", f"-s -w {sets}", "-o", f"{self._output}/"]
        _run([self._go(), "build", *flags, *packages], self._tree, self._go_environment())

    def _go(self) -> str:
        return str(self._goroot() / "bin/go")

    def _goroot(self) -> Path:
        (root,) = self._root.glob("usr/lib/go-*")
        return root

    def _go_environment(self) -> Mapping[str, str]:
        return {
            "PATH": f"{self._goroot()}/bin:/usr/bin:/bin",
            "HOME": str(self._scratch),
            "GOROOT": str(self._goroot()),
            "GOPATH": str(self._gopath),
            "GOCACHE": str(self._scratch / "gocache"),
            "GO111MODULE": "off",
            "CGO_ENABLED": "0",
        }


def _run(
    command: list[str], cwd: Path | None = None, environment: Mapping[str, str] | None = None
) -> None:
    subprocess.run(command, cwd=cwd, env=environment, check=True, capture_output=True, text=True)


def _output(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        print(obtain())
    except Unavailable as unavailable:
        sys.exit(f"tests.cluster.binaries: {unavailable}")
