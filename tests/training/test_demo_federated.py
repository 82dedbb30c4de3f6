"""`edgeai demo federated-learning`, as a newcomer runs it, to its end and interrupted."""

import html
import os
import re
from pathlib import Path
from typing import Final

import pytest

from tests.support.isolation import needs_isolation
from tests.system import recording
from tests.system.demos import Demo, command, environ, interrupt, left_of, play

PICTURE: Final = Path(__file__).parents[2] / "docs" / "pictures" / "federated.svg"
PLAYED_S: Final = 12
MAX_FRAMES: Final = 40
IS_RENEWED: Final = "RENEW_SCREENSHOTS" in os.environ


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    return play("federated-learning", tmp_path_factory.mktemp("demo"), "--verbose")


def test_demo_succeeds(demo: Demo) -> None:
    assert demo.process.returncode == 0, demo.process.stdout + demo.process.stderr


def test_federated_learning_is_worth_it(demo: Demo) -> None:
    outcome = demo.outcome
    assert len(outcome["local_accuracy"]) == 3
    assert outcome["federated_accuracy"] >= max(outcome["local_accuracy"]) + 0.10
    assert outcome["federated_accuracy"] >= outcome["centralised_accuracy"] - 0.03


def test_both_faults_were_got_over(demo: Demo) -> None:
    assert demo.outcome["recovered_faults"] == 2
    assert demo.outcome["rounds"] == 40


def test_a_round_moves_the_weights_once_each_way(demo: Demo) -> None:
    once = 2410 * 4  # bytes of the model as float32
    # The first model comes from one of the trainers, and the last one is fetched, too.
    assert 2 * once <= demo.outcome["bytes_per_round"] <= 2 * once * 1.05


@pytest.mark.parametrize(
    "text", ["edge0 alone", "federated", "centralised", "killed in", "cut off", "phase: Succeeded"]
)
def test_demo_shows(demo: Demo, text: str) -> None:
    assert text in demo.process.stdout


@needs_isolation
def test_isolated_edges_learn_the_same(demo: Demo, tmp_path: Path) -> None:
    """They reach the edge port of the GlobalManager, and nothing else."""
    isolated = play("federated-learning", tmp_path, "--isolated-edges")
    assert isolated.process.returncode == 0, isolated.process.stdout + isolated.process.stderr
    assert (isolated.outcome["transports"], demo.outcome["transports"]) == (["relay"], ["direct"])
    for figure in ("rounds", "local_accuracy", "centralised_accuracy", "recovered_faults"):
        assert isolated.outcome[figure] == demo.outcome[figure]
    # A cut lasts a round more or less, so the model and its bytes may differ a little.
    for figure, difference in (("federated_accuracy", 0.01), ("bytes_per_round", 500)):
        expected = pytest.approx(demo.outcome[figure], abs=difference)
        assert isolated.outcome[figure] == expected
    assert left_of(tmp_path) == []


def test_nothing_is_left(demo: Demo) -> None:
    assert left_of(demo.directory) == []


def test_a_recording_shows_a_kill_and_a_cut_link(tmp_path: Path) -> None:
    frames = recording.record(command("federated-learning"), environ(tmp_path), tmp_path)
    frames = recording.thinned(recording.since("applied", frames), MAX_FRAMES)
    texts = [recording.text_of(frame) for frame in frames]
    for words in ("killed in", "cut off in", "mended", "back", "why it is worth it"):
        assert [text for text in texts if words in text], words
    if IS_RENEWED:
        title = "Federated learning: one node is killed, one is cut off, and both come back"
        PICTURE.write_text(recording.svg(frames, title=title, seconds=PLAYED_S))


def test_the_picture_in_the_docs_is_such_a_recording() -> None:
    text = PICTURE.read_text()
    assert re.search(rf"\b{PLAYED_S}(s|000ms)\b", text)
    for words in ("killed in", "cut off", "back"):
        assert words in html.unescape(text)


def test_an_interrupted_demo_leaves_nothing(tmp_path: Path) -> None:
    interrupt("federated-learning", tmp_path, after="applied Model")
