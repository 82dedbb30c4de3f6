"""Names that several tests of releases need."""

from typing import Final

NAMESPACE: Final = "edgeai-system"
CORE: Final = f"/api/v1/namespaces/{NAMESPACE}"
DEPLOYMENT: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/globalmanager"
EDGE_LABELS: Final = {"node-role.kubernetes.io/edge": ""}
