"""Says which extra of edgeai brings a library that a program lacks."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_OURS: Final = frozenset({"common", "edgeai", "globalmanager", "localcontroller"})


@contextmanager
def required(program: str, extra: str) -> Iterator[None]:
    """Ends the process with status 1 and one line on stderr where an import lacks a library.

    Args:
        program: begin of the line
        extra: of pyproject.toml, with all that the imports in this context may lack
    """
    try:
        yield
    except ModuleNotFoundError as error:
        library = str(error.name).partition(".")[0]
        if library in _OURS:
            raise
        sys.exit(f"{program}: {library} is missing; install it with: pip install 'edgeai[{extra}]'")
