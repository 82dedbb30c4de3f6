"""The access to the API for pods with a ServiceAccount: environment variables and mounted files.

The local cluster checks no rights, so every account has the token of the cluster. A pod without a
ServiceAccount of its own gets nothing. The API has no TLS, so there is no ca.crt.

Source: the ServiceAccount admission of Kubernetes and the variables of the Service `kubernetes`.
"""

from typing import Final

import msgspec

from edgeai.localcluster.kubelet.launch import Lookup
from edgeai.localcluster.objects.resources import SERVICEACCOUNTS, Object

DIRECTORY: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_VOLUME: Final = "kube-api-access"
_DEFAULT: Final = "default"


class ApiAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Address and token of the API. The default stands for a cluster without an API server."""

    host: str = ""
    port: int = 0
    token: str = ""

    @property
    def env(self) -> dict[str, str]:
        return {
            "KUBERNETES_SERVICE_HOST": self.host,
            "KUBERNETES_SERVICE_PORT": str(self.port),
        }


def has_account(pod: Object, lookup: Lookup) -> bool:
    """Whether the pod gets the token of a ServiceAccount of its own."""
    name = str(pod["spec"].get("serviceAccountName") or _DEFAULT)
    mount = pod["spec"].get("automountServiceAccountToken")
    if mount is None:
        account = lookup(SERVICEACCOUNTS, name) or {}
        mount = account.get("automountServiceAccountToken", True)
    return name != _DEFAULT and bool(mount)


def with_token(pod: Object) -> Object:
    """The pod with a volume of the token, in all containers that mount nothing there."""
    spec = pod["spec"]
    field = {"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}
    sources = [{"serviceAccountToken": {"path": "token"}}, {"downwardAPI": {"items": [field]}}]
    volume = {"name": _VOLUME, "projected": {"sources": sources}}
    fields = {"volumes": [*(spec.get("volumes") or []), volume]}
    for kind in ("initContainers", "containers"):
        fields[kind] = []
        for container in spec.get(kind) or []:
            mounts = container.get("volumeMounts") or []
            if all(mount.get("mountPath") != DIRECTORY for mount in mounts):
                mounts = [*mounts, {"name": _VOLUME, "mountPath": DIRECTORY}]
            fields[kind].append({**container, "volumeMounts": mounts})
    return {**pod, "spec": {**spec, **fields}}
