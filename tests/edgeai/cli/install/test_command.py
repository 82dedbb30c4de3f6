"""`edgeai install` as a command."""

import asyncio
import json
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.edgeai.cli.command import CHECKOUT, edgeai
from tests.globalmanager.cluster import LocalApi

EVERYTHING: Final = ("--set", "monitoring=true")
"""Values for which a file of each directory is read."""


@pytest.fixture(scope="module")
def printed() -> str:
    done = edgeai("install", *EVERYTHING)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_prints_all_objects_and_no_secret(printed: str) -> None:
    kinds = [each["kind"] for each in yaml.safe_load_all(printed)]
    assert kinds[0] == "Namespace"
    assert kinds.count("CustomResourceDefinition") == len([*(CHECKOUT / "deploy/crds").iterdir()])
    assert "Secret" not in kinds


def test_a_bad_value_is_one_line_on_stderr(tmp_path: Path) -> None:
    done = edgeai("install", "--values", str(tmp_path / "absent.yaml"))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("edgeai: values file ")
    assert len(done.stderr.splitlines()) == 1


def test_secrets_are_printed_only_when_asked_for(tmp_path: Path) -> None:
    done = edgeai("install", "--with-secrets", "--set", "edgeAuth=mtls")
    assert done.returncode == 0
    assert "warning: what is printed holds private keys" in done.stderr
    objects = {
        (each["kind"], each["metadata"]["name"]): each for each in yaml.safe_load_all(done.stdout)
    }
    for name in ("globalmanager-tls", "edgeai-ca"):
        assert objects["Secret", name]["data"].keys() == {"tls.crt", "tls.key"}
    for name in ("globalmanager-ca", "globalmanager-client-ca"):
        assert "BEGIN CERTIFICATE" in objects["ConfigMap", name]["data"]["ca.crt"]
    assert "PRIVATE KEY" not in done.stderr


def test_what_was_left_out_is_named(tmp_path: Path) -> None:
    done = edgeai("install", "--set", "components=kubeedge")
    for needed in ("Secret globalmanager-tls", "ConfigMap globalmanager-client-ca"):
        assert needed in done.stderr


def test_an_api_server_that_is_away_is_named(tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    cluster = {"name": "a", "cluster": {"server": "http://127.0.0.1:9"}}
    context = {"name": "a", "context": {"cluster": "a", "user": "a"}}
    config = {"clusters": [cluster], "contexts": [context], "current-context": "a"}
    path.write_text(yaml.safe_dump({**config, "users": [{"name": "a", "user": {"token": "t"}}]}))
    done = edgeai("install", "--apply", "--kubeconfig", str(path), "--timeout", "1")
    assert (done.returncode, done.stdout) == (1, "")
    assert "127.0.0.1" in done.stderr
    assert "Traceback" not in done.stderr
    absent = edgeai("install", "--apply", "--kubeconfig", str(tmp_path / "absent"))
    assert absent.returncode == 1
    assert len(absent.stderr.splitlines()) == 1
    assert str(tmp_path / "absent") in absent.stderr


def test_a_flag_without_effect_is_refused() -> None:
    assert "--adopt needs --apply" in edgeai("install", "--adopt").stderr
    assert "leave out --apply" in edgeai("install", "--apply", "--with-secrets").stderr


@pytest.mark.parametrize("command", ["upgrade", "rollback", "uninstall"])
def test_a_namespace_that_cannot_be_is_refused(command: str) -> None:
    done = edgeai(command, "--namespace", "A/..")
    assert done.returncode == 1
    assert "namespace 'A/..' is invalid" in done.stderr


def test_what_is_printed_is_json_for_programs() -> None:
    printed, as_yaml = edgeai("install", "-o", "json"), edgeai("install")
    listed = json.loads(printed.stdout)
    assert (listed["apiVersion"], listed["kind"]) == ("v1", "List")
    assert listed["items"] == list(yaml.safe_load_all(as_yaml.stdout))
    assert printed.stderr == as_yaml.stderr


async def test_the_local_cluster_says_that_it_has_edgeai_already(tmp_path: Path) -> None:
    async with LocalApi(tmp_path) as cluster:
        where = ("--kubeconfig", str(cluster.kubeconfig))
        done = await asyncio.to_thread(edgeai, "install", "--apply", *where)
    assert done.returncode == 1
    assert "the local cluster of edgeai up has edgeai already" in done.stderr
    assert "--kubeconfig" in done.stderr
