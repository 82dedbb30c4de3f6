"""TokenReview and SubjectAccessReview: the cluster has one token, and no rules of rights (RBAC).

A review is answered and never stored, as in Kubernetes.
"""

from collections.abc import Callable
from typing import Final

from edgeai.localcluster.objects.errors import BadRequest
from edgeai.localcluster.objects.resources import Object

USERNAME: Final = "local-admin"
GROUPS: Final = ("system:masters", "system:authenticated")

IsToken = Callable[[str], bool]


def answer(path: str, review: object, is_token: IsToken) -> Object:
    """The review with its status. Args: path: one of PATHS. Raises: BadRequest"""
    spec = review.get("spec") if isinstance(review, dict) else None
    if not isinstance(review, dict) or not isinstance(spec, dict):
        raise BadRequest("spec: required, and must be an object")
    return {**review, "status": PATHS[path](spec, is_token)}


def _token(spec: Object, is_token: IsToken) -> Object:
    if not is_token(str(spec.get("token", ""))):
        return {"user": {}, "error": "the token is not that of this cluster"}
    return {"authenticated": True, "user": {"username": USERNAME, "groups": list(GROUPS)}}


def _access(_spec: Object, _is_token: IsToken) -> Object:
    return {"allowed": True, "reason": "the local cluster has no RBAC"}


PATHS: Final = {
    "/apis/authentication.k8s.io/v1/tokenreviews": _token,
    "/apis/authorization.k8s.io/v1/subjectaccessreviews": _access,
}
