"""The caller of a console request, and what the caller may see."""

from collections.abc import Collection
from http import HTTPStatus
from typing import Final

import msgspec
from aiohttp import web

from edgeai.api.resources import NODES, PODS, ResourceType
from edgeai.ids import is_subdomain
from globalmanager.contract import Kind
from globalmanager.rest.access import Access, Caller, Reading, is_allowed, listable
from globalmanager.rest.api import Replica, require_populated
from globalmanager.rest.console.answers import is_stream
from globalmanager.rest.console.board import Board, Sight
from globalmanager.rest.console.login import Logins, Session
from globalmanager.rest.console.proxy import ProxyLogin
from globalmanager.rest.errors import RequestError

CALLER: Final = web.RequestKey("caller", Caller)
"""Who sends a request, as soon as it is known."""


class Visit(msgspec.Struct, frozen=True):
    """One request of a person."""

    caller: Caller
    session: Session | None
    sight: Sight
    is_by_proxy: bool = False
    """Whether an authenticating proxy has logged the caller in."""
    namespaces: tuple[str, ...] = ()
    """Those that the caller can choose from, where the caller may list jobs in all of them."""


VISIT: Final = web.RequestKey("visit", Visit)


class Visits:
    """Args: access: decides what a caller sees; reviews: knows tokens, and what one may change"""

    def __init__(
        self,
        *,
        access: Access,
        reviews: Access,
        logins: Logins,
        proxy: ProxyLogin,
        board: Board,
        kinds: Collection[Kind],
        replica: Replica,
    ) -> None:
        self._access = access
        self.reviews = reviews
        self.logins = logins
        self.proxy = proxy
        self.board = board
        self.kinds = {type_: kind for kind in kinds for type_ in kind.definition.types}
        self._replica = replica

    async def of(self, request: web.Request) -> Visit:
        """Raises: RequestError"""
        token = self.proxy.token_of(request)
        session = None if token else self.logins.session_of(request)
        if token:
            caller, session = await self.proxy.visitor(self.reviews, request, token)
        elif session is None:
            caller = await self._access.identify(request, "")
        else:
            caller = await self.reviews.identify(request, session.token)
        request[CALLER] = caller
        require_populated(self._replica)
        sight = await self._sight(request, caller)
        namespaces = () if is_stream(request) else await self._namespaces(request, caller, sight)
        request[VISIT] = visit = Visit(caller, session, sight, bool(token), namespaces)
        return visit

    async def _namespaces(
        self, request: web.Request, caller: Caller, sight: Sight
    ) -> tuple[str, ...]:
        everywhere = await self._types(request, caller, "") if sight.namespace else sight.types
        names = self.board.namespaces(everywhere)
        return tuple(sorted({*names, sight.namespace} - {""})) if names else ()

    async def _sight(self, request: web.Request, caller: Caller) -> Sight:
        """Of all namespaces, or that in the address, or that of the caller's ServiceAccount."""
        namespace = request.query.get("namespace", "")
        if namespace and not is_subdomain(namespace):
            raise RequestError(HTTPStatus.NOT_FOUND, f"{namespace[:64]!r} is not a valid namespace")
        sees_nodes = await self._may(request, caller, Reading("list", NODES))
        types = await self._types(request, caller, namespace)
        if not types and not namespace:
            namespace = caller.namespace
            types = await self._types(request, caller, namespace) if namespace else frozenset()
        is_whole = not namespace and len(types) == len(self.board.types)
        sees_pods = await self._sees_pods(request, caller, Sight(namespace, types, sees_nodes))
        return Sight(namespace, types, sees_nodes, is_whole, sees_pods)

    async def _sees_pods(self, request: web.Request, caller: Caller, sight: Sight) -> bool:
        """Whether the page of a job or node may show all of its pods."""
        if request.match_info.keys() == {"name"}:
            return sight.nodes and await self._may(
                request, caller, Reading("list", PODS, sight.namespace)
            )
        namespace = request.match_info.get("namespace", "")
        type_ = self.board.type_of(request.match_info.get("type", ""))
        if type_ is None or type_ not in sight.types or sight.namespace not in ("", namespace):
            return False
        kind = self.kinds.get(type_)
        if kind is not None and not kind.owns:
            return True
        is_name = is_subdomain(namespace)
        return is_name and await self._may(request, caller, Reading("list", PODS, namespace))

    async def _types(
        self, request: web.Request, caller: Caller, namespace: str
    ) -> frozenset[ResourceType]:
        return await listable(self._access, request, caller, self.board.types, namespace)

    async def _may(self, request: web.Request, caller: Caller, reading: Reading) -> bool:
        return await is_allowed(self._access, request, caller, reading)
