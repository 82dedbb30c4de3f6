"""kubectl in one namespace of a cluster, as a user calls it."""

import subprocess

import pytest
import yaml

from edgeai.cli.api import Object
from tests.conformance.clusters import AnyCluster


class Kubectl:
    """Skips the test where there is no kubectl."""

    def __init__(self, cluster: AnyCluster, namespace: str) -> None:
        if cluster.kubectl("version", "--client") is None:
            pytest.skip("there is no kubectl on PATH")
        self._cluster = cluster
        self._namespace = namespace

    def run(self, *arguments: str, text: str = "") -> "subprocess.CompletedProcess[str]":
        done = self._cluster.kubectl("--namespace", self._namespace, *arguments, text=text)
        assert done is not None
        return done

    def __call__(self, *arguments: str, text: str = "") -> str:
        """What a successful run prints."""
        done = self.run(*arguments, text=text)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def apply(self, *objects: Object, flags: tuple[str, ...] = ()) -> str:
        return self("apply", *flags, "-f", "-", text=yaml.safe_dump_all(objects))
