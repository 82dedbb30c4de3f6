"""Pages of a list, and the continue tokens that lead from one page to the next. Pure."""

import base64
from typing import Self

import msgspec

from edgeai.localcluster.objects import errors
from edgeai.localcluster.objects.resources import Object


class ListPage(msgspec.Struct, frozen=True):
    """One page of a list. A watch from `resource_version` delivers all later changes."""

    items: list[Object]
    resource_version: int
    continue_token: str = ""
    """Token for the next page; "" on the last page."""
    remaining: int | None = None
    """Number of objects on later pages; None for a list with a selector, because this number is
    unknown."""


class Position(msgspec.Struct, frozen=True, array_like=True):
    """The end of a page: the resource version of the list, and the last object of the page."""

    resource_version: int
    namespace: str = ""
    name: str = ""

    @property
    def key(self) -> tuple[str, str]:
        return self.namespace, self.name

    def token(self) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode()

    @classmethod
    def parse(cls, token: str) -> Self:
        """The position that a continue token contains. Raises: errors.BadRequest"""
        try:
            return msgspec.json.decode(base64.urlsafe_b64decode(token), type=cls)
        except (ValueError, msgspec.DecodeError) as error:
            raise errors.BadRequest("continue token is not valid: list from the start") from error
