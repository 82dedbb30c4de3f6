"""What a failure shows of the cluster, for the conftest of suites with a fixture `cluster`."""

from collections.abc import Generator

import pytest

from tests.support.cluster import Cluster


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A failure shows what Kubernetes said last, and how the pods are."""
    report = yield
    cluster = getattr(item, "funcargs", {}).get("cluster")
    if report.failed and report.when != "teardown" and isinstance(cluster, Cluster):
        report.sections.append(("Pods", _pods(cluster)))
        report.sections.append(("Cluster", cluster.logs()))
    return report


def _pods(cluster: Cluster) -> str:
    """All, and the ends of the logs of ours."""
    kubectl = cluster.control_plane.kubectl
    shown = [kubectl("get", "pods", "--all-namespaces", "--output=wide").stdout]
    for pod in cluster.client.list("/api/v1/pods"):
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        shown.append(f"--- {namespace}/{name}")
        shown.append(kubectl("describe", "pod", f"--namespace={namespace}", name).stdout[-1500:])
        log = ("logs", f"--namespace={namespace}", "--all-containers", "--tail=15", name)
        shown.append(kubectl(*log).stdout)
    return "\n".join(shown)
