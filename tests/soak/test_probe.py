"""The probe writes down where the memory of a program is, while the program runs as ever."""

import json
import subprocess
import sys
from pathlib import Path

from tests.soak import probe

PROGRAM = """
import json, sys
from pathlib import Path
from tests.support.waiting import eventually
from tests.soak import probe
kept = {f"entry {n}": [n] for n in range(3000)}
lines = lambda: Path(sys.argv[1]).read_text().splitlines()
eventually("a sample", lambda: bool(lines()))
print(json.dumps(probe.census()))
"""


def test_a_program_runs_under_the_probe(tmp_path: Path) -> None:
    (tmp_path / "kept_program.py").write_text(PROGRAM)
    file = tmp_path / "probe.jsonl"
    command = [sys.executable, "-m", "tests.soak.probe", str(file), "kept_program", str(file)]
    environment = {"PYTHONPATH": str(tmp_path)}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    told = json.loads(ended.stdout)
    assert told["objects"]["builtins.list"] > 3000
    assert [3000, "'entry 0'"] in [[count, one] for _, _, count, one in told["large"]]
    sample = json.loads(file.read_text().splitlines()[0])
    assert 5_000 < sample["anonymous_kib"] < sample["resident_kib"] < 100_000
    assert 0 < sample["heap_used_kib"] <= sample["heap_kib"]
    assert sample.keys() == probe.sample().keys()
