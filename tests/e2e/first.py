"""What a browser sees that `edgeai open` has opened: the page of the first job, and its curve."""

import html
import json
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from http.client import HTTPResponse
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from tests.support.waiting import eventually

PAGE: Final = "/jobs/jointinferenceservices.edgeai.io/default/first"
POINTS: Final = 2
STREAM_S: Final = 60.0
_METRICS: Final = re.compile(r'data-metrics="([^"]*)"')


class First(NamedTuple):
    """Args:
    printed: by each command before `edgeai open`
    points: of the curve, as the page streams them
    exit_code: of `edgeai open` after Ctrl-C
    logs: of all programs when the curve has too few points
    """

    printed: list[str]
    points: list[dict[str, float]]
    exit_code: int
    logs: str = ""


def opened(command: "subprocess.Popen[str]", address: Path, printed: list[str]) -> First:
    """Args: command: `edgeai open`; address: file that its browser writes"""
    try:
        points = _points(_address(command, address))
        command.send_signal(signal.SIGINT)
        return First(printed, points, command.wait(timeout=30))
    finally:
        command.kill()
        command.communicate()


def _address(command: "subprocess.Popen[str]", file: Path) -> str:
    def found() -> str:
        if command.poll() is not None:
            said = command.stdout.read() if command.stdout else ""
            raise RuntimeError(f"edgeai open has ended: {said}")
        assert file.exists(), "no browser was opened"
        return file.read_text().strip()

    return eventually("the address", found)


def _points(address: str) -> list[dict[str, float]]:
    """The first ones that count something."""
    cookies = urllib.request.HTTPCookieProcessor(CookieJar())
    browser = urllib.request.build_opener(cookies)
    browser.open(address, timeout=30).close()
    parts = urlsplit(address)
    request = urllib.request.Request(
        f"{parts.scheme}://{parts.netloc}{PAGE}", headers={"Accept": "text/event-stream"}
    )
    points: list[dict[str, float]] = []
    with browser.open(request, timeout=STREAM_S) as stream:
        for point in _streamed(stream):
            if point.get("seen") and point not in points:
                points.append(point)
            if len(points) == POINTS:
                break
    return points


def _streamed(stream: HTTPResponse) -> Iterator[dict[str, float]]:
    for line in stream:
        if found := _METRICS.search(line.decode()):
            yield json.loads(html.unescape(html.unescape(found[1])))
