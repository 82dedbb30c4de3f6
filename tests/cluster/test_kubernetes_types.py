"""The types of Kubernetes in our definitions are those of the newest Kubernetes."""

import pytest

from edgeai.api.schemas import KUBERNETES
from tests.cluster import binaries, kubernetes_types
from tests.support.client import Client


def test_the_types_are_those_that_the_api_server_describes(client: Client) -> None:
    """When this fails: python -m tests.cluster.kubernetes_types"""
    if binaries.tested_minor() != binaries.minors()[-1]:
        pytest.skip("the types come from the newest Kubernetes")
    assert KUBERNETES.read_text() == kubernetes_types.text(client)
