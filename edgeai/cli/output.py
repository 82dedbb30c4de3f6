"""The standard output of the `edgeai` command: what cannot be written is an error in one line."""

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from typing import Final

from edgeai.errors import EdgeAIError

_FAILURES: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


class NotWritten(EdgeAIError):
    pass


@contextlib.contextmanager
def checked() -> Iterator[None]:
    """Raises: NotWritten when the standard output is closed or full"""
    if sys.stdout is None:
        _give_up("is closed")
    try:
        yield
    except OSError as error:
        if error.errno not in _FAILURES or error.filename is not None:
            raise
        _give_up(f"cannot be written: {error.strerror}")


def _give_up(problem: str) -> None:
    """Raises: NotWritten. What is left in the buffer goes nowhere, so nothing fails at the end."""
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - until the end
    raise NotWritten(f"the standard output {problem}")
