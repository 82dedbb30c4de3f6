"""The warnings of an API server: how they are read, and that each is said once."""

import logging

import pytest

from edgeai.api.resources import PODS, ObjectRef
from edgeai.kube import warnings
from edgeai.kube.client import KubeClient
from edgeai.kube.errors import Invalid
from edgeai.kube.warnings import texts_of
from tests.globalmanager.scripted_api import ScriptedApi

REF = ObjectRef(PODS, "ns", "a")
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "ns"}}

HEADERS = [
    ('299 - "unknown field \\"spec.foo\\""', ['unknown field "spec.foo"']),
    ('299 - "first", 299 - "second, with 299 - a comma"', ["first", "second, with 299 - a comma"]),
    ('299 - "dated" "Wed, 21 Oct 2026 07:28:00 GMT"', ["dated"]),
    ('299 - "a\\\\b"', ["a\\b"]),
    ('110 - "of a cache"', []),
    ('299 - "without an end', []),
    ("", []),
    ('299 - "' + "x" * 5000 + '"', ["x" * 500]),
    ('299 - "\x1b[31mred"', ["[31mred"]),
]


@pytest.mark.parametrize(("header", "texts"), HEADERS)
def test_a_header_is_read(header: str, texts: list[str]) -> None:
    assert list(texts_of([header])) == texts


async def test_each_text_is_logged_once_and_collected_each_time(
    scripted: ScriptedApi, scripted_client: KubeClient, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger=warnings.LOGGER):
        scripted.others = [scripted.json(POD, Warning='299 - "this version goes away"')]
        for _ in range(3):
            with warnings.collected() as texts:
                await scripted_client.get(REF)
            assert texts == ["this version goes away"]
    records = [(record.message, vars(record)["target"]) for record in caplog.records]
    assert records == [("this version goes away", str(REF))]


async def test_a_refusal_may_warn(scripted: ScriptedApi, scripted_client: KubeClient) -> None:
    scripted.others = [scripted.failure(422, "Invalid", "no", Warning='299 - "beside"')]
    with warnings.collected() as texts, pytest.raises(Invalid):
        await scripted_client.get(REF)
    assert texts == ["beside"]
