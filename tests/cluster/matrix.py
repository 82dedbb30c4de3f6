"""Runs the suites that use a genuine Kubernetes on each minor version, and prints a table.

    python -m tests.cluster.matrix                    # all suites, all versions of tests/kubernetes
    python -m tests.cluster.matrix 1.30 1.37          # these versions
    python -m tests.cluster.matrix --suites=cluster   # these suites, by commas

The exit status is 1 when a test fails.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
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
_AT_A_TIME: Final = ("--numprocesses=3", "--dist=loadfile")
_ONE_CLUSTER: Final = "e2e"  # its tests share one cluster with nodes, so they run in one process


class Result(NamedTuple):
    """Numbers of tests of one suite on one version."""

    passed: int
    failed: int
    skipped: int
    minutes: float

    def __str__(self) -> str:
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        failed = f", **{self.failed} failed**" if self.failed else ""
        return f"{self.passed} passed{skipped}{failed} in {self.minutes:.0f} min"


def run(suite: str, minor: str) -> Result:
    """Raises: SystemExit when pytest itself fails, for example without programs to test"""
    start_s = time.monotonic()
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
    minutes = (time.monotonic() - start_s) / 60
    return Result(total - skipped - failed, failed, skipped, minutes)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.matrix")
    parser.add_argument("minors", nargs="*", metavar="MINOR", help="like 1.30; all by default")
    whole = ",".join(name for name in SUITES if name != "watching")  # a part of `cluster`
    parser.add_argument("--suites", default=whole, help="names, separated by commas")
    arguments = parser.parse_args()
    if ASSETS_VARIABLE in os.environ:
        parser.error(f"unset {ASSETS_VARIABLE}: it names programs of one version")
    suites = arguments.suites.split(",")
    for names, possible in ((suites, list(SUITES)), (arguments.minors, minors())):
        if unknown := [name for name in names if name not in possible]:
            parser.error(f"{unknown[0]} is none of {', '.join(possible)}")
    rows = []
    failed = 0
    for minor in arguments.minors or minors():
        results = [run(suite, minor) for suite in suites]
        failed += sum(result.failed for result in results)
        rows.append(f"| {release(minor)} | {' | '.join(map(str, results))} |")
    print(f"| Kubernetes | {' | '.join(suites)} |\n|{'---|' * (len(suites) + 1)}")
    print("\n".join(rows))
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
