"""The federated digits: how they are divided, what comes of it, and the workers as processes."""

import json
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from edgeai.demo import digits, digits_source
from edgeai.demo.federated_learning import compare, data, manifests
from edgeai.demo.federated_learning.data import Part
from edgeai.demo.federated_learning.files import EDGES, held_out_of, train_file
from edgeai.demo.federated_learning.model import Perceptron
from tests.edgeai.demo.scripts import CHECKOUT, started
from tests.edgeai.worker.peers import LOOPBACK
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S

SCRIPTS = CHECKOUT / "edgeai" / "demo" / "federated_learning"
SECRET = {"JOB_SECRET": "s"}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("digits") / "made"
    data.write(directory)
    return directory


@pytest.fixture(scope="module")
def parts() -> dict[str, Part]:
    return data.divide(digits_source.load())


def test_every_image_is_in_exactly_one_place(parts: dict[str, Part]) -> None:
    everywhere = [image.tobytes() for part in parts.values() for d in part for image in d.images]
    assert sorted(everywhere) == sorted(i.tobytes() for i in digits_source.load().images)


def test_of_each_digit_almost_all_images_are_on_one_edge(parts: dict[str, Part]) -> None:
    for digit, home in enumerate(data.HOME):
        counts = [int((part.train.labels == digit).sum()) for part in parts.values()]
        assert np.argmax(counts) == home
        assert 0 < sum(counts) - max(counts) < 0.1 * sum(counts)


def test_files_hold_what_was_divided(files: Path, parts: dict[str, Part]) -> None:
    for edge in EDGES:
        file = train_file(files, edge)
        for path, part in zip((file, held_out_of(file)), parts[edge], strict=True):
            loaded = digits.load(path)
            np.testing.assert_array_equal(loaded.images, part.images)
            np.testing.assert_array_equal(loaded.labels, part.labels)


def test_an_edge_alone_knows_its_own_digits_only(parts: dict[str, Part], tmp_path: Path) -> None:
    untrained = tmp_path / "untrained.npz"
    Perceptron().save(str(untrained))
    figures = compare.compare(parts, untrained)
    assert max(figures.local_accuracy) < 0.7
    assert figures.centralised_accuracy > 0.94
    assert figures.federated_accuracy < 0.3, "measures the model that it is given"


def test_a_saved_model_comes_back_and_leaves_no_other_file(tmp_path: Path) -> None:
    trained, loaded = Perceptron(), Perceptron()
    trained.train(train_data=digits_source.load())
    trained.save(str(tmp_path / "model.npz"))
    loaded.load(str(tmp_path / "model.npz"))
    for name, array in trained.get_weights().items():
        np.testing.assert_array_equal(loaded.get_weights()[name], array)
    assert [path.name for path in tmp_path.iterdir()] == ["model.npz"]


def test_manifests_are_filled_in() -> None:
    placement = manifests.Placement(files=Path("/srv/digits"), edge_1="kitchen", rounds=7)
    objects = manifests.objects(placement)
    assert [item["kind"] for item in objects] == ["Model", *["Dataset"] * 3, "FederatedLearningJob"]
    assert "$" not in json.dumps(objects)
    assert [d["spec"]["nodeName"] for d in objects[1:4]] == ["edge0", "kitchen", "edge2"]
    spec = objects[-1]["spec"]
    (aggregator,) = spec["aggregationWorker"]["template"]["spec"]["containers"]
    assert {"name": "ROUNDS", "value": "7"} in aggregator["env"]
    trainers = [w["template"]["spec"]["containers"][0] for w in spec["trainingWorkers"]]
    assert [w["dataset"]["name"] for w in spec["trainingWorkers"]] == [
        f"digits-{n}" for n in (0, 1, 2)
    ]
    for container in (aggregator, *trainers):
        module = container["command"][-1].rpartition(".")[2]
        assert (SCRIPTS / f"{module}.py").exists()


def test_the_workers_learn_together(files: Path, parts: dict[str, Part]) -> None:
    port, result = str(free_port()), files / "model" / "digits.npz"
    aggregator = SECRET | {
        "AGG_BIND_PORT": port,
        "AGG_BIND_IP": LOOPBACK,
        "PARTICIPANTS_COUNT": "3",
        "FEDERATION_STATE_DIR": str(files / "state"),
        "MODEL_URL": str(result),
    }
    with ExitStack() as stack:
        workers = [stack.enter_context(started(SCRIPTS / "aggregator.py", aggregator))]
        for edge in EDGES:
            trainer = SECRET | {
                "AGG_IP": LOOPBACK,
                "AGG_PORT": port,
                "WORKER_NAME": edge,
                "TRAIN_DATASET_URL": str(train_file(files, edge)),
            }
            workers.append(stack.enter_context(started(SCRIPTS / "trainer.py", trainer)))
        for worker in workers:
            assert worker.wait(PATIENCE_S * 4) == 0, worker.stderr and worker.stderr.read()
    figures = compare.compare(parts, result)
    assert figures.federated_accuracy >= max(figures.local_accuracy) + 0.10
    assert figures.federated_accuracy >= figures.centralised_accuracy - 0.03


@pytest.mark.parametrize("module", ["aggregator", "trainer"])
def test_workers_need_no_scikit_learn(module: str) -> None:
    code = (
        f"import sys, edgeai.demo.federated_learning.{module}; sys.exit('sklearn' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=CHECKOUT).returncode == 0


@pytest.mark.parametrize("script", ["aggregator.py", "trainer.py"])
def test_a_stopped_worker_says_that_it_is_not_done(files: Path, script: str) -> None:
    variables = SECRET | {
        "AGG_BIND_PORT": "0",
        "AGG_BIND_IP": LOOPBACK,
        "AGG_IP": LOOPBACK,
        "AGG_PORT": str(free_port()),
        "FEDERATION_STATE_DIR": str(files / "stopped"),
        "WORKER_NAME": "w",
        "TRAIN_DATASET_URL": str(train_file(files, "edge0")),
    }
    with started(SCRIPTS / script, variables) as worker:
        assert worker.stderr is not None
        next(line for line in worker.stderr if "aggregator" in line)  # it is at work
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE_S) == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("script", "variables", "says"),
    [
        ("trainer.py", {}, "TRAIN_DATASET_URL"),
        ("trainer.py", {"TRAIN_DATASET_URL": "x"}, "AGG_IP"),
        ("trainer.py", {"TRAIN_DATASET_URL": "x", "TRAINING_SECONDS": "-1"}, "TRAINING_SECONDS"),
        ("aggregator.py", {"ROUNDS": "0"}, "ROUNDS"),
        ("aggregator.py", {"PARTICIPANTS_COUNT": "none"}, "PARTICIPANTS_COUNT"),
        ("aggregator.py", {}, "JOB_SECRET"),
    ],
)
def test_wrong_variable_is_named_and_the_exit_code_is_2(
    script: str, variables: dict[str, str], says: str
) -> None:
    with started(SCRIPTS / script, variables) as process:
        _, errors = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 2
        assert says in errors.splitlines()[-1]
