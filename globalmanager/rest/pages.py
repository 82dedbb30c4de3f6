"""Pages of lists: the parameters `limit` and `continue`. Pure.

The items of a list have keys, and a page has the next keys in their order. `continue` names the
last key of a page. So a page needs no memory here, and changes repeat or hide no other object.
"""

import base64
import binascii
import heapq
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec
from aiohttp import web

from globalmanager.rest.errors import RequestError
from globalmanager.rest.views import ListMetadata

MAX_LIMIT: Final = 10_000


class NameKey(NamedTuple):
    """Of a node or a worker."""

    name: str


class ObjectKey(NamedTuple):
    namespace: str
    name: str
    group: str


K = TypeVar("K", NameKey, ObjectKey)


class Window(NamedTuple, Generic[K]):
    """The part of a list that a request wants."""

    limit: int | None
    """Largest number of items; None: all."""
    after: K | None
    """The last key of the page before; None: the first page."""

    @classmethod
    def of(cls, request: web.Request, key_type: type[K]) -> "Window[K]":
        """Raises: RequestError"""
        limit, continue_ = request.query.get("limit", ""), request.query.get("continue", "")
        if limit and not (limit.isdecimal() and len(limit) <= 9):
            problem = f"limit: {limit[:64]!r} is not a number of items"
            raise RequestError(HTTPStatus.BAD_REQUEST, problem)
        count = min(int(limit or 0), MAX_LIMIT)
        return cls(count or None, _decoded(continue_, key_type) if continue_ else None)


class Page(NamedTuple, Generic[K]):
    keys: list[K]
    metadata: ListMetadata


def page_of(keys: Iterable[K], window: Window[K]) -> Page[K]:
    after = window.after
    remainder = [key for key in keys if after is None or key > after]
    if window.limit is None or len(remainder) <= window.limit:
        return Page(sorted(remainder), ListMetadata())
    page = heapq.nsmallest(window.limit, remainder)
    remaining = len(remainder) - window.limit
    continue_ = base64.urlsafe_b64encode(msgspec.json.encode(page[-1])).decode()
    return Page(page, ListMetadata(continue_=continue_, remaining_item_count=remaining))


def _decoded(text: str, key_type: type[K]) -> K:
    """Raises: RequestError"""
    try:
        raw = base64.b64decode(text.encode(), altchars=b"-_", validate=True)
        return msgspec.json.decode(raw, type=key_type)
    except (binascii.Error, msgspec.DecodeError, UnicodeError) as error:
        problem = "continue: no value of an earlier page; list again without it"
        raise RequestError(HTTPStatus.BAD_REQUEST, problem) from error
