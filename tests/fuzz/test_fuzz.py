"""The targets of `make fuzz`, for a small number of inputs that are the same in each run."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import strategies as st

from tests.fuzz.inputs import seeds
from tests.fuzz.run import keep, run
from tests.fuzz.targets import Target, targets

BATCHES = {"frames": 10, "worker-api": 20, "cr": 3}


@pytest.fixture(scope="module")
def known() -> Iterator[dict[str, Target]]:
    with targets() as made:
        yield made


@pytest.mark.parametrize("name", BATCHES)
def test_a_target_holds(name: str, known: dict[str, Target]) -> None:
    outcome = run(known[name], batches=BATCHES[name])
    assert outcome.crash is None, f"{outcome.crash.data!r}\n{outcome.crash.text}"
    assert outcome.inputs > 100 * BATCHES[name]


def test_rest_answers_as_described(known: dict[str, Target]) -> None:
    outcome = run(known["rest"], batches=1)
    assert outcome.crash is None, f"{outcome.crash.data!r}\n{outcome.crash.text}"


def test_each_target_has_a_test(known: dict[str, Target]) -> None:
    assert known.keys() == {*BATCHES, "rest"}


def test_a_crash_is_found_made_small_and_kept(tmp_path: Path) -> None:
    def check(data: bytes) -> None:
        assert b"<" not in data, "a bracket"

    outcome = run(
        Target("frames", st.binary(max_size=50) | st.just(b"x" * 9 + b"<"), check), batches=20
    )
    assert outcome.crash is not None
    kept = keep(outcome.crash, tmp_path / "crashes")
    assert b"<" in kept.read_bytes()
    assert len(kept.read_bytes()) <= 10
    assert "a bracket" in kept.with_suffix(".txt").read_text()


@pytest.mark.parametrize("name", [*BATCHES, "rest"])
def test_there_are_seeds(name: str) -> None:
    assert len(seeds(name)) >= 3
