"""`edgeai credentials` creates what is missing, renews what ends, and changes nothing of others."""

import asyncio
import base64
import json
import subprocess
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from edgeai.api.resources import CONFIG_MAPS, NODES, SECRETS, Object, ObjectRef, ResourceType
from edgeai.cli.credentials.certificates import (
    LASTS,
    Pair,
    new_authority,
    node_problem_of,
    problem_of,
)
from edgeai.cli.credentials.credentials import AUTHORITY, CLIENT_CA, LABEL, TLS, TOKENS, Credentials
from edgeai.cli.credentials.node_files import CredentialsError
from edgeai.cli.doctor.mounts import CA
from edgeai.kube.client import KubeClient
from edgeai.times import utc_now
from globalmanager.edge.identity.node_tokens import read_tokens, sha256_hex
from globalmanager.kinds.training.edge_placement import EDGE_LABEL
from tests.edgeai.cli.command import edgeai
from tests.globalmanager.cluster import LocalApi

NAMESPACE: Final = "edgeai-system"
SERVICE: Final = f"globalmanager.{NAMESPACE}.svc"
NOW: Final = utc_now()


class Site:
    """A cluster with one edge node, and what the command has said."""

    def __init__(self, client: KubeClient, kubeconfig: Path) -> None:
        self.client = client
        self.kubeconfig = kubeconfig
        self.lines: list[str] = []

    def credentials(self, now: datetime = NOW) -> Credentials:
        self.lines.clear()
        return Credentials(self.client, NAMESPACE, self.lines.append, now)

    async def create(self, type_: ResourceType, name: str, **fields: object) -> None:
        metadata = {"name": name, "namespace": NAMESPACE}
        object_ = {"apiVersion": "v1", "kind": type_.kind, "metadata": metadata, **fields}
        await self.client.create(type_, object_)

    async def object(self, type_: ResourceType, name: str) -> Object:
        return await self.client.get(ObjectRef(type_, NAMESPACE, name))

    async def pair(self, name: str) -> Pair:
        data = (await self.object(SECRETS, name))["data"]
        return Pair(*(base64.b64decode(data[key]).decode() for key in ("tls.crt", "tls.key")))

    async def command(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        where = ("--kubeconfig", str(self.kubeconfig))
        return await asyncio.to_thread(edgeai, "credentials", *arguments, *where)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    async with (
        LocalApi(tmp_path) as api,
        await KubeClient.from_kubeconfig(api.kubeconfig) as client,
    ):
        metadata = {"name": "edge0", "labels": {EDGE_LABEL: ""}}
        await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
        await client.create(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "c"}})
        site = Site(client, api.kubeconfig)
        await site.credentials().ensure_namespace()
        yield site


async def test_the_command_creates_all_that_the_defaults_mount(site: Site) -> None:
    done = await site.command()
    assert done.returncode == 0, done.stderr
    assert "PRIVATE KEY" not in done.stdout + done.stderr
    authority, tls = await site.pair(AUTHORITY), await site.pair(TLS)
    assert problem_of(tls.certificate, SERVICE, NOW) == ""
    trusted = await site.object(CONFIG_MAPS, CA)
    assert trusted["data"] == {"ca.crt": authority.certificate}
    assert trusted["metadata"]["labels"] == {LABEL: NAMESPACE}
    again = await site.command("-o", "json")
    assert json.loads(again.stdout) == {"namespace": NAMESPACE, "written": []}
    assert again.stderr == f"edgeai: the certificate of the edge port is good for {SERVICE}\n"
    assert (await site.pair(TLS)).certificate == tls.certificate


async def test_it_creates_the_namespace(site: Site) -> None:
    done = await site.command("--namespace", "farm", "--edge-host", "192.0.2.7")
    assert done.stdout.splitlines()[0] == "edgeai: created namespace farm"
    assert done.returncode == 0, done.stderr


async def test_it_takes_the_host_that_edge_nodes_are_told(site: Site) -> None:
    data = {"globalManager": "wss://[fd00::1]:30900"}
    await site.create(CONFIG_MAPS, "localcontroller", data=data)
    await site.credentials().ensure_edge_port("")
    tls = await site.pair(TLS)
    assert problem_of(tls.certificate, "fd00::1", NOW) == ""
    await site.credentials().ensure_edge_port("edge.example")
    assert "has no name edge.example" in site.lines[0]
    assert problem_of((await site.pair(TLS)).certificate, "edge.example", NOW) == ""


async def test_a_certificate_that_ends_soon_is_renewed_by_the_same_authority(site: Site) -> None:
    await site.credentials().ensure_edge_port("")
    authority, before = await site.pair(AUTHORITY), await site.pair(TLS)
    later = NOW + LASTS - timedelta(days=29)
    await site.credentials(later).ensure_edge_port("")
    assert "ends at" in site.lines[0]
    assert site.lines[1:] == [f"renewed Secret {NAMESPACE}/{TLS}"]
    renewed = await site.pair(TLS)
    assert problem_of(renewed.certificate, SERVICE, later) == ""
    assert renewed.key != before.key
    assert node_problem_of(renewed.certificate, authority, later) == ""


async def test_what_was_interrupted_is_finished(site: Site) -> None:
    await site.credentials().ensure_edge_port("")
    await site.client.delete(ObjectRef(CONFIG_MAPS, NAMESPACE, CA))
    await site.credentials().ensure_edge_port("")
    authority = await site.pair(AUTHORITY)
    assert (await site.object(CONFIG_MAPS, CA))["data"] == {"ca.crt": authority.certificate}


async def test_a_certificate_of_somebody_else_stays(site: Site) -> None:
    data = {"tls.crt": base64.b64encode(b"x").decode()}
    await site.create(SECRETS, TLS, data=data)
    await site.credentials().ensure_edge_port("")
    (line,) = site.lines
    assert line.startswith(f"warning: the certificate in Secret {NAMESPACE}/{TLS} cannot be read")
    assert (await site.object(SECRETS, TLS))["data"] == data


async def test_an_authority_without_its_key_is_refused_with_a_way_out(site: Site) -> None:
    await site.create(CONFIG_MAPS, CA, data={"ca.crt": "y"})
    done = await site.command()
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"create Secret {NAMESPACE}/{TLS} with a certificate that it signed" in line


@pytest.mark.parametrize("key", ["of another", "broken"])
async def test_an_authority_that_cannot_sign_is_named(site: Site, key: str) -> None:
    pair, other = new_authority(NOW), new_authority(NOW)
    texts = {"tls.crt": pair.certificate, "tls.key": other.key if key == "of another" else "key"}
    data = {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}
    await site.create(SECRETS, AUTHORITY, data=data)
    with pytest.raises(CredentialsError, match=rf"{AUTHORITY} is no CA that can sign \(.*tls.key"):
        await site.credentials().ensure_edge_port("")


async def test_nodes_get_certificates_that_the_edge_port_takes(site: Site, tmp_path: Path) -> None:
    directory = tmp_path / "nodes"
    done = await site.command("--certificates", str(directory))
    assert done.returncode == 0, done.stderr
    files = {path: path.read_text() for path in directory.rglob("*.*")}
    certificate, key = directory / "edge0" / "tls.crt", directory / "edge0" / "tls.key"
    assert files.keys() == {certificate, key}
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    authority = await site.pair(AUTHORITY)
    assert node_problem_of(files[certificate], authority, NOW) == ""
    trusted = await site.object(CONFIG_MAPS, CLIENT_CA)
    assert trusted["data"] == {"ca.crt": authority.certificate}
    await site.credentials().write_certificates(directory)
    assert {path: path.read_text() for path in files} == files


async def test_nodes_with_certificates_of_another_ca_get_none(site: Site, tmp_path: Path) -> None:
    await site.create(CONFIG_MAPS, CLIENT_CA, data={"ca.crt": "of KubeEdge"})
    with pytest.raises(CredentialsError, match="leave --certificates out"):
        await site.credentials().write_certificates(tmp_path)


async def test_nodes_get_tokens_that_the_edge_port_knows(site: Site, tmp_path: Path) -> None:
    done = await site.command("--tokens", str(tmp_path))
    assert done.returncode == 0, done.stderr
    data = (await site.object(SECRETS, TOKENS))["data"]
    (tmp_path / "tokens").write_bytes(base64.b64decode(data["tokens"]))
    token = (tmp_path / "edge0" / "token").read_text()
    assert read_tokens(tmp_path / "tokens") == {sha256_hex(token): "edge0"}
    assert token not in done.stdout
    await site.credentials().write_tokens(tmp_path)
    assert (await site.object(SECRETS, TOKENS))["data"] == data


async def test_tokens_of_somebody_else_stay(site: Site, tmp_path: Path) -> None:
    await site.create(SECRETS, TOKENS, data={"tokens": ""})
    with pytest.raises(CredentialsError, match="leave --tokens out"):
        await site.credentials().write_tokens(tmp_path)


async def test_a_namespace_that_cannot_be_is_refused(site: Site) -> None:
    done = await site.command("--namespace", "A/..")
    assert done.returncode == 1
    assert "namespace 'A/..' is invalid" in done.stderr
