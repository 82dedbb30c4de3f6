"""Says which tests need isolated nodes, which not every machine lets this user make."""

import pytest

from localcluster.errors import ClusterError
from localcluster.network.isolation import NodeNetwork


def _problem() -> str:
    try:
        NodeNetwork().close()
    except ClusterError as error:
        return str(error)
    return ""


PROBLEM = _problem()
needs_isolation = pytest.mark.skipif(bool(PROBLEM), reason=PROBLEM)
