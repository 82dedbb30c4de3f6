"""However `edgeai up` and a demo are ended, they leave no process and no file behind."""

import itertools
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.edgeai.cli.command import DEADLINE_S, processes_of, start, wait_for
from tests.support.waiting import eventually


def wait_for_end_of_processes(directory: Path) -> None:
    def check() -> bool:
        left = processes_of(directory)
        assert not left, f"there is still {left}"
        return True

    eventually(f"the end of all processes of {directory}", check)


MOMENTS: dict[str, Callable[[Path], object]] = {
    "the cluster was just started": lambda state: (state / "cluster.log").exists(),
    "its pods come up": lambda state: list(state.glob("pods/*")),
}


@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGINT, "the cluster was just started"),
        (signal.SIGTERM, "its pods come up"),
        (signal.SIGHUP, "the cluster was just started"),
    ],
)
def test_up_that_is_ended_early_leaves_nothing_running(
    number: signal.Signals, moment: str, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    process = start("up", "--state-dir", str(state))
    wait_for(moment, lambda: MOMENTS[moment](state), process)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, stdout) == (128 + number, "")
    assert "Traceback" not in stderr
    wait_for_end_of_processes(tmp_path)


def test_a_second_interrupt_does_not_break_the_demos_clean_up(tmp_path: Path) -> None:
    process = start("demo", "joint-inference", tmp=tmp_path)
    wait_for("pods", lambda: list(tmp_path.glob("edgeai-demo-*/state/pods/*")), process)
    process.send_signal(signal.SIGINT)
    assert process.stdout is not None
    lines = iter(process.stdout.readline, "")
    before = "".join(itertools.takewhile(lambda line: "interrupted" not in line, lines))
    process.send_signal(signal.SIGINT)  # into the clean-up
    after, stderr = process.communicate(timeout=DEADLINE_S)
    stdout = before + after
    assert process.returncode == 130
    assert "failed" not in stdout
    assert "[dim]" not in stdout
    assert "Traceback" not in stderr
    wait_for_end_of_processes(tmp_path)
    assert list(tmp_path.iterdir()) == []
