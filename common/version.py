"""The release of this program, as both managers tell it."""

import re
from typing import Final

VERSION: Final = "0.1.0"
_AGENT: Final = "edgeai-localcontroller/"


def user_agent() -> str:
    """What a LocalController calls itself in the header User-Agent."""
    return f"{_AGENT}{VERSION}"


def release_of(agent: str) -> str:
    """The release of the LocalController that calls itself so; "" for every other program."""
    match = re.fullmatch(rf"{_AGENT}([0-9A-Za-z.+-]{{1,32}})", agent, re.ASCII)
    return "" if match is None else match[1]
