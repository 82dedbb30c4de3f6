"""Runs the suites that use a genuine Kubernetes on each minor version, and prints a table.

    python -m tests.cluster.matrix                    # all suites, all versions of tests/kubernetes
    python -m tests.cluster.matrix 1.30 1.37          # these versions
    python -m tests.cluster.matrix --suites=cluster   # these suites, by commas

A version that ran all suites gets its row in docs/kubernetes-versions.md; a suite that ran alone
replaces its part of the row. The exit status is 1 when a test fails.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from datetime import date
from pathlib import Path
from typing import Final, NamedTuple

from tests.cluster.binaries import ASSETS_VARIABLE, MINOR_VARIABLE, minors, release

WATCHING: Final = (
    "tests/cluster/install/test_releases.py",
    "tests/cluster/bad_input/test_crds.py",
    "tests/cluster/test_high_availability.py",
    "tests/cluster/test_engine.py",
    "tests/cluster/test_client.py",
    "tests/cluster/test_crds.py",
    "tests/cluster/test_cel.py",
)
"""Files of the suite `cluster` about what versions of the API differ in: watches, status, Leases,
definitions and their rules, and the installation."""
SUITES: Final = {
    "cluster": ("tests/cluster",),
    "watching": WATCHING,
    "conformance": ("tests/conformance", "--cluster=real"),
    "clients": ("tests/clients", "--cluster=real"),
    "e2e": ("tests/e2e",),
}
WHOLE: Final = tuple(name for name in SUITES if name != "watching")
"""Suites of a row of the page; `watching` is a part of `cluster`."""
PAGE: Final = Path(__file__).parents[2] / "docs" / "kubernetes-versions.md"
_AT_A_TIME: Final = ("--numprocesses=3", "--dist=loadfile")
_ONE_CLUSTER: Final = "e2e"  # its tests share one cluster with nodes, so they run in one process


class Result(NamedTuple):
    """Numbers of tests of one suite on one version."""

    passed: int
    failed: int
    skipped: int

    def __str__(self) -> str:
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        failed = f", **{self.failed} failed**" if self.failed else ""
        return f"{self.passed} passed{skipped}{failed}"


def run(suite: str, minor: str) -> Result:
    """Raises: SystemExit when pytest itself fails, for example without programs to test"""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        flags = () if suite == _ONE_CLUSTER else _AT_A_TIME
        command = (sys.executable, "-m", "pytest", *SUITES[suite], *flags, f"--junitxml={report}")
        done = subprocess.run(command, env={**os.environ, MINOR_VARIABLE: minor}, check=False)
        if done.returncode not in (0, 1) or not report.exists():
            raise SystemExit(f"Kubernetes {minor}, {suite}: pytest ended with {done.returncode}")
        counts = ElementTree.parse(report).getroot()[0].attrib
    total, skipped = int(counts["tests"]), int(counts["skipped"])
    failed = int(counts["failures"]) + int(counts["errors"])
    return Result(total - skipped - failed, failed, skipped)


def write_row(version: str, results: dict[str, Result], run: str) -> None:
    """Replace what these suites say in the version's row of the page, or add the row.

    Args: run: the last cell, which names the run
    """
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("|---")) + 1
    end = next(number for number in range(start, len(lines)) if not lines[number])
    rows = {line.split()[1]: line for line in lines[start:end]}
    old = rows.get(version, "").strip("| ").split(" | ")[1:-1] or [""] * len(WHOLE)
    cells = [str(results.get(suite, cell)) for suite, cell in zip(WHOLE, old, strict=True)]
    if "" in cells:  # a suite of this version has never run
        return
    rows[version] = f"| {' | '.join((version, *cells, run))} |"
    lines[start:end] = [rows[name] for name in map(release, minors()) if name in rows]
    PAGE.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.matrix")
    parser.add_argument("minors", nargs="*", metavar="MINOR", help="like 1.30; all by default")
    parser.add_argument("--suites", default=",".join(WHOLE), help="names, separated by commas")
    arguments = parser.parse_args()
    if ASSETS_VARIABLE in os.environ:
        parser.error(f"unset {ASSETS_VARIABLE}: it names programs of one version")
    suites = arguments.suites.split(",")
    for names, possible in ((suites, list(SUITES)), (arguments.minors, minors())):
        if unknown := [name for name in names if name not in possible]:
            parser.error(f"{unknown[0]} is none of {', '.join(possible)}")
    rows = []
    failed = 0
    commit = _output("git", "rev-parse", "--short=8", "HEAD")
    for minor in arguments.minors or minors():
        results = {suite: run(suite, minor) for suite in suites}
        failed += sum(result.failed for result in results.values())
        cells = (release(minor), *map(str, results.values()), f"{date.today()}, {commit}")
        rows.append(f"| {' | '.join(cells)} |")
        write_row(release(minor), results, cells[-1])
    print(f"| Kubernetes | {' | '.join(suites)} | run |\n|{'---|' * (len(suites) + 2)}")
    print("\n".join(rows))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
