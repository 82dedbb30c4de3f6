"""Which paths of a node jobs may use: the longest of prefix and system directory decides."""

import pytest

from common.node_paths import ANY, DEFAULT_PREFIXES, obstacle

OWN = ("/data", "/var/lib/birds", "/root/.cache/models")


@pytest.mark.parametrize(
    "path",
    [
        # of Sedna's examples
        *("/data/big-model", "/data/1.txt", "/model", "/models/base_model", "/code/data"),
        *("/pretrained", "/incremental_learning/video", "/joint_inference/output", "/home/data"),
        *("/mnt/data/tt/data/1/COCO", "/home/huawei/tt/data/1/COCO", "/home/data/x"),
        *("/data.v1/models", "/srv/images", "/tmp/edgeai-example", "/varied", "/rootfs/data"),
    ],
)
def test_by_default_data_is_allowed(path: str) -> None:
    assert obstacle(path, DEFAULT_PREFIXES) == ""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/root", "/root"),
        ("/root/.ssh", "/root/.ssh"),
        ("/root/models", "/root"),
        ("/etc/shadow", "/etc"),
        ("/etc/kubernetes/pki", "/etc"),
        ("/var/lib/kubelet/pki", "/var"),
        ("/var/run/docker.sock", "/var"),
        ("/proc/1/environ", "/proc"),
        ("/home", "/home"),
        ("/home/ubuntu", "/home/ubuntu"),
        ("/home/ubuntu/.ssh", "/home/ubuntu/.ssh"),
        ("/data/.secrets/keys", "/data/.secrets"),
    ],
)
def test_by_default_system_directories_are_not(path: str, expected: str) -> None:
    assert obstacle(path, DEFAULT_PREFIXES) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/data/a", ""),
        ("/data", ""),
        ("/database", "/"),
        ("/models", "/"),
        ("/var/lib/birds/1", ""),
        ("/var/lib", "/"),
        ("/var/lib/birdsong", "/"),
        ("/root/.cache/models/x", ""),
        ("/root/.cache", "/"),
        ("/data/.hidden/x", "/data/.hidden"),
    ],
)
def test_own_prefixes(path: str, expected: str) -> None:
    assert obstacle(path, OWN) == expected


def test_the_star_allows_all() -> None:
    assert obstacle("/root/.ssh", (ANY,)) == ""
    assert obstacle("/", (ANY,)) == ""
