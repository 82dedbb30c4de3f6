"""Says which tests need isolated nodes, which not every machine lets this user make."""

import pytest

from edgeai.localcluster.errors import ClusterError
from edgeai.localcluster.network.isolation import NodeNetwork


def _problem() -> str:
    try:
        NodeNetwork().close()
    except ClusterError as error:
        return str(error)
    return ""


PROBLEM = _problem()
needs_isolation = pytest.mark.skipif(bool(PROBLEM), reason=PROBLEM)
