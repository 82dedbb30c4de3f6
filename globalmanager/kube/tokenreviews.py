"""Asks the Kubernetes API whose token a node presented: TokenReviews, and the pods of tokens.

The edge's authenticator uses this module as its port Cluster. `app` connects the two. Every failure
of the API becomes Unavailable, because only an answer of the API may reject a node. This module
stores nothing and logs nothing.
"""

from typing import Any, Final

from common.errors import Unavailable
from globalmanager.contract import PODS, Object, ObjectRef, ResourceType
from globalmanager.kube.client import KubeClient
from globalmanager.kube.errors import ApiError, NotFound

TOKEN_REVIEWS: Final = ResourceType(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False
)


class TokenReviews:
    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def review_token(self, token: str, audience: str) -> Object:
        """The status of a TokenReview. Raises: Unavailable"""
        review = {"metadata": {}, "spec": {"token": token, "audiences": [audience]}}
        try:
            answer = await self._client.create(TOKEN_REVIEWS, review)
        except Unavailable:
            raise
        except ApiError as error:  # a missing right is also not the node's fault
            raise Unavailable(str(error)) from error
        status: Any = answer.get("status")
        return status if isinstance(status, dict) else {}

    async def find_pod(self, namespace: str, name: str) -> Object | None:
        """The pod, or None when the pod does not exist. Raises: Unavailable"""
        try:
            return await self._client.get(ObjectRef(PODS, namespace, name))
        except NotFound:
            return None
        except Unavailable:
            raise
        except ApiError as error:
            raise Unavailable(str(error)) from error
