"""The init container that brings a round its samples, run as it runs in a pod."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from globalmanager.kinds.edge.incrementallearningjob.inputs import _PROGRAM
from localcontroller.hooks.samples import sample_counter


def chosen(
    directory: Path, data: Path, form: str, *ranges: tuple[int, int], models: tuple[str, ...] = ()
) -> bytes:
    """Raises: CalledProcessError"""
    target = directory / "chosen"
    arguments = [data, form, json.dumps(ranges), target, *models]
    command = [sys.executable, "-c", _PROGRAM, *map(str, arguments)]
    subprocess.run(command, check=True, capture_output=True)
    return target.read_bytes()


CONTENTS = {
    "txt": (b"a\n\nb\r\nc\rd\n\xff", [b"a\n", b"\n", b"b\r\n", b"c\rd\n", b"\xff\n"]),
    "jsonl": (b'{"a": 1}\n\n{"a": 2}\n', [b'{"a": 1}\n', b'{"a": 2}\n']),
    "csv": (b'x,y\n1,"two\nlines"\n\n2,b\n', [b'1,"two\nlines"\n', b"2,b\n"]),
}


@pytest.mark.parametrize("form", CONTENTS)
def test_its_samples_are_those_that_the_node_counts(tmp_path: Path, form: str) -> None:
    content, samples = CONTENTS[form]
    data = tmp_path / f"data.{form}"
    data.write_bytes(content)
    counter = sample_counter(form)
    counter.feed(content)
    assert counter.samples == len(samples)
    head = b"x,y\n" if form == "csv" else b""
    for index, sample in enumerate(samples):
        assert chosen(tmp_path, data, form, (index, index + 1)) == head + sample
    assert chosen(tmp_path, data, "", (0, 1), (1, len(samples))) == head + b"".join(samples)


def test_samples_that_are_gone_end_the_pod_with_a_sentence(tmp_path: Path) -> None:
    data = tmp_path / "data.txt"
    data.write_text("1\n2\n")
    with pytest.raises(subprocess.CalledProcessError) as error:
        chosen(tmp_path, data, "txt", (0, 5))
    assert b"has 2 samples, and the round needs 5" in error.value.stderr


@pytest.mark.parametrize("is_directory", [False, True])
def test_the_base_model_is_copied(tmp_path: Path, is_directory: bool) -> None:
    data, base, copy = tmp_path / "data.txt", tmp_path / "base", tmp_path / "base-copy" / "base"
    data.write_text("1\n")
    file = base / "model" if is_directory else base
    file.parent.mkdir(exist_ok=True)
    file.write_text("weights")
    chosen(tmp_path, data, "txt", (0, 1), models=(str(base), str(copy)))
    assert (copy / "model" if is_directory else copy).read_text() == "weights"
