"""The Secrets and ConfigMaps that pods of an installation mount: created where there are none.

What somebody else has created is never changed. The key of the authority stays in a Secret, so that
the certificate of the edge port can be renewed, and edge nodes trust it as before.
"""

import base64
import hashlib
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from cryptography.exceptions import UnsupportedAlgorithm

from edgeai.api.objects import label_of
from edgeai.api.resources import (
    CONFIG_MAPS,
    NAMESPACES,
    NODES,
    SECRETS,
    Object,
    ObjectRef,
    ResourceType,
)
from edgeai.cli.credentials.certificates import Pair, issue_server, new_authority, problem_of
from edgeai.cli.credentials.node_files import CredentialsError, NodeFiles, Say
from edgeai.cli.doctor.facts import CONTROLLER
from edgeai.cli.doctor.mounts import CA
from edgeai.kube.client import KubeClient
from edgeai.kube.errors import AlreadyExists, NotFound
from globalmanager.kinds.training.edge_placement import is_edge

AUTHORITY: Final = "edgeai-ca"
TLS: Final = "globalmanager-tls"
CLIENT_CA: Final = "globalmanager-client-ca"
TOKENS: Final = "globalmanager-edge-tokens"
LABEL: Final = "edgeai.io/installation"
"""Label of all that this module creates. Its value is the namespace of edgeai."""
FIELD_MANAGER: Final = "edgeai-credentials"
_TOKENS_KEY: Final = "tokens"


class Credentials:
    """Those of edgeai in one namespace."""

    def __init__(self, client: KubeClient, namespace: str, say: Say, now: datetime) -> None:
        self._client = client
        self._namespace = namespace
        self._say = say
        self._now = now
        self.written: list[str] = []
        """Objects that were created or renewed, as "Secret edgeai-system/globalmanager-tls"."""

    async def ensure_namespace(self) -> None:
        if await self._find(NAMESPACES, self._namespace) is None:
            await self._client.create(NAMESPACES, {"metadata": {"name": self._namespace}})
            self._say(f"created namespace {self._namespace}")

    async def ensure_edge_port(self, host: str) -> None:
        """Create the certificate of the edge port with its CA, or renew it.

        Args: host: a name that the certificate must have; "": the one that edge nodes are told
        Raises: CredentialsError
        """
        host = host or await self._host()
        tls = await self._find(SECRETS, TLS)
        problem = "" if tls is None else problem_of(_text(tls, "tls.crt"), host, self._now)
        if tls is not None and problem and not self._is_ours(tls):
            name = f"Secret {self._namespace}/{TLS}"
            self._say(f"warning: the certificate in {name} {problem}; replace it")
        elif tls is None or problem:
            if problem:
                self._say(f"the certificate of the edge port {problem}")
            pair = self._issued(await self._authority(), host)
            await self._write(tls, SECRETS, TLS, _texts(pair))
        else:
            self._say(f"the certificate of the edge port is good for {host}")
            if await self._find(CONFIG_MAPS, CA) is None and await self._find(SECRETS, AUTHORITY):
                await self._authority()

    async def write_certificates(self, directory: Path) -> None:
        """A certificate for each edge node, of the CA that the GlobalManager trusts.

        Raises: CredentialsError
        """
        present = await self._find(CONFIG_MAPS, CLIENT_CA)
        if present is not None and not self._is_ours(present):
            raise CredentialsError(
                f"ConfigMap {self._namespace}/{CLIENT_CA} is not of edgeai credentials: the nodes' "
                "certificates come from the CA that it names; leave --certificates out"
            )
        authority = await self._authority()
        if present is None:
            await self._write(None, CONFIG_MAPS, CLIENT_CA, {"ca.crt": authority.certificate})
        files = NodeFiles(directory, self._say)
        for node in await self._edge_nodes():
            files.certificate(authority, node, self._now)

    async def write_tokens(self, directory: Path) -> None:
        """A token for each edge node without one. Only the node's file has the token itself.

        Raises: CredentialsError
        """
        present = await self._find(SECRETS, TOKENS)
        if present is not None and not self._is_ours(present):
            raise CredentialsError(
                f"Secret {self._namespace}/{TOKENS} is not of edgeai credentials: add the nodes to "
                "it as in docs/identity.md; leave --tokens out"
            )
        files = NodeFiles(directory, self._say)
        lines = [] if present is None else _text(present, _TOKENS_KEY).splitlines()
        known = {line.partition(" ")[0] for line in lines}
        new = [node for node in await self._edge_nodes() if node not in known]
        for node in new:
            lines.append(f"{node} {hashlib.sha256(files.token(node).encode()).hexdigest()}")
        if present is None or new:
            await self._write(present, SECRETS, TOKENS, {_TOKENS_KEY: "\n".join(lines)})

    async def _host(self) -> str:
        config_map = await self._find(CONFIG_MAPS, CONTROLLER)
        url = ((config_map or {}).get("data") or {}).get("globalManager", "")
        return urlsplit(url).hostname or f"globalmanager.{self._namespace}.svc"

    async def _edge_nodes(self) -> list[str]:
        nodes = (await self._client.list(NODES)).items
        return [node["metadata"]["name"] for node in nodes if is_edge(node)]

    async def _authority(self) -> Pair:
        """The authority that edge nodes trust; a new one only where they trust none yet."""
        stored = await self._find(SECRETS, AUTHORITY)
        trusted = await self._find(CONFIG_MAPS, CA)
        if stored is not None:
            authority = Pair(_text(stored, "tls.crt"), _text(stored, "tls.key"))
        elif trusted is not None:
            raise CredentialsError(
                f"ConfigMap {self._namespace}/{CA} is there, and the key of this CA is not: create "
                f"Secret {self._namespace}/{TLS} with a certificate that it signed, or delete the "
                "ConfigMap, so that both are created"
            )
        else:
            authority = new_authority(self._now)
            await self._write(None, SECRETS, AUTHORITY, _texts(authority))
        if trusted is None:  # also after a kill between the two
            await self._write(None, CONFIG_MAPS, CA, {"ca.crt": authority.certificate})
        return authority

    def _issued(self, authority: Pair, host: str) -> Pair:
        try:
            return issue_server(authority, host, self._now)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise CredentialsError(
                f"Secret {self._namespace}/{AUTHORITY} is no CA that can sign ({error}): put its "
                "certificate into tls.crt and its key, without a password, into tls.key"
            ) from error

    async def _find(self, type_: ResourceType, name: str) -> Object | None:
        namespace = self._namespace if type_.namespaced else ""
        try:
            return await self._client.get(ObjectRef(type_, namespace, name))
        except NotFound:
            return None

    def _is_ours(self, object_: Object) -> bool:
        return label_of(object_, LABEL) == self._namespace

    async def _write(
        self, present: Object | None, type_: ResourceType, name: str, texts: dict[str, str]
    ) -> None:
        """Raises: CredentialsError when somebody else has created such an object meanwhile"""
        metadata = {"name": name, "namespace": self._namespace, "labels": {LABEL: self._namespace}}
        wanted: Object = {"metadata": metadata}
        if type_ is SECRETS:
            wanted["type"] = "kubernetes.io/tls" if "tls.key" in texts else "Opaque"
            texts = {key: base64.b64encode(text.encode()).decode() for key, text in texts.items()}
        wanted["data"] = texts
        name = f"{type_.kind} {self._namespace}/{name}"
        try:
            if present is None:
                await self._client.create(type_, wanted)
            else:
                await self._client.apply(type_, wanted, manager=FIELD_MANAGER, is_forced=True)
        except AlreadyExists as error:
            raise CredentialsError(
                f"{name} was created by somebody else meanwhile; type it again"
            ) from error
        self.written.append(name)
        self._say(f"{'created' if present is None else 'renewed'} {name}")


def _texts(pair: Pair) -> dict[str, str]:
    return {"tls.crt": pair.certificate, "tls.key": pair.key}


def _text(secret: Object, key: str) -> str:
    """Raises: CredentialsError"""
    try:
        return base64.b64decode((secret.get("data") or {})[key], validate=True).decode()
    except (KeyError, ValueError) as error:
        metadata = secret["metadata"]
        raise CredentialsError(
            f"Secret {metadata['namespace']}/{metadata['name']} has no {key} that can be read"
        ) from error
