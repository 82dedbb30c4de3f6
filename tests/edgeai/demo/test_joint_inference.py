"""The digits example: its figures, its manifests, and its workers as real processes."""

import json
import signal
import subprocess
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeai.demo import digits
from edgeai.demo.joint_inference import manifests, train
from tests.edgeai.demo.scripts import CHECKOUT, started
from tests.edgeai.worker.peers import LOOPBACK, LocalController
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S

SCRIPTS = CHECKOUT / "edgeai" / "demo" / "joint_inference"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> train.Files:
    return train.train(tmp_path_factory.mktemp("digits") / "made")


def test_joint_inference_is_nearly_as_good_as_the_cloud_for_a_third_of_the_uploads(
    files: train.Files,
) -> None:
    figures = train.measure(files)
    assert figures.samples >= 500
    assert 0.85 <= figures.edge_accuracy <= 0.93
    assert figures.cloud_accuracy >= 0.98
    assert figures.joint_accuracy >= figures.edge_accuracy + 0.03
    assert figures.joint_accuracy >= figures.cloud_accuracy - 0.01
    assert 0.2 <= figures.upload_ratio <= 0.35


def test_training_twice_gives_the_same_models(files: train.Files, tmp_path: Path) -> None:
    again = train.train(tmp_path)
    for made, remade in (
        (files.edge_model, again.edge_model),
        (files.cloud_model, again.cloud_model),
    ):
        with np.load(made) as first, np.load(remade) as second:
            for name in first:
                np.testing.assert_array_equal(first[name], second[name])
    assert files.dataset.read_bytes() == again.dataset.read_bytes()


def test_no_held_out_image_was_trained_with() -> None:
    known, held_out = train.split()
    assert len(known.labels) + len(held_out.labels) == 1797
    seen = {image.tobytes() for image in known.images}
    assert sum(image.tobytes() in seen for image in held_out.images) == 0


def test_dataset_has_one_row_per_image_and_comes_back(files: train.Files) -> None:
    _, held_out = train.split()
    loaded = digits.load(files.dataset)
    assert len(files.dataset.read_text().splitlines()) == 1 + len(held_out.labels)
    np.testing.assert_array_equal(loaded.images, held_out.images)
    np.testing.assert_array_equal(loaded.labels, held_out.labels)


def test_manifests_are_filled_in() -> None:
    objects = manifests.objects(
        manifests.Placement(
            files=Path("/srv/digits"),
            python=Path("/usr/bin/python3"),
            checkout=Path("/opt/edgeai"),
            edge_node="edge0",
            cloud_node="cloud0",
            cloud_latency_ms=20,
        )
    )
    kinds = [item["kind"] for item in objects]
    assert kinds == ["Model", "Model", "Dataset", "JointInferenceService"]
    assert "$" not in json.dumps(objects)
    spec = objects[-1]["spec"]
    mining = spec["edgeWorker"]["hardExampleMining"]
    assert mining["name"] == "CrossEntropy"
    assert mining["parameters"][0]["value"] == train.THRESHOLD_CROSS_ENTROPY
    assert spec["edgeWorker"]["template"]["spec"]["nodeName"] == "edge0"
    for worker in ("edgeWorker", "cloudWorker"):
        (container,) = spec[worker]["template"]["spec"]["containers"]
        module = container["command"][-1].rpartition(".")[2]
        assert (SCRIPTS / f"{module}.py").exists()
        assert {"name": "CLOUD_LATENCY_MS", "value": "20"} in container["env"]


def worker(
    script: str, variables: Mapping[str, str]
) -> AbstractContextManager[subprocess.Popen[str]]:
    return started(SCRIPTS / script, variables)


def edge_variables(files: train.Files, cloud_port: int) -> dict[str, str]:
    return {
        "BIG_MODEL_IP": LOOPBACK,
        "BIG_MODEL_PORT": str(cloud_port),
        "HEM_NAME": "CrossEntropy",
        "HEM_PARAMETERS": '[{"key": "threshold_cross_entropy", "value": "0.7"}]',
        "MODEL_URL": str(files.edge_model),
        "DATASET_PATH": str(files.dataset),
    }


def events_until_serving(process: subprocess.Popen[str]) -> list[dict[str, Any]]:
    assert process.stdout is not None
    events: list[dict[str, Any]] = []
    for line in process.stdout:
        events.append(json.loads(line))
        if events[-1]["event"] == "serving":
            return events
    raise AssertionError((events, process.stderr and process.stderr.read()))


def test_workers_report_the_joint_pass_alone_and_stay_until_sigterm(files: train.Files) -> None:
    port, distance_ms = free_port(), 4  # more than the noise of a busy machine
    cloud_variables = {
        "BIG_MODEL_BIND_PORT": str(port),
        "BIG_MODEL_BIND_IP": LOOPBACK,
        "MODEL_URL": str(files.cloud_model),
        "CLOUD_LATENCY_MS": str(distance_ms),
    }
    with LocalController() as controller, worker("cloud_worker.py", cloud_variables) as cloud:
        variables = edge_variables(files, port) | {
            "LC_SERVER": controller.url(),
            "WORKER_NAME": "digits-edge",
            "WAIT_FOR_CLOUD_SECONDS": "30",
            "CLOUD_LATENCY_MS": str(distance_ms),
        }
        with worker("edge_worker.py", variables) as edge:
            *progress, result, _ = events_until_serving(edge)
            reported = controller.messages[-1]["output"]["taskInfo"]
            edge.send_signal(signal.SIGTERM)
            assert edge.wait(PATIENCE_S) == 0
        cloud.send_signal(signal.SIGTERM)
        assert cloud.wait(PATIENCE_S) == 0
    figures = train.measure(files)
    counts = result["counts"]
    assert {name: reported[name] for name in counts} == counts
    assert counts["seen"] == result["samples"] == progress[-1]["seen"] == figures.samples
    assert counts["fallbacks"] == result["cloud_unanswered"] == 0
    assert result["worker_upload_count"] == counts["uploaded"] == counts["answeredByCloud"]
    assert result["edge_accuracy"] == figures.edge_accuracy
    assert result["joint_accuracy"] == pytest.approx(figures.joint_accuracy, abs=0.002)
    assert result["cloud_accuracy"] == pytest.approx(figures.cloud_accuracy, abs=0.002)
    assert result["upload_ratio"] == pytest.approx(figures.upload_ratio, abs=0.002)
    latency = result["latency_ms"]
    assert latency["edge"]["mean"] < latency["joint"]["mean"] < latency["cloud"]["mean"]
    assert result["simulated_cloud_latency_ms"] == distance_ms


def test_edge_worker_answers_everything_without_a_cloud(files: train.Files) -> None:
    variables = edge_variables(files, free_port()) | {"BATCH_SIZE": "8"}
    with worker("edge_worker.py", variables) as edge:
        result = events_until_serving(edge)[-2]
        edge.send_signal(signal.SIGTERM)
        assert edge.wait(PATIENCE_S) == 0
    figures = train.measure(files)
    assert result["joint_accuracy"] == figures.edge_accuracy
    assert result["cloud_accuracy"] is None
    assert result["counts"]["fallbacks"] == result["counts"]["hard"] > 0
    assert result["worker_upload_count"] == 0


def test_stream_is_paced_and_stops_at_sigterm(files: train.Files) -> None:
    variables = edge_variables(files, free_port()) | {"STREAM_RATE": "50", "STREAM_REPEAT": "99"}
    with LocalController() as controller:
        variables |= {"LC_SERVER": controller.url(), "WORKER_NAME": "w"}
        with worker("edge_worker.py", variables) as edge:
            assert edge.stdout is not None
            seen = [json.loads(edge.stdout.readline())["seen"] for _ in range(5)]
            edge.send_signal(signal.SIGTERM)
            assert edge.wait(PATIENCE_S) == 0
        last = controller.messages[-1]
    assert max(np.diff(seen)) <= 20
    assert seen[-1] <= last["output"]["taskInfo"]["seen"] < 719
    assert last["heartbeatSeconds"] == 0


@pytest.mark.parametrize(
    ("script", "variables", "says"),
    [
        ("edge_worker.py", {}, "DATASET_PATH"),
        ("edge_worker.py", {"DATASET_PATH": "x", "BATCH_SIZE": "0"}, "BATCH_SIZE"),
        ("cloud_worker.py", {"CLOUD_LATENCY_MS": "slow"}, "CLOUD_LATENCY_MS"),
    ],
)
def test_wrong_variable_is_named_and_the_exit_code_is_2(
    script: str, variables: dict[str, str], says: str
) -> None:
    with worker(script, variables) as process:
        assert process.wait(PATIENCE_S) == 2
        assert process.stderr is not None
        assert says in process.stderr.read()
