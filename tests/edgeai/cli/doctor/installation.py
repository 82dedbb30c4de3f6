"""An installation in good health, as objects of a real API: what the doctor reads, and no more."""

import base64
import contextlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from edgeai.api.resources import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    NODES,
    PODS,
    SECRETS,
    Object,
    ObjectRef,
    ResourceType,
)
from edgeai.cli.credentials.credentials import CLIENT_CA
from edgeai.cli.doctor.facts import CONTROLLER, MANAGER, NAME_LABEL
from edgeai.cli.doctor.mounts import CA
from edgeai.ids import NodeName
from edgeai.kube.errors import NotFound
from edgeai.kube.user import UserClient
from edgeai.times import micro_time
from globalmanager.ha import claims
from globalmanager.ha.claims import Claim
from globalmanager.ha.elector import LEASE_NAME, LEASES, REPLICA_LABEL
from globalmanager.kinds.training.edge_placement import EDGE_LABEL
from tests.support.certificates import Authority

NAMESPACE: Final = "edgeai-system"
NOW: Final = datetime.now(UTC) + timedelta(hours=1)  # a CA that openssl makes begins at once
EDGES: Final = ("edge0", "edge1")
TLS: Final = "globalmanager-tls"
VALID: Final = timedelta(days=60)  # less than LASTS, so that it has begun


class Installation:
    """Args:
    kube: of an API with the definitions, and nothing else
    kubeconfig: of the same
    directory: empty; gets certificates
    """

    def __init__(self, kube: UserClient, kubeconfig: Path, directory: Path) -> None:
        self.kube = kube
        self.kubeconfig = kubeconfig
        self.directory = directory
        self.authority = Authority(directory, days=365)

    async def apply(self) -> None:
        labels = {NAME_LABEL: MANAGER}
        volumes = [
            {"name": "tls", "secret": {"secretName": TLS}},
            {"name": "more", "configMap": {"name": "absent", "optional": True}},
            {"name": "projected", "projected": {"sources": [{"configMap": {"name": CA}}]}},
        ]
        pod_spec = {"containers": [container_of(MANAGER)], "volumes": volumes}
        pod = {"metadata": {"labels": labels}, "spec": pod_spec}
        spec = {"replicas": 2, "selector": {"matchLabels": labels}, "template": pod}
        await self._create(DEPLOYMENTS, MANAGER, MANAGER, spec=spec)
        await self.set_status(DEPLOYMENTS, MANAGER, availableReplicas=2)
        await self.add_pod("globalmanager-a", MANAGER, "cloud0")
        for node in EDGES:
            await self.add_edge(node)
            await self.add_pod(f"localcontroller-{node}", CONTROLLER, node)
        await self.certify(self.authority)
        data = {"ca.crt": self.authority.certificate.read_text()}
        await self._create(CONFIG_MAPS, CA, CA, data=data)
        await self._create(LEASES, LEASE_NAME, "", spec=lease("globalmanager-a_1"))
        await self._create(LEASES, f"{LEASE_NAME}-1", "", spec=lease("globalmanager-a_1"))
        await self._create(CONFIG_MAPS, f"{LEASE_NAME}-1", "", data={"claims": claims_of(*EDGES)})

    async def add_edge(self, name: str) -> None:
        metadata = {"name": name, "labels": {EDGE_LABEL: ""}}
        await self.kube.create(NODES, {"metadata": metadata})

    async def add_pod(self, name: str, part: str, node: str) -> None:
        spec = {"nodeName": node, "containers": [container_of(part)]}
        await self._create(PODS, name, part, spec=spec)

    async def certify(self, authority: Authority, lasts: timedelta = VALID) -> None:
        """Give the edge port another certificate."""
        pair = authority.issue(f"tls-{lasts.days}", usage="serverAuth", lasts=lasts)
        data = {
            "tls.crt": base64.b64encode(pair.certificate.read_bytes()).decode(),
            "tls.key": base64.b64encode(pair.key.read_bytes()).decode(),
        }
        with contextlib.suppress(NotFound):
            await self.kube.delete(self.ref(SECRETS, TLS))
        await self._create(SECRETS, TLS, TLS, type="kubernetes.io/tls", data=data)

    async def trust(self, *authorities: str) -> None:
        """Let nodes prove who they are by certificates of these CAs, in PEM."""
        data = {"ca.crt": "".join(authorities)}
        await self._create(CONFIG_MAPS, CLIENT_CA, CLIENT_CA, data=data)
        volume = {"name": "clients", "configMap": {"name": CLIENT_CA}}
        found = await self.kube.get(self.ref(DEPLOYMENTS, MANAGER))
        volumes = [*found["spec"]["template"]["spec"]["volumes"], volume]
        patch = {"spec": {"template": {"spec": {"volumes": volumes}}}}
        await self.change(DEPLOYMENTS, MANAGER, patch)

    async def show_certificates(self, **lasts: timedelta) -> None:
        """Let nodes have sessions with certificates that last so long, by node."""
        text = claims_of(*EDGES, **{node: NOW + each for node, each in lasts.items()})
        await self.change(CONFIG_MAPS, f"{LEASE_NAME}-1", {"data": {"claims": text}})

    async def renew(self) -> None:
        """Renew the Leases at the present time, for a command that has this machine's clock."""
        for name in (LEASE_NAME, f"{LEASE_NAME}-1"):
            spec = {"renewTime": micro_time(datetime.now(UTC))}
            await self.change(LEASES, name, {"spec": spec})

    async def _create(self, type_: ResourceType, name: str, part: str, **fields: Any) -> None:
        labels = {NAME_LABEL: part} if part else {REPLICA_LABEL: name}
        metadata = {"name": name, "namespace": NAMESPACE, "labels": labels}
        await self.kube.create(type_, {"metadata": metadata, **fields})

    async def set_status(self, type_: ResourceType, name: str, **status: Any) -> None:
        await self.kube.merge_patch(self.ref(type_, name), {"status": status}, subresource="status")

    async def change(self, type_: ResourceType, name: str, patch: Object) -> None:
        await self.kube.merge_patch(self.ref(type_, name), patch)

    async def delete(self, type_: ResourceType, name: str) -> None:
        # no kubelet is here that would end a pod
        await self.kube.delete(self.ref(type_, name), grace_period_s=0 if type_ is PODS else None)

    def ref(self, type_: ResourceType, name: str) -> ObjectRef:
        return ObjectRef(type_, NAMESPACE if type_.namespaced else "", name)


def container_of(part: str) -> Object:
    return {"name": part, "image": "edgeai/any"}


def lease(holder: str, *, renewed_ago_s: float = 1.0) -> Object:
    renewed = micro_time(NOW - timedelta(seconds=renewed_ago_s))
    return {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed}


def claims_of(*nodes: str, **ends: datetime) -> str:
    """Args: ends: of the certificates, by node"""
    days = {node: claims.day_of(end.timestamp()) for node, end in ends.items()}
    made = {NodeName(each): Claim(1, 0, "a", 0, days.get(each, 0)) for each in nodes}
    return claims.encode(made)
