"""What a cluster asks of an installation by what its API server serves."""

from typing import Final

import msgspec

from edgeai.cli.install.cluster import Cluster
from edgeai.cli.install.errors import InstallError
from edgeai.cli.install.values import Values

COMPONENT: Final = "kubernetes-1.20"
_NEW: Final = "policy/v1"
_OLD: Final = "policy/v1beta1"


async def fitted(cluster: Cluster, values: Values) -> Values:
    """The values, with the component that an old API server needs. Raises: InstallError"""
    serves = cluster.client.serves
    found = fitting(
        values,
        has_new=await cluster.retried(lambda: serves(_NEW)),
        has_old=await cluster.retried(lambda: serves(_OLD)),
    )
    if found != values:
        cluster.say(f"this cluster has {_OLD} and no {_NEW}: component {COMPONENT} is used")
    return found


def fitting(values: Values, *, has_new: bool, has_old: bool) -> Values:
    """
    Args: has_new, has_old: whether the API server serves this version of policy
    Raises: InstallError when what is wanted cannot be applied
    """
    if not (has_new or has_old):
        raise InstallError(
            f"this cluster has neither {_NEW} nor {_OLD}; edgeai needs Kubernetes 1.20"
        )
    if COMPONENT in values.components and not has_old:
        raise InstallError(f"this cluster has no {_OLD}; leave {COMPONENT} out of components")
    if COMPONENT in values.components or has_new:
        return values
    return msgspec.structs.replace(values, components=(*values.components, COMPONENT))
