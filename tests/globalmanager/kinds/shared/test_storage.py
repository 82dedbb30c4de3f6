"""The place of data within a pod."""

import pytest

from edgeai.api.specs import InvalidSpec
from globalmanager.kinds.shared.storage import Source, check_url, place
from tests.support.world import SETTINGS


def source(url: str, env: str = "MODEL_URL", credential: str = "") -> Source:
    return Source(env=env, url=url, credential=credential)


@pytest.mark.parametrize(
    "url",
    [
        "/models/small.onnx",
        "/models/deep/dir/",
        "/model",
        "s3://bucket/models/small.onnx",
        "http://files.test/small.onnx",
        "https://files.test:8443/a/b.onnx?version=2",
    ],
)
def test_good_urls(url: str) -> None:
    check_url(url)


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        pytest.param("", "no absolute path", id="empty"),
        pytest.param("small.onnx", "no absolute path", id="relative"),
        pytest.param("/small.onnx", "no absolute path", id="would mount the whole node"),
        pytest.param("//", "no absolute path", id="is the whole node"),
        pytest.param("/models/../etc/shadow", "no absolute path", id="climbs"),
        pytest.param("ftp://files.test/a", "not supported", id="scheme"),
        pytest.param("s3://bucket", "names no file", id="no key"),
        pytest.param("s3:///key", "names no file", id="no bucket"),
        pytest.param("s3://bucket/../key", "has a '..'", id="remote climbs"),
        pytest.param("http://[::1/a", "is no URL", id="not a URL"),
    ],
)
def test_bad_urls_are_refused_with_the_field(url: str, complaint: str) -> None:
    with pytest.raises(InvalidSpec, match=r"spec\.url") as error:
        check_url(url)
    assert complaint in str(error.value)


@pytest.mark.parametrize(
    ("url", "directory", "path"),
    [
        pytest.param("/models/s/a.onnx", "/models/s", "/home/data/models/s/a.onnx", id="file"),
        pytest.param("/models/dir/", "/models", "/home/data/models/dir", id="directory"),
        pytest.param("/model", "/model", "/home/data/model", id="directory of the root"),
        pytest.param("//models//a.onnx", "/models", "/home/data/models/a.onnx", id="slashes"),
    ],
)
def test_a_path_of_the_node_is_mounted_with_its_directory(
    url: str, directory: str, path: str
) -> None:
    placed = place([source(url)], SETTINGS)
    assert placed.env == (
        {"name": "MODEL_URL", "value": path},
        {"name": "DATA_PATH_PREFIX", "value": "/home/data"},
    )
    host_path = {"path": directory, "type": "Directory"}
    assert placed.volumes == ({"name": "edgeai-data-0", "hostPath": host_path},)
    mount = {"name": "edgeai-data-0", "mountPath": f"/home/data{directory}", "readOnly": True}
    assert placed.mounts == (mount,)


def test_two_files_of_one_directory_share_a_volume() -> None:
    placed = place([source("/m/a"), source("/m/b", env="BASE_MODEL_URL")], SETTINGS)
    assert len(placed.volumes) == len(placed.mounts) == 1


def test_only_the_directory_of_an_output_can_be_written() -> None:
    result = Source(env="MODEL_URL", url="/models/result.npz", is_output=True)
    start = source("/models/start.npz", env="PRETRAINED_MODEL_URL")
    placed = place([result, start, source("/data/a.csv", env="TRAIN_DATASET_URL")], SETTINGS)
    is_read_only = {mount["mountPath"]: mount.get("readOnly", False) for mount in placed.mounts}
    assert is_read_only == {"/home/data/models": False, "/home/data/data": True}


def test_a_remote_url_is_fetched_by_an_init_container() -> None:
    placed = place([source("s3://bucket/models/a.onnx", credential="s3-key")], SETTINGS)
    assert placed.env == ({"name": "MODEL_URL", "value": "/downloads/bucket/models/a.onnx"},)
    (fetch,) = placed.init_containers
    assert fetch["args"] == ["s3://bucket/models/a.onnx", "/downloads/bucket/models"]
    assert fetch["image"] == SETTINGS.storage_initializer_image
    assert fetch["envFrom"] == [{"secretRef": {"name": "s3-key"}}]
    assert placed.volumes == ({"name": "edgeai-downloads", "emptyDir": {}},)
    assert placed.mounts[0]["readOnly"] is True


def test_a_password_in_the_url_does_not_become_a_path() -> None:
    placed = place([source("https://user:word@files.test/a.onnx")], SETTINGS)
    assert placed.env[0]["value"] == "/downloads/files.test/a.onnx"


def test_a_password_in_a_bad_url_is_not_shown() -> None:
    with pytest.raises(InvalidSpec) as error:
        check_url("ftp://user:word@files.test/a.onnx")
    assert "word" not in str(error.value)
    assert "files.test" in str(error.value)
