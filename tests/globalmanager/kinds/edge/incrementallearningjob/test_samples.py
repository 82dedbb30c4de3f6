"""IncrementalLearningJob: the init container reads samples as the LocalController counts them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from globalmanager.kinds.edge.incrementallearningjob.inputs import _PROGRAM
from localcontroller.hooks.samples import sample_counter


class Run(NamedTuple):
    code: int
    last_words: str
    samples: bytes


def run(data: Path, format_: str, start: int, end: int, *models: Path) -> Run:
    target = data.parent / "target"
    arguments = [str(data), format_, json.dumps([[start, end]]), str(target), *map(str, models)]
    command = [sys.executable, "-c", _PROGRAM, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return Run(done.returncode, done.stderr, target.read_bytes())


@pytest.mark.parametrize(
    ("format_", "content", "count", "last"),
    [
        ("txt", "caf\xe9\nb\xe9\n".encode("latin-1"), 2, b"b\xe9\n"),
        ("txt", b"a\rb\nc\nd\n", 3, b"d\n"),
        ("txt", "a\u2028b\nc\n".encode(), 2, b"c\n"),
        ("jsonl", b'{"t":"a"}\r{"t":"b"}\n\n{"t":"c"}\n', 2, b'{"t":"c"}\n'),
        ("csv", b"h\n" + b"x" * 140_000 + b"\nb\n", 2, b"h\nb\n"),
        ("csv", b'h\ra,1\r"b\rc",2\rd,3\r', 3, b"h\rd,3\r\n"),
        ("csv", b'h\r\n"a\r\n\r\nb",1\r\nc,2\r\n', 2, b"h\r\nc,2\r\n"),
    ],
)
def test_samples_are_those_that_are_counted(
    format_: str, content: bytes, count: int, last: bytes, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.write_bytes(content)
    counter = sample_counter(format_)
    counter.feed(content)
    assert counter.samples == count
    assert run(data, format_, count - 1, count) == Run(0, "", last)
    assert run(data, format_, count, count + 1).code == 1


def test_files_of_a_directory_are_samples_and_links_are_not(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "link").symlink_to("/etc/hostname")
    (data / "broken").symlink_to("/nonexistent")
    for name, modified in (("b", 2000), ("a", 1000), ("copy", 500)):
        newest = max((file.lstat().st_ctime_ns for file in data.iterdir()), default=0)
        (data / name).touch()
        while (data / name).stat().st_ctime_ns <= newest:  # the clock of a disk is coarse
            os.utime(data / name, (modified, modified))
        os.utime(data / name, (modified, modified))
    assert run(data, "", 0, 3) == Run(
        0, "", b"".join(b"%b/%b\n" % (bytes(data), name) for name in (b"b", b"a", b"copy"))
    )
    assert run(data, "", 2, 3).samples == b"%b/copy\n" % bytes(data)


def test_a_base_model_that_is_gone_is_named(tmp_path: Path) -> None:
    data = tmp_path / "data.txt"
    data.write_text("a\nb\n")
    done = run(data, "", 0, 2, tmp_path / "gone.pb", tmp_path / "base" / "gone.pb")
    assert done.code == 1
    assert "gone.pb, the model to train on, does not exist" in done.last_words
