"""What a job looks like at a glance, in the command and in the console."""

import pytest

from edgeai.faults.faults import Fault, job_fault
from edgeai.faults.pod_faults import examine
from edgeai.faults.tones import Tone, tone_of


def crash() -> Fault:
    waiting = {"reason": "CrashLoopBackOff"}
    last = {"terminated": {"exitCode": 1, "reason": "Error"}}
    entry = {"name": "main", "restartCount": 3, "state": {"waiting": waiting}, "lastState": last}
    pod = {"metadata": {"name": "a"}, "status": {"phase": "Running", "containerStatuses": [entry]}}
    (fault,) = examine([pod], None).faults
    return fault


@pytest.mark.parametrize(
    ("phase", "faults", "tone"),
    [
        ("Running", [], Tone.GOOD),
        ("Running", [job_fault("ModelNotFound", "Model m does not exist")], Tone.WAITING),
        ("Running", [crash()], Tone.BAD),
        ("Created", [], Tone.WAITING),
        ("Suspended", [], Tone.DONE),
        ("Succeeded", [], Tone.DONE),
        ("Failed", [], Tone.BAD),
    ],
)
def test_a_tone_follows_from_the_phase_and_the_faults(
    phase: str, faults: list[Fault], tone: Tone
) -> None:
    assert tone_of(phase, faults) is tone
