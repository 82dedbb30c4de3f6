"""Runs the commands of a page of the documentation, as whoever copies and pastes them would.

Blocks fenced as ```bash are run in order, in one bash, from the checkout; other blocks are for
reading. The page may use kubectl, helm, what the checkout's environment installs, `ssh NODE …` and
`scp [-r] SOURCE NODE:TARGET`, which reach the files of nodes without a server there.
"""

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.cluster import binaries, helm
from tests.edgeai.cli.command import heed_interrupts
from tests.support.cluster import CLOUD, EDGES, Cluster

CHECKOUT: Final = Path(__file__).parents[2]
TRAINING: Final = CHECKOUT / "docs" / "federated-learning.md"
_KUBEEDGE: Final = CHECKOUT / "docs" / "kubeedge.md"
BLOCK_S: Final = 240.0
_BLOCK: Final = re.compile(r"^```bash\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_SSH: Final = """#!/bin/sh
set -eu
node=$1
shift
case $node in
{cases}
*) echo "there is no node $node" >&2; exit 1 ;;
esac
"""
_SCP: Final = """#!/bin/sh
set -eu
recursive=
if [ "$1" = -r ]; then recursive=-r; shift; fi
exec ssh "${2%%:*}" cp $recursive "$(realpath "$1")" "${2#*:}"
"""
ADDRESS: Final = "address"
"""File in the shell's directory with what a program has opened in a browser."""
_BROWSER: Final = """#!/bin/sh
echo "$1" > "$HOME/new" && mv "$HOME/new" "$HOME/address"
"""


class Block(NamedTuple):
    line: int
    text: str


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(text.count("\n", 0, match.start("text")) + 1, match["text"])
        for match in _BLOCK.finditer(text)
    ]


def blocks_below(page: Path, heading: str) -> list[Block]:
    """Those of one section. Args: heading: its whole line"""
    lines = page.read_text(encoding="utf-8").splitlines()
    first = lines.index(heading)
    level = heading.split()[0] + " "
    later = (n for n, line in enumerate(lines) if n > first and line.startswith(level))
    end = next(later, len(lines))
    return [each for each in blocks(page) if first < each.line <= end]


class Shell:
    """One bash that ends at the first command that fails.

    Args:
    directory: empty; gets the output and the programs `ssh`, `scp` and `xdg-open`
    environment: beside PATH and HOME
    """

    def __init__(self, directory: Path, environment: Mapping[str, str]) -> None:
        self._directory = directory
        self._output = directory / "output"
        self._block = directory / "block"
        self._done = directory / "done"
        self._environment = {
            "HOME": str(directory),
            "PATH": f"{directory}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            **environment,
        }

    def start(self) -> None:
        with self._output.open("wb") as output:
            self._process = subprocess.Popen(
                ["bash", "-euo", "pipefail"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=CHECKOUT,
                env=self._environment,
                start_new_session=True,
            )

    def beside(self, block: Block) -> "subprocess.Popen[str]":
        """The block in a bash of its own, under way. The caller must end it."""
        return subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", f"exec {block.text}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=CHECKOUT,
            env=self._environment,
            preexec_fn=heed_interrupts,
        )

    def stop(self) -> None:
        self._kill()
        self._process.communicate()

    def _kill(self) -> None:
        """With whatever it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def run(self, block: Block, *, timeout_s: float = BLOCK_S) -> str:
        """What it printed. Raises: AssertionError when a command fails, or takes too long"""
        assert self._process.poll() is None, "a block before this one failed"
        assert self._process.stdin is not None
        start = self._output.stat().st_size
        self._done.unlink(missing_ok=True)
        self._block.write_text(block.text)
        script = f"source {self._block} </dev/null\ntouch {self._done}\n"
        self._process.stdin.write(script.encode())
        self._process.stdin.flush()
        failure = self._failure(timeout_s)
        printed = self._output.read_bytes()[start:].decode(errors="replace")
        assert not failure, f"the commands of line {block.line} {failure}:\n{block.text}\n{printed}"
        return printed

    def _failure(self, timeout_s: float) -> str:
        deadline = time.monotonic() + timeout_s
        while not self._done.exists():
            if (status := self._process.poll()) is not None:
                return f"ended with {status}"
            if time.monotonic() > deadline:
                self._kill()
                return f"took longer than {timeout_s:g} s"
            time.sleep(0.05)
        return ""


def shell_at(cluster: Cluster, directory: Path, **environment: str) -> Shell:
    """One whose kubectl and ssh reach the cluster. Args: environment: further variables"""
    cases = [
        f'{name}) exec {shlex.join(node.machine.inside("sh", "-c"))} "$*" ;;'
        for name, node in cluster.nodes.items()
    ]
    _write_program(directory / "ssh", _SSH.format(cases="\n".join(cases)))
    _write_program(directory / "scp", _SCP)
    _write_program(directory / "xdg-open", _BROWSER)
    link_programs(directory)
    kubeconfig = str(cluster.control_plane.kubeconfig)
    return Shell(directory, {"KUBECONFIG": kubeconfig, **environment})


def link_programs(directory: Path) -> None:
    """Those of the tests, for a shell with this directory."""
    (directory / "kubectl").symlink_to(binaries.obtain() / "kubectl")
    (directory / "helm").symlink_to(helm.program())


def run_page(page: Path, cluster: Cluster, directory: Path, **environment: str) -> None:
    """Run all commands of a page. Raises: AssertionError with those that fail

    Args:
    directory: empty
    environment: variables that the page reads
    """
    found = blocks(page)
    assert found
    shell = shell_at(cluster, directory, **environment)
    shell.start()
    try:
        for block in found:
            shell.run(block)
    finally:
        shell.stop()


def install_on_kubeedge(cluster: Cluster, directory: Path) -> None:
    """Raises: AssertionError with the commands of the page that fail. Args: directory: empty"""
    nodes, host = " ".join(EDGES), cluster.nodes[CLOUD].address
    run_page(_KUBEEDGE, cluster, directory, EDGE_NODES=nodes, EDGE_HOST=host)


def _write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)
