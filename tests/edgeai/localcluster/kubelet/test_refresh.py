"""Changed ConfigMaps and Secrets reach the pods that run, all files of a volume at once."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from edgeai.localcluster.kubelet.volumes import PodDirectory, PodVolumes
from edgeai.localcluster.objects.resources import (
    CONFIGMAPS,
    EVENTS,
    PODS,
    SECRETS,
    Object,
    Resource,
)
from tests.edgeai.localcluster.running import (
    RunningCluster,
    container,
    log_of,
    new_pod,
    python,
    running_cluster,
)

LISTS = 40
READER = """
seen = []
while not seen or seen[-1] != "last":
    with open("/etc/edl/hostfile") as file:
        hosts = file.read()
    if hosts not in seen[-1:]:
        seen.append(hosts)
print(",".join(seen))
"""


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[RunningCluster]:
    async with running_cluster(tmp_path) as cluster:
        yield cluster


def config(**data: str) -> Object:
    return {"metadata": {"namespace": "default", "name": "conf"}, "data": data}


VOLUME: Object = {"name": "hosts", "configMap": {"name": "conf"}}
MOUNT: Object = {"name": "hosts", "mountPath": "/etc/edl"}


async def test_a_reader_sees_each_list_whole_and_never_none(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    cluster.store.create(CONFIGMAPS, config(hostfile="0"))
    main = python(READER, volumeMounts=[MOUNT])
    cluster.store.create(PODS, new_pod("p", main, restartPolicy="Never", volumes=[VOLUME]))
    await cluster.until_phase("p", "Running")
    for number in range(LISTS):
        cluster.store.update(CONFIGMAPS, config(hostfile=str(number)))
    cluster.store.update(CONFIGMAPS, config(hostfile="last"))
    await cluster.until_phase("p", "Succeeded")
    seen = (await log_of(cluster, tmp_path, "p")).strip().split(",")
    assert set(seen) <= {*map(str, range(LISTS)), "last"}


async def test_secrets_and_annotations_follow_too(cluster: RunningCluster, tmp_path: Path) -> None:
    names = {"namespace": "default", "name": "conf"}
    cluster.store.create(SECRETS, {"metadata": names, "stringData": {"key": "old"}})
    field = {"path": "labels", "fieldRef": {"fieldPath": "metadata.annotations"}}
    sources = [{"secret": {"name": "conf"}}, {"downwardAPI": {"items": [field]}}]
    main = container(
        "until grep -q new /v/key && grep -q hello /v/labels; do sleep 0.05; done",
        volumeMounts=[{"name": "v", "mountPath": "/v"}],
    )
    volume = {"name": "v", "projected": {"sources": sources}}
    cluster.store.create(PODS, new_pod("p", main, restartPolicy="Never", volumes=[volume]))
    pod = await cluster.until_phase("p", "Running")
    cluster.store.update(SECRETS, {"metadata": names, "stringData": {"key": "new"}})
    noted = {**pod["metadata"], "annotations": {"say": "hello"}}
    current = cluster.store.get(PODS, "default", "p")
    noted["resourceVersion"] = current["metadata"]["resourceVersion"]
    cluster.store.update(PODS, {**current, "metadata": noted})
    await cluster.until_phase("p", "Succeeded")


async def test_a_deleted_config_map_leaves_its_files(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    cluster.store.create(CONFIGMAPS, config(hostfile="0"))
    main = container("sleep 600", volumeMounts=[MOUNT])
    cluster.store.create(PODS, new_pod("p", main, volumes=[VOLUME]))
    pod = await cluster.until_phase("p", "Running")
    cluster.store.delete(CONFIGMAPS, "default", "conf")
    volume = PodDirectory(tmp_path / "state" / "pods" / pod["metadata"]["uid"]).volume("hosts")

    def is_told() -> bool:
        return "FailedMount" in {each["reason"] for each in cluster.store.list(EVENTS).items}

    await cluster.until(is_told)
    assert (volume / "hostfile").read_text() == "0"


# ---- the exchange itself ---------------------------------------------------------------------


def volume_of(tmp_path: Path, objects: dict[str, Object], *, refreshed: bool = False) -> Path:
    def look_up(_: Resource, name: str) -> Object | None:
        return objects.get(name)

    directory = PodDirectory(tmp_path / "pod")
    metadata = {"name": "p", "namespace": "default", "uid": "u"}
    pod = {"metadata": metadata, "spec": {"volumes": [VOLUME], "containers": []}}
    volumes = PodVolumes(pod, directory, look_up, pod_ip="127.9.2.1", host_ip="127.9.0.1")
    volumes.refresh() if refreshed else volumes.mount()
    return directory.volume("hosts")


def test_keys_come_and_go(tmp_path: Path) -> None:
    volume_of(tmp_path, {"conf": config(a="1", b="1")})
    path = volume_of(tmp_path, {"conf": config(b="2", c="2")}, refreshed=True)
    shown = {each.name: each.read_text() for each in path.iterdir() if each.name[:2] != ".."}
    assert shown == {"b": "2", "c": "2"}


def test_only_the_last_two_contents_stay_on_disk(tmp_path: Path) -> None:
    volume_of(tmp_path, {"conf": config(a="0")})
    for number in range(5):
        path = volume_of(tmp_path, {"conf": config(a=str(number))}, refreshed=True)
    assert len([each for each in path.iterdir() if each.is_dir() and not each.is_symlink()]) == 2


def test_the_same_content_writes_nothing(tmp_path: Path) -> None:
    path = volume_of(tmp_path, {"conf": config(a="0")})
    before = (path / "..data").readlink()
    volume_of(tmp_path, {"conf": config(a="0")}, refreshed=True)
    assert (path / "..data").readlink() == before


def test_files_of_an_older_cluster_are_replaced(tmp_path: Path) -> None:
    path = PodDirectory(tmp_path / "pod").volume("hosts")
    path.mkdir(parents=True)
    (path / "a").write_text("old")
    volume_of(tmp_path, {"conf": config(a="new")})
    assert (path / "a").read_text() == "new"
