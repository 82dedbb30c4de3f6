"""TokenReview and SubjectAccessReview: who shows a token, and what that user may do."""

import pytest

from tests.conformance.space import Space

TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


def test_a_false_token_is_nobodys(space: Space) -> None:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
    answer = space.client("POST", TOKENS, {**review, "spec": {"token": "no.such.token"}})
    assert answer.status == 201
    assert not answer.ok()["status"].get("authenticated")
    assert answer.ok()["spec"]["token"] == "no.such.token"


@pytest.mark.parametrize("user", ["nobody", "system:anonymous"])
def test_who_has_no_rights_may_do_nothing(space: Space, user: str) -> None:
    spec = {"user": user, "resourceAttributes": {"verb": "list", "resource": "pods"}}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    answer = space.client("POST", ACCESS, review)
    assert (answer.status, answer.ok()["status"]["allowed"]) == (201, False)
