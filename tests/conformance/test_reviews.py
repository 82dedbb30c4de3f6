"""TokenReview: who shows a token."""

from tests.conformance.space import Space

TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"


def test_a_false_token_is_nobodys(space: Space) -> None:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview"}
    answer = space.client("POST", TOKENS, {**review, "spec": {"token": "no.such.token"}})
    assert answer.status == 201
    assert not answer.ok()["status"].get("authenticated")
    assert answer.ok()["spec"]["token"] == "no.such.token"
