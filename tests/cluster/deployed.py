"""What a rendering of deploy/ installs, as the programs in its pods see it."""

import re
from pathlib import Path
from typing import Any, Final, NamedTuple

import globalmanager.settings
import localcontroller.settings
from common.settings import load
from edgeai.cli.api import Object
from globalmanager.edge.door.configuration import service_account, tls_files
from globalmanager.edge.identity.service_accounts import ServiceAccount
from globalmanager.manifests.rbac import ACCOUNT, NAMESPACE, groups

EDGE: Final = "edge0"
LOCAL_CONTROLLER: Final = "localcontroller"
DAEMON_SET: Final = "DaemonSet"
FIELDS: Final = {
    "spec.nodeName": EDGE,
    "status.hostIP": "192.0.2.1",
    "metadata.name": "globalmanager-0",
    "metadata.namespace": NAMESPACE,
}
_REFERENCE: Final = re.compile(r"\$\((\w+)\)")


class DeployedObjects(NamedTuple):
    """What one rendering installs."""

    documents: dict[tuple[str, str], Object]
    """(kind, name) -> the object."""

    @classmethod
    def of(cls, documents: list[Object]) -> "DeployedObjects":
        return cls({(each["kind"], each["metadata"]["name"]): each for each in documents})

    def groups(self) -> set[str]:
        """API groups with jobs that the GlobalManager may read."""
        roles = (each for (kind, _), each in self.documents.items() if kind == "ClusterRole")
        granted = (rule.get("apiGroups", ()) for role in roles for rule in role["rules"])
        return {group for each in granted for group in each} & set(groups())

    def cloud(self) -> globalmanager.settings.Settings:
        flags, env = self._started("Deployment", ACCOUNT)
        settings = load(globalmanager.settings.Settings, prog=ACCOUNT, argv=flags, env=env)
        assert tls_files(settings) is not None
        account = service_account(settings.edge_service_account)
        assert account == ServiceAccount(NAMESPACE, LOCAL_CONTROLLER)
        return settings

    def edge(self) -> localcontroller.settings.Settings:
        flags, env = self._started(DAEMON_SET, LOCAL_CONTROLLER)
        settings = load(localcontroller.settings.Settings, prog="lc", argv=flags, env=env)
        localcontroller.settings.check(settings)
        assert (settings.node_name, settings.worker_address) == (EDGE, "192.0.2.1:9100")
        return settings

    def _started(self, kind: str, name: str) -> tuple[list[str], dict[str, str]]:
        """Flags and environment of its one container; the paths in them are mounted."""
        (container,) = self.documents[kind, name]["spec"]["template"]["spec"]["containers"]
        env: dict[str, str] = {}
        for each in container["env"]:  # a value may use those before it
            env[each["name"]] = _expanded(self._value(each), env)
        flags = [_expanded(flag, env) for flag in container["args"]]
        mounts = tuple(each["mountPath"] for each in container["volumeMounts"])
        values = [flag.partition("=")[2] for flag in flags] + list(env.values())
        paths = [value for value in values if value.startswith("/")]
        assert paths
        parents = {str(parent) for mount in mounts for parent in Path(mount).parents}
        assert all(path.startswith(mounts) or path in parents for path in paths)
        assert len(set(mounts)) == len(mounts)
        return flags, {key: value for key, value in env.items() if key.startswith("EDGEAI_")}

    def _value(self, variable: dict[str, Any]) -> str:
        if "value" in variable:
            return str(variable["value"])
        source = variable["valueFrom"]
        if "fieldRef" in source:
            return FIELDS[source["fieldRef"]["fieldPath"]]
        key = source["configMapKeyRef"]
        return str(self.documents["ConfigMap", key["name"]]["data"][key["key"]])


def _expanded(text: str, env: dict[str, str]) -> str:
    """As the kubelet does. A reference to an unknown variable stays, which no setting wants."""
    expanded = _REFERENCE.sub(lambda match: env.get(match[1], match[0]), text)
    assert "$(" not in expanded
    return expanded
