"""Asks the Kubernetes API whose token a client presented, and what the client may read.

The edge's authenticator and the access control of REST use this module as their port Cluster. `app`
connects them. Every failure of the API becomes Unavailable, because only an answer of the API may
reject a client. This module stores nothing and logs nothing.
"""

from typing import Any, Final

from edgeai.api.resources import Object, ResourceType
from edgeai.errors import Unavailable
from edgeai.kube.client import KubeClient
from edgeai.kube.errors import ApiError

TOKEN_REVIEWS: Final = ResourceType(
    "authentication.k8s.io", "v1", "tokenreviews", "TokenReview", namespaced=False
)

ACCESS_REVIEWS: Final = ResourceType(
    "authorization.k8s.io",
    "v1",
    "subjectaccessreviews",
    "SubjectAccessReview",
    namespaced=False,
)


class TokenReviews:
    def __init__(self, client: KubeClient) -> None:
        self._client = client

    async def review_token(self, token: str, audience: str = "") -> Object:
        """The status of a TokenReview. Raises: Unavailable

        Args: audience: the audience of the token; "" for the Kubernetes API itself
        """
        audiences = {"audiences": [audience]} if audience else {}
        return await self._review(TOKEN_REVIEWS, {"token": token, **audiences})

    async def review_access(self, spec: Object) -> Object:
        """The status of a SubjectAccessReview. Raises: Unavailable"""
        return await self._review(ACCESS_REVIEWS, spec)

    async def _review(self, type_: ResourceType, spec: Object) -> Object:
        try:
            answer = await self._client.create(type_, {"metadata": {}, "spec": spec})
        except Unavailable:
            raise
        except ApiError as error:  # a missing right is also not the client's fault
            raise Unavailable(str(error)) from error
        status: Any = answer.get("status")
        return status if isinstance(status, dict) else {}
