"""spec.transport: which variables tell an edge worker its way to the cloud."""

from typing import Any

import pytest

from edgeai.api.specs import InvalidSpec
from edgeai.api.workers import Transport
from globalmanager.contract import WorkerSettings
from globalmanager.kinds.edge.jointinferenceservice import spec as joint_inference
from globalmanager.kinds.edge.transport import environment
from tests.globalmanager.kinds.edge.samples import joint_inference_spec

SETTINGS = WorkerSettings(worker_api_port=9100)


def values(transport: Transport, *beside: str) -> dict[str, Any]:
    told = environment(transport, SETTINGS, beside=beside)
    return {item["name"]: item["value"] for item in told}


def test_auto_adds_nothing_so_that_no_worker_starts_anew_with_an_upgrade() -> None:
    assert values(Transport.AUTO) == {}


def test_direct_is_told() -> None:
    assert values(Transport.DIRECT) == {"TRANSPORT": "direct"}


def test_relay_names_the_proxy_in_capitals_and_not() -> None:
    proxy = "http://$(WORKER_NAME):$(WORKER_SECRET)@$(HOST_IP):9100"
    here = "localhost,127.0.0.1,::1,$(HOST_IP)"
    assert values(Transport.RELAY) == {
        "TRANSPORT": "relay",
        "HTTP_PROXY": proxy,
        "http_proxy": proxy,
        "NO_PROXY": here,
        "no_proxy": here,
    }


def test_a_bucket_is_reached_beside_the_proxy() -> None:
    told = values(Transport.RELAY, "https://minio.site:9000", "")
    assert told["NO_PROXY"].endswith(",$(HOST_IP),minio.site")


def test_another_word_is_refused_by_its_field() -> None:
    object_ = {
        "metadata": {"name": "a", "namespace": "b"},
        "spec": {**joint_inference_spec(), "transport": "pigeon"},
    }
    with pytest.raises(InvalidSpec, match=r"transport"):
        joint_inference.read(object_)
