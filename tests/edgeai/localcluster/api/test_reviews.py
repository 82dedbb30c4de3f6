"""Who shows the token of the local cluster, and what that user may do."""

import pytest

from tests.edgeai.localcluster.conftest import TOKEN, Client

TOKENS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


async def test_the_token_is_that_of_an_administrator(client: Client) -> None:
    answer = await client("POST", TOKENS, {"metadata": {}, "spec": {"token": TOKEN}})
    assert answer.status == 201
    assert answer.body["status"]["authenticated"] is True
    assert answer.body["status"]["user"]["username"] == "local-admin"


@pytest.mark.parametrize("token", ["", "wrong", f"{TOKEN}x", 7])
async def test_every_other_token_is_nobodys(client: Client, token: object) -> None:
    answer = await client("POST", TOKENS, {"spec": {"token": token}})
    assert (answer.status, answer.body["status"].get("authenticated")) == (201, None)


async def test_there_are_no_rules_of_rights(client: Client) -> None:
    answer = await client("POST", ACCESS, {"spec": {"user": "anybody"}})
    assert (answer.status, answer.body["status"]["allowed"]) == (201, True)


@pytest.mark.parametrize("body", [{}, {"spec": None}, {"spec": "x"}, [], "x"])
async def test_a_review_of_nothing_is_refused(client: Client, body: object) -> None:
    answer = await client("POST", TOKENS, body)
    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")


async def test_without_the_token_nobody_is_reviewed(client: Client) -> None:
    answer = await client("POST", TOKENS, {"spec": {"token": TOKEN}}, Authorization="")
    assert answer.status == 401
