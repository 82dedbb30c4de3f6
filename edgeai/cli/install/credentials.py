"""The Secrets and ConfigMaps that pods of an installation mount: made where none are given.

What somebody else has made is never changed. The key of the authority stays in a Secret, so that
`edgeai upgrade` can renew the certificate of the edge port, and edge nodes trust it as before.
"""

import base64
import hashlib
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cryptography.exceptions import UnsupportedAlgorithm

from edgeai.api.resources import NODES, Object
from edgeai.cli.credentials.certificates import Pair, issue_server, new_authority, problem_of
from edgeai.cli.credentials.node_files import NodeFiles
from edgeai.cli.doctor.certificates import CA
from edgeai.cli.doctor.files import mounted
from edgeai.cli.install.cluster import Cluster, Name, some
from edgeai.cli.install.errors import InstallError
from edgeai.cli.install.readiness import edges

AUTHORITY: Final = "edgeai-ca"
TLS: Final = "globalmanager-tls"
CLIENT_CA: Final = "globalmanager-client-ca"
TOKENS: Final = "globalmanager-edge-tokens"
_TOKENS_KEY: Final = "tokens"
_WORKLOADS: Final = ("Deployment", "DaemonSet")


def names(namespace: str) -> tuple[Name, ...]:
    """All that this module may make."""
    return (
        *(Name("v1", "Secret", namespace, each) for each in (AUTHORITY, TLS, TOKENS)),
        *(Name("v1", "ConfigMap", namespace, each) for each in (CA, CLIENT_CA)),
    )


def needed(objects: Iterable[Object]) -> dict[str, str]:
    """Name -> kind of each Secret and ConfigMap that pods mount and that is not in `objects`."""
    objects = list(objects)
    present = {each["metadata"]["name"] for each in objects if each["kind"] == "ConfigMap"}
    kinds = {"secret": "Secret", "configMap": "ConfigMap"}
    return {
        name: kinds[source]
        for each in objects
        if each["kind"] in _WORKLOADS
        for source, name in mounted(each)
        if name not in present
    }


def host_of(objects: Iterable[Object]) -> str:
    """The name or address at which edge nodes reach the GlobalManager."""
    for each in objects:
        if (each["kind"], each["metadata"]["name"]) == ("ConfigMap", "localcontroller"):
            return urlsplit(each["data"]["globalManager"]).hostname or ""
    return ""


def make(objects: list[Object], namespace: str, now: datetime) -> list[Object]:
    """All of them, for who applies by hand what is printed."""
    authority = new_authority(now)
    wanted = needed(objects)
    made = [_secret(AUTHORITY, namespace, authority)]
    if TLS in wanted:
        made.append(_secret(TLS, namespace, issue_server(authority, host_of(objects), now)))
    for name in dict.fromkeys((CA, *(each for each in (CLIENT_CA,) if each in wanted))):
        made.append(_config_map(name, namespace, authority))
    return made


class Credentials:
    """Those of one installation, in the cluster.

    Args: node_directory: gets the credentials of edge nodes
    """

    def __init__(
        self,
        cluster: Cluster,
        objects: list[Object],
        now: datetime,
        node_directory: Path | None = None,
    ) -> None:
        self._cluster = cluster
        self._files = None if node_directory is None else NodeFiles(node_directory, cluster.say)
        self._needed = needed(objects)
        self._host = host_of(objects)
        self._now = now
        self._present: dict[str, Object] = {}

    async def check(self) -> None:
        """Raises: InstallError when a CA is missing that only the user has"""
        if CLIENT_CA not in self._needed or CA in self._needed:
            return  # only nodes of KubeEdge have certificates of another CA than the edge port
        name = Name("v1", "ConfigMap", self._namespace, CLIENT_CA)
        if await self._cluster.find(name) is None:
            raise InstallError(
                f"{name} is missing: it holds the CA of the nodes' certificates as ca.crt; make it "
                "as in docs/kubeedge.md, and type it again"
            )

    async def ensure(self) -> None:
        """Make what is missing, renew what the installation made and what ends soon.

        Raises: InstallError for what only its owner can make
        """
        namespace = self._cluster.namespace
        wanted = [Name("v1", kind, namespace, name) for name, kind in self._needed.items()]
        found = await self._cluster.find_all({*names(namespace), *wanted})
        self._present = {name.name: each for name, each in found}
        await self._ensure_edge_port()
        if CA in self._needed and CA not in self._present and AUTHORITY in self._present:
            await self._authority()
        if CLIENT_CA in self._needed:
            await self._ensure_client_authority()
        if TOKENS in self._needed:
            await self._ensure_tokens()
        elif self._files is not None:
            await self._write_certificates(self._files)
        missing = [each for each in wanted if each.name not in self._present]
        if missing:
            raise InstallError(
                f"{missing[0]} is missing, and nobody else can make it: see docs/install.md"
            )

    async def _ensure_edge_port(self) -> None:
        if TLS not in self._needed:
            return
        tls = self._present.get(TLS)
        if tls is None:
            authority = await self._authority()
            await self._make(_secret(TLS, self._namespace, self._server(authority)))
            return
        problem = problem_of(_text(tls, "tls.crt"), self._host, self._now)
        if not problem:
            return
        if self._is_ours(TLS) and AUTHORITY in self._present:
            self._cluster.say(f"the certificate of the edge port {problem}; making a new one")
            authority = await self._authority()
            await self._make(_secret(TLS, self._namespace, self._server(authority)))
        else:
            name = f"Secret {self._namespace}/{TLS}"
            self._cluster.say(f"warning: the certificate in {name} {problem}; replace it")

    async def _write_certificates(self, files: NodeFiles) -> None:
        if CLIENT_CA not in self._needed:
            raise InstallError("--credentials is for edgeAuth mtls or token; leave it out")
        if not self._is_ours(CLIENT_CA) or not self._is_ours(AUTHORITY):
            raise InstallError(
                f"ConfigMap {self._namespace}/{CLIENT_CA} is not of edgeai install: the nodes' "
                "certificates come from the CA that it names; leave --credentials out"
            )
        authority = await self._authority()
        for node in await self._nodes():
            files.certificate(authority, node, self._now)

    async def _ensure_tokens(self) -> None:
        """A line for each edge node. Only the node's file has the token itself."""
        present = self._present.get(TOKENS)
        if present is not None and not self._is_ours(TOKENS):
            return
        lines = [] if present is None else _text(present, _TOKENS_KEY).splitlines()
        known = {line.partition(" ")[0] for line in lines}
        new = [node for node in await self._nodes() if node not in known]
        if self._files is None and (present is None or new):
            raise InstallError(
                f"{some(new) or 'edge nodes'}: no token yet; type it with --credentials DIR, which "
                "gets a file for each edge node"
            )
        for node in new:
            assert self._files is not None
            lines.append(f"{node} {hashlib.sha256(self._files.token(node).encode()).hexdigest()}")
        if present is None or new:
            await self._make(_opaque(TOKENS, self._namespace, {_TOKENS_KEY: "\n".join(lines)}))

    async def _nodes(self) -> list[str]:
        listing = await self._cluster.retried(lambda: self._cluster.client.list(NODES))
        return [each["metadata"]["name"] for each in edges(listing.items)]

    def _is_ours(self, name: str) -> bool:
        return name in self._present and self._cluster.is_ours(self._present[name])

    def _server(self, authority: Pair) -> Pair:
        try:
            return issue_server(authority, self._host, self._now)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise InstallError(
                f"Secret {self._namespace}/{AUTHORITY} is no CA that can sign ({error}): put its "
                "certificate into tls.crt and its key, without a password, into tls.key"
            ) from error

    async def _ensure_client_authority(self) -> None:
        await self.check()
        if CLIENT_CA not in self._present:
            await self._make(_config_map(CLIENT_CA, self._namespace, await self._authority()))

    async def _authority(self) -> Pair:
        """The authority that edge nodes trust; a new one only where they trust none yet."""
        if (kept := self._present.get(AUTHORITY)) is not None:
            authority = Pair(_text(kept, "tls.crt"), _text(kept, "tls.key"))
        elif CA in self._present:
            raise InstallError(
                f"ConfigMap {self._namespace}/{CA} is there, and the key of this CA is not: make "
                f"Secret {self._namespace}/{TLS} with a certificate that it signed, or delete the "
                "ConfigMap, so that both are made anew"
            )
        else:
            authority = new_authority(self._now)
            await self._make(_secret(AUTHORITY, self._namespace, authority))
        if CA not in self._present:  # also after a kill between the two
            await self._make(_config_map(CA, self._namespace, authority))
        return authority

    async def _make(self, object_: Object) -> None:
        name = object_["metadata"]["name"]
        write = self._cluster.apply if name in self._present else self._cluster.create
        self._present[name] = await write(object_)
        self._cluster.say(f"made {object_['kind']} {self._namespace}/{name}")

    @property
    def _namespace(self) -> str:
        return self._cluster.namespace


def _secret(name: str, namespace: str, pair: Pair) -> Object:
    data = {"tls.crt": pair.certificate, "tls.key": pair.key}
    return {**_opaque(name, namespace, data), "type": "kubernetes.io/tls"}


def _opaque(name: str, namespace: str, data: dict[str, str]) -> Object:
    metadata = {"name": name, "namespace": namespace}
    encoded = {key: base64.b64encode(text.encode()).decode() for key, text in data.items()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": encoded}


def _config_map(name: str, namespace: str, authority: Pair) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace},
        "data": {"ca.crt": authority.certificate},
    }


def _text(secret: Object, key: str) -> str:
    """Raises: InstallError"""
    try:
        return base64.b64decode((secret.get("data") or {})[key], validate=True).decode()
    except (KeyError, ValueError) as error:
        metadata = secret["metadata"]
        raise InstallError(
            f"Secret {metadata['namespace']}/{metadata['name']} has no {key} that can be read"
        ) from error
