"""Volumes on disk, and where containers find them."""

import base64
from pathlib import Path

import pytest

from edgeai.localcluster.kubelet.launch import (
    ContainerConfigError,
    ContainerStartError,
    PodView,
    launch,
)
from edgeai.localcluster.kubelet.volumes import MountError, PodDirectory, PodVolumes
from edgeai.localcluster.objects.resources import Object, Resource

OBJECTS: dict[tuple[str, str], Object] = {
    ("configmaps", "settings"): {"data": {"a.yaml": "x: 1", "mode": "fast"}},
    ("configmaps", "scripts"): {"data": {"run.sh": "#!/bin/sh\ncat /v/mode < /w\n"}},
    ("secrets", "key"): {"data": {"token": base64.b64encode(b"s3cret").decode()}},
}


def look_up(resource: Resource, name: str) -> Object | None:
    return OBJECTS.get((resource.plural, name))


def pod(volumes: list[Object], mounts: list[Object]) -> Object:
    main = {"name": "main", "image": "i", "command": ["true"], "volumeMounts": mounts}
    return {
        "metadata": {
            "name": "p",
            "namespace": "default",
            "uid": "u",
            "labels": {"app": "a"},
            "annotations": {"note": "n"},
        },
        "spec": {"nodeName": "edge0", "volumes": volumes, "containers": [main]},
    }


def mounted(tmp_path: Path, volume: Object, **mount: str) -> Path:
    """Where the container finds a volume that is mounted at /v."""
    object_ = pod([volume | {"name": "v"}], [{"name": "v", "mountPath": "/v"} | mount])
    directory = PodDirectory(tmp_path / "pod")
    mounts = PodVolumes(
        object_, directory, look_up, pod_ip="127.9.2.1", host_ip="127.9.0.1"
    ).mount()
    return Path(mounts["main"]["/v"])


def test_host_path_leads_to_the_directory(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "model").write_text("m")
    path = mounted(tmp_path, {"hostPath": {"path": str(data), "type": "Directory"}})
    assert (path / "model").read_text() == "m"


@pytest.mark.parametrize("kind", ["Directory", "File", "Socket"])
def test_missing_host_path_is_an_error_that_names_it(tmp_path: Path, kind: str) -> None:
    missing = str(tmp_path / "missing")
    with pytest.raises(MountError, match=missing):
        mounted(tmp_path, {"hostPath": {"path": missing, "type": kind}})


def test_directory_or_create_creates(tmp_path: Path) -> None:
    mounted(tmp_path, {"hostPath": {"path": str(tmp_path / "a/b"), "type": "DirectoryOrCreate"}})
    assert (tmp_path / "a/b").is_dir()


def test_empty_dir_keeps_its_files_over_a_restart(tmp_path: Path) -> None:
    (mounted(tmp_path, {"emptyDir": {}}) / "kept").touch()
    assert (mounted(tmp_path, {"emptyDir": {}}) / "kept").exists()


def shown(path: Path) -> list[Path]:
    """The entries of a volume without those of the exchange of files."""
    return [entry for entry in path.iterdir() if not entry.name.startswith("..")]


def test_config_map_has_a_file_per_key(tmp_path: Path) -> None:
    path = mounted(tmp_path, {"configMap": {"name": "settings"}})
    assert {file.name: file.read_text() for file in shown(path)} == {
        "a.yaml": "x: 1",
        "mode": "fast",
    }


def test_items_choose_keys_and_paths(tmp_path: Path) -> None:
    items = [{"key": "mode", "path": "sub/m"}]
    path = mounted(tmp_path, {"configMap": {"name": "settings", "items": items}})
    assert [file.name for file in shown(path)] == ["sub"]
    assert [file.name for file in (path / "sub").iterdir()] == ["m"]


def test_secret_files_are_the_owners_alone(tmp_path: Path) -> None:
    file = mounted(tmp_path, {"secret": {"secretName": "key"}}) / "token"
    assert (file.read_bytes(), file.stat().st_mode & 0o777) == (b"s3cret", 0o600)


def test_files_get_their_modes(tmp_path: Path) -> None:
    items = [{"key": "mode", "path": "m", "mode": 0o555}, {"key": "a.yaml", "path": "a"}]
    source = {"name": "settings", "defaultMode": 0o440, "items": items}
    path = mounted(tmp_path, {"configMap": source})
    assert (path / "m").stat().st_mode & 0o777 == 0o555
    assert (path / "a").stat().st_mode & 0o777 == 0o440
    secret = {"secretName": "key", "defaultMode": 0o644}
    token = mounted(tmp_path, {"secret": secret}) / "token"
    assert token.stat().st_mode & 0o777 == 0o600, "never for others"


def test_a_script_finds_what_is_mounted(tmp_path: Path) -> None:
    """Only a script that can be executed: other files of a ConfigMap are data."""
    run = mounted(tmp_path, {"configMap": {"name": "scripts", "defaultMode": 0o755}}) / "run.sh"
    volume = tmp_path / "pod/volumes/v"
    assert run.read_text() == f"#!/bin/sh\ncat {volume}/mode < /w\n"
    data = mounted(tmp_path, {"configMap": {"name": "scripts"}}) / "run.sh"
    assert data.read_text() == "#!/bin/sh\ncat /v/mode < /w\n"


def test_downward_api_and_projection(tmp_path: Path) -> None:
    field = {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}
    sources: list[Object] = [
        {"secret": {"name": "key"}},
        {"downwardAPI": {"items": [field]}},
    ]
    path = mounted(tmp_path, {"projected": {"sources": sources}})
    assert (path / "labels").read_text() == 'app="a"'
    assert (path / "token").exists()


@pytest.mark.parametrize(
    ("volume", "text"),
    [
        ({"configMap": {"name": "none"}}, 'configmap "none" not found'),
        ({"secret": {"secretName": "none"}}, 'secret "none" not found'),
        ({"nfs": {"server": "s"}}, "type nfs"),
        ({"configMap": {"name": "settings", "items": [{"key": "k", "path": "p"}]}}, "no key k"),
        (
            {"configMap": {"name": "settings", "items": [{"key": "mode", "path": "../x"}]}},
            "not a path within",
        ),
    ],
)
def test_bad_volumes_are_errors_that_say_why(tmp_path: Path, volume: Object, text: str) -> None:
    with pytest.raises(MountError, match=text):
        mounted(tmp_path, volume)


def test_optional_volume_may_be_empty(tmp_path: Path) -> None:
    path = mounted(tmp_path, {"configMap": {"name": "none", "optional": True}})
    assert shown(path) == []


def test_sub_path_cannot_leave_the_volume(tmp_path: Path) -> None:
    with pytest.raises(MountError, match="leads out"):
        mounted(tmp_path, {"emptyDir": {}}, subPath="../..")


def test_mount_below_a_mount_leaves_the_outer_volume_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    volumes: list[Object] = [
        {"name": "outer", "hostPath": {"path": str(data)}},
        {"name": "inner", "emptyDir": {}},
    ]
    mounts: list[Object] = [
        {"name": "inner", "mountPath": "/d/in"},
        {"name": "outer", "mountPath": "/d"},
    ]
    directory = PodDirectory(tmp_path / "pod")
    volume = PodVolumes(pod(volumes, mounts), directory, look_up, pod_ip="", host_ip="")
    found = volume.mount()
    assert Path(found["main"]["/d/in"]).is_dir()
    assert list(data.iterdir()) == []


def test_removal_spares_what_host_paths_lead_to(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "model").touch()
    mounted(tmp_path, {"hostPath": {"path": str(data)}})
    PodDirectory(tmp_path / "pod").remove()
    assert (data / "model").exists()
    assert not (tmp_path / "pod").exists()


def view(tmp_path: Path, object_: Object) -> PodView:
    return PodView(
        pod=object_,
        pod_ip="127.9.2.1",
        host_ip="127.9.0.1",
        directory=tmp_path,
        root=tmp_path,
        mounts={"/v": "/real/v"},
        services=[],
        move_port=lambda endpoint: endpoint.port,
        base_env={"PATH": "/usr/bin:/bin"},
    )


def environment_of(tmp_path: Path, **fields: object) -> dict[str, str]:
    object_ = pod([], [])
    container = object_["spec"]["containers"][0] | fields
    return dict(launch(container, view(tmp_path, object_), look_up).env)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.namespace", "default"),
        ("metadata.uid", "u"),
        ("metadata.labels['app']", "a"),
        ("metadata.annotations['note']", "n"),
        ("metadata.labels['none']", ""),
        ("spec.nodeName", "edge0"),
        ("status.podIP", "127.9.2.1"),
        ("status.hostIP", "127.9.0.1"),
    ],
)
def test_field_references(tmp_path: Path, path: str, value: str) -> None:
    variable = {"name": "X", "valueFrom": {"fieldRef": {"fieldPath": path}}}
    assert environment_of(tmp_path, env=[variable])["X"] == value


def test_variables_use_earlier_ones_then_paths_are_rewritten(tmp_path: Path) -> None:
    env = [
        {"name": "DIR", "value": "/v"},
        {"name": "URL", "value": "$(DIR)/m $(LATER)"},
        {"name": "LATER", "value": "x"},
    ]
    assert environment_of(tmp_path, env=env)["URL"] == "/real/v/m $(LATER)"


def test_references_to_keys(tmp_path: Path) -> None:
    references: list[Object] = [
        {"configMapKeyRef": {"name": "settings", "key": "mode"}},
        {"secretKeyRef": {"name": "key", "key": "token"}},
        {"secretKeyRef": {"name": "none", "key": "token", "optional": True}},
    ]
    env = [{"name": f"V{i}", "valueFrom": source} for i, source in enumerate(references)]
    found = environment_of(tmp_path, env=env)
    assert (found["V0"], found["V1"], "V2" in found) == ("fast", "s3cret", False)


def test_env_from_with_prefix_gives_way_to_env(tmp_path: Path) -> None:
    source = {"prefix": "C_", "configMapRef": {"name": "settings"}}
    env = [{"name": "C_a.yaml", "value": "mine"}]
    found = environment_of(tmp_path, envFrom=[source], env=env)
    assert (found["C_mode"], found["C_a.yaml"]) == ("fast", "mine")


@pytest.mark.parametrize(
    ("fields", "error", "text"),
    [
        (
            {"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "no", "key": "k"}}}]},
            ContainerConfigError,
            'secret "no" not found',
        ),
        (
            {"envFrom": [{"configMapRef": {"name": "no"}}]},
            ContainerConfigError,
            'configmap "no" not found',
        ),
        ({"command": []}, ContainerConfigError, "runs commands, not images"),
        ({"command": ["no-such-program"]}, ContainerStartError, "no-such-program"),
        ({"command": ["/etc/passwd"]}, ContainerStartError, "not an executable"),
        ({"command": ["echo", "a\0b"]}, ContainerStartError, "NUL"),
        ({"env": [{"name": "A=B", "value": "x"}]}, ContainerStartError, "variable 'A=B'"),
        ({"env": [{"name": "A", "value": "x\0y"}]}, ContainerStartError, "variable 'A'"),
    ],
)
def test_what_cannot_start_says_why(
    tmp_path: Path, fields: Object, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        environment_of(tmp_path, **fields)
