"""What asks, a page, its stream or a part of it, and where answers lead. Called by `handlers`."""

import http
from typing import Final
from urllib.parse import quote, urlencode

from aiohttp import web

from globalmanager.rest.console.board import Sight
from globalmanager.rest.console.live import event
from globalmanager.rest.console.theme import theme

LOGIN: Final = "/login"


def scope(sight: Sight) -> str:
    """What links add, so that the chosen namespace stays."""
    return f"?{urlencode({'namespace': sight.namespace})}" if sight.namespace else ""


def is_stream(request: web.Request) -> bool:
    return "text/event-stream" in request.headers.get("Accept", "")


def is_part(request: web.Request) -> bool:
    """Whether the script of an open page asks, and puts the answer into the page."""
    return "HX-Request" in request.headers


def to_login(request: web.Request) -> web.Response:
    """Leads to the login, and from there back to the page of the request. An open page says so, and
    asks for no further changes.
    """
    resource = request.match_info.route.resource  # its path is a pattern: a job may be named events
    pattern = "" if resource is None else resource.canonical
    is_page = request.method == "GET" and not pattern.endswith(("/events", "/curve"))
    page = request.path_qs if is_page else request.path.rpartition("/")[0] or "/"
    address = f"{LOGIN}?next={quote(page)}"
    if is_stream(request):
        told = theme().block("ended.html", "ended", address=address)
        text = event("page", told) + event("end", "-")
        return web.Response(text=text, content_type="text/event-stream")
    if is_part(request):
        headers = {"HX-Redirect": address}
        return web.Response(status=http.HTTPStatus.UNAUTHORIZED, headers=headers)
    return see(address)


def see(path: str) -> web.Response:
    return web.Response(status=http.HTTPStatus.SEE_OTHER, headers={"Location": path})
