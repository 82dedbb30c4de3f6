"""The state machine of a TrainingJob keeps the diagram of its states in the docs."""

import itertools
import re
from pathlib import Path
from typing import Final

import pytest

from globalmanager.kinds.elastic.trainingjob.states import (
    ENDS,
    JobState,
    Launcher,
    MachineInputs,
    states_ahead,
)

PAGE: Final = Path(__file__).parents[5] / "docs" / "kinds" / "trainingjob.md"
SITUATIONS: Final = [
    MachineInputs(
        are_workers_created=created,
        are_enough_ready=ready,
        cannot_start=stuck,
        launcher=launcher,
        may_restart=may_restart,
        is_scaling=scaling,
    )
    for launcher in Launcher
    for created, ready, stuck, may_restart, scaling in itertools.product((False, True), repeat=5)
]
LONGEST: Final = len(JobState)


def steps(state: JobState, inputs: MachineInputs) -> list[tuple[JobState, JobState]]:
    """(state, next state) of each step."""
    passed = [state, *itertools.islice(states_ahead(state, inputs), LONGEST)]
    return list(itertools.pairwise(passed))


ALL: Final = {step for state in JobState for inputs in SITUATIONS for step in steps(state, inputs)}


def drawn() -> list[tuple[str, str]]:
    """The arrows of the diagram in the page, each as (state, next state)."""
    block = PAGE.read_text().partition("```mermaid\n")[2].partition("\n```")[0]
    title, *arrows = block.splitlines()
    assert title == "stateDiagram-v2"
    matches = [re.fullmatch(r"    (\S+) --> (\w+: \S.*|\[\*\])", arrow) for arrow in arrows]
    assert all(matches), "each arrow of a state says why"
    return [(match[1], match[2].partition(":")[0]) for match in matches if match]


def test_every_step_is_in_the_diagram_and_every_arrow_is_a_step() -> None:
    # `plan` suspends a job in any state but the final ones.
    suspensions = {(state, JobState.SUSPENDED) for state in JobState} - {
        (state, JobState.SUSPENDED) for state in (JobState.NEW, JobState.SUSPENDED, *ENDS)
    }
    ends = [(end, "[*]") for end in ENDS]
    steps_by_name = [(before or "[*]", after) for before, after in ALL | suspensions]
    assert sorted(drawn()) == sorted([*steps_by_name, *ends])


@pytest.mark.parametrize("state", list(JobState))
def test_every_path_comes_to_rest(state: JobState) -> None:
    for inputs in SITUATIONS:
        passed = steps(state, inputs)
        assert len(passed) < LONGEST, inputs
        if passed and passed[-1][1] is not JobState.RESTARTING:
            assert not steps(passed[-1][1], inputs), "the last state stays"


@pytest.mark.parametrize("end", ENDS)
def test_an_end_is_final(end: JobState) -> None:
    assert not any(steps(end, inputs) for inputs in SITUATIONS)


def test_a_job_whose_launcher_never_existed_does_not_succeed() -> None:
    absent = [each for each in SITUATIONS if each.launcher is Launcher.ABSENT]
    ends = {after for each in absent for _, after in steps(JobState.NEW, each)}
    assert JobState.SUCCEEDED not in ends
    assert JobState.RUNNING not in ends
