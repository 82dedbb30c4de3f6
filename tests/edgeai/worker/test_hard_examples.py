"""The file in which a cloud worker keeps hard examples: bounds, kills, several processes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgeai.errors import SettingsError
from edgeai.worker.hard_examples import HardExampleFile, hard_examples
from tests.support.waiting import eventually

BOUND = 10_000
WRITER = """
import sys, pathlib, numpy as np
from edgeai.worker.hard_examples import HardExampleFile
file = HardExampleFile(pathlib.Path(sys.argv[1]), int(sys.argv[2]))
batch = np.full((3, 20), int(sys.argv[3]))
for _ in range(int(sys.argv[4])):
    file.append(batch, batch)
"""


def images(*values: int) -> np.ndarray:
    return np.array([[value] * 20 for value in values], dtype="uint8")


def values(path: Path) -> list[int]:
    return [int(example.sample[0]) for example in hard_examples(path)]


def test_a_sample_comes_back_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "hard.jsonl"
    batch = np.array([[0.1, np.inf], [2.5, 3]], dtype="float32")
    HardExampleFile(path, BOUND).append(batch, [np.array([1, 2]), {"label": np.int64(7)}])
    first, second = hard_examples(path)
    assert first.sample.dtype == np.float32
    assert np.array_equal(first.sample, np.array([0.1, np.nan], dtype="float32"), equal_nan=True)
    assert second.sample.tolist() == [2.5, 3]
    assert (first.answer, second.answer) == ([1, 2], {"label": 7})
    lines = path.read_text().splitlines()
    assert json.loads(lines[1]) == {
        "sample": [2.5, 3.0],
        "dtype": "float32",
        "answer": {"label": 7},
    }


def test_the_older_half_goes_when_the_file_is_full(tmp_path: Path) -> None:
    path = tmp_path / "hard.jsonl"
    file = HardExampleFile(path, BOUND)
    for value in range(200):
        file.append(images(value), images(value))
        assert path.stat().st_size <= BOUND
    left = values(path)
    assert left == list(range(left[0], 200)), "the newest, whole and in order"
    assert len(left) >= 25


def test_a_request_that_is_larger_than_the_file_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "hard.jsonl"
    file = HardExampleFile(path, 300)
    file.append(images(1), images(1))
    for _ in range(2):
        file.append(images(2, 2, 2, 2), images(2, 2, 2, 2))
    assert values(path) == [1]
    assert caplog.text.count("hard examples are lost") == 1


def test_an_answer_that_has_no_form_in_json_loses_its_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "hard.jsonl"
    file = HardExampleFile(path, BOUND)
    file.append(images(1), [object()])
    file.append(images(2), images(2))
    assert values(path) == [2]


def test_half_a_line_of_a_killed_worker_spoils_no_other(tmp_path: Path) -> None:
    path = tmp_path / "hard.jsonl"
    HardExampleFile(path, BOUND).append(images(1), images(1))
    with path.open("ab") as file:
        file.write(b'{"sample": [1, 2')
    HardExampleFile(path, BOUND).append(images(3), images(3))
    with path.open("ab") as file:
        file.write(b'5\n{"sample": [[1], 2], "dtype": "int8", "answer": 1}\n\xff\n')
    assert values(path) == [1, 3]


def test_several_processes_write_whole_lines_and_keep_the_bound(tmp_path: Path) -> None:
    path = tmp_path / "hard.jsonl"
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(path), str(BOUND), value, "200"])
        for value in "123"
    ]
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    assert path.stat().st_size <= BOUND
    assert len(values(path)) == len(path.read_text().splitlines()) > 20


def test_a_killed_process_leaves_lines_and_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "hard.jsonl"
    command = [sys.executable, "-c", WRITER, str(path), str(BOUND), "1", "1000000"]
    with subprocess.Popen(command) as writer:
        eventually("lines", lambda: path.exists() and path.stat().st_size > BOUND / 2)
        os.kill(writer.pid, signal.SIGKILL)
    HardExampleFile(path, BOUND).append(images(9), images(9))
    assert values(path)[-1] == 9


def test_a_full_disk_leaves_no_half_line(tmp_path: Path) -> None:
    """The limit of a file's size stands for a full disk."""
    path = tmp_path / "hard.jsonl"
    limits = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))\n"
    limits += "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    command = [sys.executable, "-c", limits + WRITER, str(path), str(BOUND), "1", "50"]
    assert subprocess.run(command, check=False, capture_output=True).returncode == 0
    text = path.read_text()
    assert text.endswith("\n")
    assert len(values(path)) == len(text.splitlines()) > 3


def test_a_directory_that_cannot_be_written_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"HARD_EXAMPLES_PATH: is .*cannot be written") as error:
        HardExampleFile(tmp_path / "missing" / "hard.jsonl", BOUND)
    assert "hardExamples" in str(error.value)
