"""What several tests of installations need: names, and the command with its usual flags."""

import subprocess
from collections.abc import Callable
from typing import Final

from edgeai.cli.api import Object
from edgeai.cli.install.cluster import name_of
from edgeai.cli.install.rendering import definitions, render
from edgeai.cli.install.values import Values
from tests.cluster.client import Client

NAMESPACE: Final = "edgeai-system"
CORE: Final = f"/api/v1/namespaces/{NAMESPACE}"
DEPLOYMENT: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/globalmanager"
EDGE_LABELS: Final = {"node-role.kubernetes.io/edge": ""}
NOBODY: Final = "nobody"


Run = Callable[..., "subprocess.CompletedProcess[str]"]
"""Runs the command against the cluster of the tests."""


def installed(run: Run, *arguments: str) -> str:
    done = run("install", "--apply", *arguments)
    assert done.returncode == 0, done.stderr
    assert "PRIVATE KEY" not in done.stdout + done.stderr
    return done.stdout


def refused(run: Run, *arguments: str) -> str:
    """The one line that says why."""
    done = run(*arguments)
    assert done.returncode == 1, done.stdout
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


def versions(client: Client) -> dict[str, str]:
    """The resourceVersion of each object of the installation that no controller writes."""
    chosen = Values()
    wanted = [*render(chosen), *definitions(chosen)]
    wanted = [each for each in wanted if each["kind"] not in ("Deployment", "DaemonSet")]
    found = {str(name_of(each)): client.get(path(each)) for each in wanted}
    return {name: each["metadata"]["resourceVersion"] for name, each in found.items()}


def path(object_: Object) -> str:
    ref = name_of(object_).ref
    return ref.type.path(ref.namespace, ref.name)


def uid_of(client: Client, secret: str) -> str:
    uid: str = client.get(f"{CORE}/secrets/{secret}")["metadata"]["uid"]
    return uid
