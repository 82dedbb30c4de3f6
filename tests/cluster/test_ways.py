"""Of a job that is broken on real nodes the first line of each place names the cause.

The table is that of tests/ways; here real kubelets, with containerd, and the real scheduler write
the status of the pods.
"""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from edgeai.cli.api import Object
from tests.cluster.images import BASE
from tests.support.cluster import Cluster
from tests.support.manager import SYSTEM_NAMESPACE, GlobalManager
from tests.ways.drafts import Draft, Place, draft
from tests.ways.looks import Site, look, wrong
from tests.ways.table import REAL_WAYS, Case, name_of

pytestmark = pytest.mark.timeout(300, func_only=True)
TOLD_S: Final = 180.0
"""Seconds after which the cause must be shown: all containers start at once."""
AT_LEAST_S: Final = 60.0
"""Seconds for a case whose turn comes after that."""
CASES: Final[list[Case]] = [(way, kind) for way in REAL_WAYS for kind in way.kinds]
PLACE: Final = Place(Path(), 0, BASE)


@pytest.fixture(scope="module")
def site(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The GlobalManager of the nodes."""
    cluster.control_plane.install_crds()
    cluster.client.create(_namespace(SYSTEM_NAMESPACE))
    manager = GlobalManager(
        kubeconfig=cluster.control_plane.kubeconfig,
        directory=tmp_path_factory.mktemp("globalmanager"),
        flags=("--node-path-prefixes", "*"),
    )
    with manager.running():
        console = f"http://127.0.0.1:{manager.http_port}"
        yield Site(cluster.control_plane.kubeconfig, console, cluster.client.get)


@pytest.fixture(scope="module")
def drafts(
    request: pytest.FixtureRequest, cluster: Cluster, site: Site
) -> dict[str, tuple[Draft, float]]:
    """By the case's name: the broken job, and when it was created."""

    def create(case: Case) -> tuple[str, tuple[Draft, float]]:
        way, kind = case
        name = name_of(case)
        made = draft(kind, name.lower().replace(" ", "-"), PLACE)
        way.spoil(made)
        for object_ in (_namespace(made.namespace, **made.labels), *made.before, made.object):
            cluster.client.create(object_)
        return name, (made, time.monotonic())

    items = (getattr(item, "callspec", None) for item in request.session.items)
    chosen = [item.params["case"] for item in items if item and "case" in item.params]
    with ThreadPoolExecutor(4) as pool:
        return dict(pool.map(create, [case for case in chosen if case in CASES]))


def _namespace(name: str, **labels: str) -> Object:
    metadata = {"name": name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_the_first_line_names_the_cause(
    cluster: Cluster, site: Site, drafts: dict[str, tuple[Draft, float]], case: Case
) -> None:
    way, _ = case
    made, began_s = drafts[name_of(case)]
    time.sleep(max(began_s + way.after_s - time.monotonic(), 0.0))

    def check() -> bool:
        lacks = wrong(look(site, made), way, made)
        assert not lacks, "\n".join(lacks)
        return True

    left_s = max(began_s + TOLD_S - time.monotonic(), AT_LEAST_S)
    cluster.eventually(f"the cause of {way.name}", check, timeout_s=left_s, poll_s=1.0)
