"""What an API server says beside an answer, in headers `Warning: 299 - "text"`: that it dropped an
unknown field, that a version goes away, that a policy forbids such a pod from tomorrow on.

Sources: RFC 7234, section 5.5; KEP-1693. Texts name fields and never quote a Secret.
"""

import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from typing import Final

from edgeai.newest import NewestKeys
from edgeai.text import printable

LOGGER: Final = "edgeai.kube.warnings"
"""The logger of all warnings; each record is one text, and has the `target` of the request."""
log = logging.getLogger(LOGGER)
_MAX_TEXTS: Final = 16  # of one answer
_MAX_TEXT_CHARS: Final = 500
_MEMORY: Final = 1024
_WARNING: Final = re.compile(r'\b299 \S+ "((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)")
_collection: ContextVar[list[str] | None] = ContextVar("collection", default=None)


class Warnings:
    """The warnings of one API server. Each text reaches the log once."""

    def __init__(self) -> None:
        self._logged = NewestKeys[str, None](_MEMORY)

    def hear(self, target: str, headers: Iterable[str]) -> None:
        """Args: headers: the values of the headers `Warning` of one answer"""
        for text in islice(texts_of(headers), _MAX_TEXTS):
            collection = _collection.get()
            if collection is not None:
                collection.append(text)
            if text not in self._logged:
                log.warning("%s", text, extra={"target": target})
            self._logged[text] = None


@contextmanager
def collected() -> Iterator[list[str]]:
    """The warnings of the requests of the `with` body, which the present task sends."""
    texts: list[str] = []
    token = _collection.set(texts)
    try:
        yield texts
    finally:
        _collection.reset(token)


def texts_of(headers: Iterable[str]) -> Iterator[str]:
    for header in headers:
        for quoted in _WARNING.findall(header):
            yield printable(_ESCAPED.sub(r"\1", quoted))[:_MAX_TEXT_CHARS]
