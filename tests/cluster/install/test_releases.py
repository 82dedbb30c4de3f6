"""Helm installs, upgrades, rolls back and uninstalls the chart; jobs and definitions stay."""

import base64
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from edgeai.cli.api import Object, path_of
from edgeai.times import rfc3339, utc_now
from tests.cluster.controlplane import ControlPlane
from tests.cluster.helm import CHART, RELEASE
from tests.cluster.install.release import CORE, DEPLOYMENT, NAMESPACE, SERVER_SIDE, Release
from tests.cluster.samples import model, service
from tests.support.client import Client

EDGE_SERVICE: Final = f"{CORE}/services/globalmanager-edge"
DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
DAEMON_SET: Final = DEPLOYMENT.replace("deployments/globalmanager", "daemonsets/localcontroller")
EARLIER: Final = Path(__file__).with_name("of-0.1.0.yaml")
OF_THE_INSTALLER: Final = (
    *("deployment/globalmanager", "daemonset/localcontroller"),
    *("secret/edgeai-installation", "lease/edgeai-install"),
)
MAX_SECRET_BYTES: Final = 1024 * 1024
pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def release(plane: ControlPlane, nodes: None) -> Iterator[Release]:
    """Of no installation yet. What the test has left is removed afterwards."""
    release = Release(plane)
    yield release
    release.remove()


def port(client: Client) -> int | None:
    """Of the cloud nodes, for edge nodes."""
    found = client.find(EDGE_SERVICE)
    return None if found is None else found["spec"]["ports"][0]["nodePort"]


def job_with_counters(client: Client) -> Object:
    """One that an edge has worked for."""
    client.create(model("small", "default"))
    client.create(model("big", "default"))
    job = client.create(service("default"))
    condition = {
        "type": "Running",
        "status": "True",
        "reason": "Running",
        "message": "",
        "lastTransitionTime": rfc3339(utc_now()),
        "observedGeneration": 1,
    }
    status = {"conditions": [condition], "uploadCount": 12}
    client.patch(f"{path_of(job)}/status", {"status": status})
    return client.get(path_of(job))


def assert_stays(client: Client, job: Object) -> None:
    now = client.get(path_of(job))
    assert now["metadata"]["uid"] == job["metadata"]["uid"]
    assert (now["spec"], now["status"]) == (job["spec"], job["status"])


def test_a_release_has_a_name_a_version_and_the_next_command(
    release: Release, client: Client
) -> None:
    printed = release.install()
    (listed,) = release.listed()
    names = (listed["name"], listed["chart"], listed["app_version"])
    assert names == (RELEASE, "edgeai-0.1.0", "0.1.0")
    assert (listed["status"], listed["revision"]) == ("deployed", "1")
    assert "edgeai credentials\n" in printed
    assert "edgeai doctor\n" in printed
    assert client.get(DEPLOYMENT)["status"]["availableReplicas"] == 2


def test_the_record_of_a_release_fits_into_a_secret(release: Release, client: Client) -> None:
    """Its chart and its rendering, all definitions in both; half of the room is left for more."""
    release.install("--set", "monitoring=false")
    (secret,) = (
        each for each in client.list(f"{CORE}/secrets") if each["type"] == "helm.sh/release.v1"
    )
    size = sum(len(base64.b64decode(value)) for value in secret["data"].values())
    assert size < MAX_SECRET_BYTES / 2


def test_an_upgrade_changes_and_a_rollback_takes_it_back(release: Release, client: Client) -> None:
    release.install()
    values = ("nodePort=31234", "edgeHost=edge.example", "replicas=3")
    printed = release.upgrade(*(flag for value in values for flag in ("--set", value)))
    assert "edgeai credentials\n" in printed
    assert (port(client), client.get(DEPLOYMENT)["spec"]["replicas"]) == (31234, 3)
    release.rollback(1)
    assert (port(client), client.get(DEPLOYMENT)["spec"]["replicas"]) == (None, 2)
    release.rollback(2)
    assert (port(client), client.get(DEPLOYMENT)["spec"]["replicas"]) == (31234, 3)
    release.upgrade("--reset-then-reuse-values", "--set", "replicas=2")
    assert (port(client), client.get(DEPLOYMENT)["spec"]["replicas"]) == (31234, 2)
    release.upgrade("--reset-values")
    assert port(client) is None


def test_an_upgrade_that_never_gets_ready_is_taken_back(release: Release, client: Client) -> None:
    release.install()
    # No node has so much memory.
    much = [f"resources.globalmanager.{part}.memory=1Ti" for part in ("requests", "limits")]
    flags = [flag for value in much for flag in ("--set", value)]
    done = release.helm(
        *("upgrade", RELEASE, str(CHART), *flags),
        *("--rollback-on-failure", "--wait", "--timeout=10s"),
    )
    assert done.returncode != 0
    container = client.get(DEPLOYMENT)["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"]["memory"] == "1Gi"


def test_jobs_and_definitions_stay_when_a_release_is_uninstalled(
    release: Release, client: Client
) -> None:
    release.install()
    job = job_with_counters(client)
    release.uninstall()
    assert release.listed() == []
    assert client.find(DEPLOYMENT) is None
    assert_stays(client, job)
    release.install()  # the definitions are its own again
    assert_stays(client, job)


def test_definitions_are_upgraded_with_the_chart(
    release: Release, client: Client, tmp_path: Path
) -> None:
    older = tmp_path / "chart"
    shutil.copytree(CHART, older)
    file = older / "definitions" / "edgeai.io_federatedlearningjobs.yaml"
    definition = yaml.safe_load(file.read_text())
    del fields_of(definition)["startTime"]
    file.write_text(yaml.safe_dump(definition, sort_keys=False))
    release.install(chart=older)
    name = f"{DEFINITIONS}/federatedlearningjobs.edgeai.io"
    assert "startTime" not in fields_of(client.get(name))
    release.upgrade()
    assert "startTime" in fields_of(client.get(name))
    release.upgrade("--set", "groups={sedna.io}")
    assert client.get(name), "a group is left out, and its jobs are gone"


def fields_of(definition: Object) -> dict[str, Any]:
    """Of the status."""
    (version,) = definition["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]["status"]
    fields: dict[str, Any] = schema["properties"]
    return fields


def test_a_second_release_is_refused(release: Release) -> None:
    release.install()
    flags = ("--set", "groups={edgeai.io}", "--create-namespace")
    done = release.helm("install", RELEASE, str(CHART), *flags, namespace="second")
    assert done.returncode != 0
    assert f'must equal "second": current value is "{NAMESPACE}"' in done.stderr


def test_definitions_of_another_tool_are_refused_or_used(release: Release, client: Client) -> None:
    release.disown_definitions()
    flags = ("--create-namespace", "--set", "groups={kubeflow.org}")
    done = release.helm("install", RELEASE, str(CHART), *flags)
    assert done.returncode != 0
    assert "CustomResourceDefinition" in done.stderr
    assert "invalid ownership metadata" in done.stderr
    release.install(*flags[1:], "--set", "foreignDefinitions={kubeflow.org}")
    annotations = client.get(f"{DEFINITIONS}/tfjobs.kubeflow.org")["metadata"]["annotations"]
    assert "meta.helm.sh/release-name" not in annotations


def test_helm_takes_over_an_installation_of_0_1_0(
    release: Release, plane: ControlPlane, client: Client
) -> None:
    """Jobs and their counters stay. A part of what it applied is recorded."""
    client.create_named("Namespace", NAMESPACE)
    done = plane.kubectl("apply", *SERVER_SIDE, "-f", str(EARLIER), "--namespace", NAMESPACE)
    assert done.returncode == 0, done.stderr
    release.disown_definitions()
    job = job_with_counters(client)
    done = plane.kubectl(
        "--namespace", NAMESPACE, "delete", "--ignore-not-found", *OF_THE_INSTALLER
    )
    assert done.returncode == 0, done.stderr
    release.install("--take-ownership", "--force-conflicts")
    assert_stays(client, job)
    (listed,) = release.listed()
    assert listed["status"] == "deployed"
    for path in (DEPLOYMENT, DAEMON_SET):
        managers = {entry["manager"] for entry in client.get(path)["metadata"]["managedFields"]}
        assert "edgeai-install" not in managers, "what a later chart leaves out would stay"
    release.uninstall()
    assert_stays(client, job)
