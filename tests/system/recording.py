"""Records what a command shows on a terminal, and draws the recording as an SVG that moves.

The terminal knows what the demos use: lines, colours, the cursor one line up, and erased lines.
"""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from xml.sax.saxutils import escape

COLUMNS: Final = 100
ROWS: Final = 24
_SEQUENCE: Final = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])|\r|\n|[^\x1b\r\n]")
_LINE_PX, _CHARACTER_PX = 18, 8
_COLOURS: Final = {"31": "#ff6b81", "32": "#7bd88f", "33": "#ffe066", "36": "#5ad4e6"}
_FOREGROUND: Final = "#d6d6d6"
_END_SHARE: Final = 0.25
"""The part of the time for which the last screen stays."""


class Cell(NamedTuple):
    character: str
    style: str
    """Attributes of SVG."""


Screen = tuple[tuple[Cell, ...], ...]


class Frame(NamedTuple):
    at_s: float
    """Since the command started."""
    screen: Screen


class Terminal:
    def __init__(self) -> None:
        self._lines: list[list[Cell]] = [[]]
        self._row = self._column = 0
        self._style = ""

    def feed(self, text: str) -> None:
        for match in _SEQUENCE.finditer(text):
            if match[2]:
                self._control(match[1], match[2])
            elif match[0] == "\r":
                self._column = 0
            elif match[0] == "\n":
                self._row, self._column = self._row + 1, 0
                self._lines += [[] for _ in range(self._row + 1 - len(self._lines))]
            else:
                self._put(match[0])

    def _control(self, number: str, letter: str) -> None:
        if letter == "A":
            self._row = max(self._row - int(number or 1), 0)
        elif letter == "K":
            self._lines[self._row] = []
        elif letter == "m":
            codes = set(number.split(";"))
            colours = [f'fill="{_COLOURS[code]}"' for code in _COLOURS if code in codes]
            weight = ['font-weight="bold"'] if "1" in codes else []
            self._style = " ".join([*colours, *weight])

    def _put(self, character: str) -> None:
        line = self._lines[self._row]
        line += [Cell(" ", "")] * (self._column + 1 - len(line))
        line[self._column] = Cell(character, self._style)
        self._column += 1

    @property
    def screen(self) -> Screen:
        """The last lines, as a terminal shows them. What is too long for a line is cut off."""
        return tuple(tuple(line[:COLUMNS]) for line in self._lines[-ROWS:])


def record(command: Sequence[str], environ: Mapping[str, str], directory: Path) -> list[Frame]:
    """Each screen that differs from the one before. Raises: CalledProcessError"""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    started_s = time.monotonic()
    terminal, frames = Terminal(), [Frame(0.0, ())]
    variables = {**environ, "TERM": "xterm", "PYTHONIOENCODING": "utf-8"}
    process = subprocess.Popen(command, stdout=theirs, env=variables, cwd=directory)
    os.close(theirs)
    with open(ours, "rb", buffering=0) as output, process:
        while text := _read(output.fileno()):
            terminal.feed(text)
            if terminal.screen != frames[-1].screen:
                frames.append(Frame(time.monotonic() - started_s, terminal.screen))
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command, text_of(frames[-1]))
    return frames


def _read(descriptor: int) -> str:
    """Whole characters, "" at the end."""
    content = b""
    while True:
        try:
            content += os.read(descriptor, 65536)
        except OSError:  # a terminal that nobody holds open any more
            return content.decode(errors="replace")
        try:
            return content.decode()
        except UnicodeDecodeError:
            continue


def text_of(frame: Frame) -> str:
    return "\n".join("".join(cell.character for cell in line) for line in frame.screen)


def since(words: str, frames: Sequence[Frame]) -> list[Frame]:
    """The frames from the first one on that shows the words."""
    (first, *_) = [number for number, frame in enumerate(frames) if words in text_of(frame)]
    start_s = frames[first].at_s
    return [Frame(frame.at_s - start_s, frame.screen) for frame in frames[first:]]


def thinned(frames: Sequence[Frame], count: int) -> list[Frame]:
    """At most so many frames and the last one, evenly over the time."""
    period_s = frames[-1].at_s / count
    kept: list[Frame] = []
    for frame in frames:
        if not kept or frame.at_s - kept[-1].at_s >= period_s or frame is frames[-1]:
            kept.append(frame)
    return kept


def svg(frames: Sequence[Frame], *, title: str, seconds: float) -> str:
    """The recording, played in `seconds` again and again. Where motion is unwanted, its end."""
    height, width = ROWS * _LINE_PX + 24, COLUMNS * _CHARACTER_PX + 24
    whole_s = frames[-1].at_s / (1 - _END_SHARE)
    steps = [
        f"{frame.at_s / whole_s:.3%}{{transform:translateY({-number * height}px)}}"
        for number, frame in enumerate(frames)
    ]
    last = f"transform:translateY({-(len(frames) - 1) * height}px)"
    drawn = (_drawn(frame.screen, number * height) for number, frame in enumerate(frames))
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img">',
            f"<title>{escape(title)}</title>",
            "<style>",
            f"text{{font:13px 'DejaVu Sans Mono',monospace;fill:{_FOREGROUND};white-space:pre}}",
            f"#film{{{last};animation:play {seconds:g}s steps(1,end) infinite}}",
            "@media(prefers-reduced-motion:reduce){#film{animation:none}}",
            "@keyframes play{",
            *steps,
            f"100%{{{last}}}",
            "}",
            "</style>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#1c1c1c"/>',
            '<g id="film">',
            *drawn,
            "</g>",
            "</svg>\n",
        ]
    )


def _drawn(screen: Screen, top: int) -> str:
    rows = []
    for number, line in enumerate(screen):
        y = top + 12 + (number + 1) * _LINE_PX - 5
        rows += [_text(column, y, part) for column, part in _parts(line) if part[0].strip()]
    return "\n".join(rows)


def _text(column: int, y: int, part: tuple[str, str]) -> str:
    text, style = part
    x, length = 12 + column * _CHARACTER_PX, len(text) * _CHARACTER_PX
    css = style.replace('="', ":").replace('" ', ";").replace('"', "")
    attributes = f' style="{css}"' if style else ""
    return f'<text x="{x}" y="{y}" textLength="{length}"{attributes}>{escape(text)}</text>'


def _parts(line: Sequence[Cell]) -> list[tuple[int, tuple[str, str]]]:
    """(column, (text, style)) of each run of one style."""
    parts: list[tuple[int, tuple[str, str]]] = []
    for column, cell in enumerate(line):
        if parts and parts[-1][1][1] == cell.style:
            begin, (text, style) = parts[-1]
            parts[-1] = (begin, (text + cell.character, style))
        else:
            parts.append((column, (cell.character, cell.style)))
    return parts
