"""A recording of a command has what a terminal shows, and plays as long as it is told to."""

import sys
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

from tests.system.recording import Terminal, record, svg, text_of, thinned

PROGRAM: Final = r"""
import sys, time
for number in range(5):
    sys.stdout.write(f"\x1b[32mround {number}\x1b[0m\nnode \u2713\n")
    sys.stdout.flush()
    time.sleep(0.05)
    if number < 4:
        sys.stdout.write("\x1b[1A\x1b[2K\x1b[1A\x1b[2K\r")
"""


def test_lines_are_written_again_in_their_place(tmp_path: Path) -> None:
    frames = record([sys.executable, "-c", PROGRAM], {}, tmp_path)
    assert text_of(frames[-1]).splitlines() == ["round 4", "node ✓"]
    texts = [text_of(frame) for frame in frames]
    assert any("round 0" in text for text in texts)
    assert len(thinned(frames, 2)) <= 4


def test_the_picture_has_the_frames_and_the_time(tmp_path: Path) -> None:
    frames = record([sys.executable, "-c", PROGRAM], {}, tmp_path)
    picture = svg(frames, title="a & b", seconds=12)
    texts = [each.text for each in ElementTree.fromstring(picture).iter() if each.text]
    assert "a & b" in texts
    assert any("round 4" in text for text in texts)
    assert "play 12s" in picture


def test_a_column_that_is_written_over_has_the_last_word() -> None:
    terminal = Terminal()
    terminal.feed("abc\rX")
    assert "".join(cell.character for cell in terminal.screen[0]) == "Xbc"
