"""What asks, a page, its stream or a part of it, and where answers lead."""

from http import HTTPStatus
from typing import Final
from urllib.parse import quote, urlencode

from aiohttp import web

from globalmanager.rest.console.board import Sight
from globalmanager.rest.console.live import event
from globalmanager.rest.console.theme import theme
from globalmanager.rest.errors import RequestError

LOGIN: Final = "/login"
DONE: Final = "done"
"""Parameter of a page that tells which action was done."""
_KEPT: Final = {"Cache-Control": "private, max-age=31536000, immutable"}


def scope(sight: Sight, *, done: str = "") -> str:
    """What links add to keep the namespace. Args: done: the action that leads there"""
    query = {"namespace": sight.namespace, DONE: done}
    text = urlencode({key: value for key, value in query.items() if value})
    return f"?{text}" if text else ""


def done_action(request: web.Request) -> str:
    """The action that led to the page; "" where a page of another site leads there."""
    is_own = request.headers.get("Referer", "").split("/")[2:3] == [request.host]
    return request.query.get(DONE, "") if is_own else ""


def is_stream(request: web.Request) -> bool:
    return request.method == "GET" and "text/event-stream" in request.headers.get("Accept", "")


def is_part(request: web.Request) -> bool:
    """Whether the script of an open page asks, and puts the answer into the page."""
    return "HX-Request" in request.headers


def job_path(request: web.Request) -> str:
    """The page of the job that an action or a part is about; "" for other requests."""
    at = request.match_info
    is_about_job = "name" in at and "type" in at
    page = f"/jobs/{at['type']}/{at['namespace']}/{at['name']}" if is_about_job else ""
    return "" if request.path == page else quote(page)


def to_login(request: web.Request) -> web.Response:
    """Leads to the login, and then back. An open page says so, and asks for no further changes."""
    resource = request.match_info.route.resource  # its path is a pattern: a job may be named events
    pattern = "" if resource is None else resource.canonical
    is_page = request.method == "GET" and not pattern.endswith(("/events", "/curve", "/guard"))
    page = request.path_qs if is_page else request.path.rpartition("/")[0] or "/"
    address = f"{LOGIN}?next={quote(page)}"
    if is_stream(request):
        notice = theme().block("ended.html", "ended", address=address)
        text = event("page", notice) + event("end", "-")
        return web.Response(text=text, content_type="text/event-stream")
    if is_part(request):
        headers = {"HX-Redirect": address}
        return web.Response(status=HTTPStatus.UNAUTHORIZED, headers=headers)
    return see(address)


def see(path: str) -> web.Response:
    return web.Response(status=HTTPStatus.SEE_OTHER, headers={"Location": path})


async def send_file(request: web.Request) -> web.StreamResponse:
    """Raises: RequestError"""
    name = request.match_info["name"]
    file = theme().files.get(name)
    if file is None:
        raise RequestError(HTTPStatus.NOT_FOUND, f"{name[:64]!r}: no such file")
    return web.Response(body=file.body, content_type=file.content_type, headers=_KEPT)
