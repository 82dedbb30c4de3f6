"""Turns every failure of a REST request into an answer with an ErrorView."""

from collections.abc import Mapping
from http import HTTPStatus
from types import MappingProxyType
from typing import Any, Final

import msgspec
from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from common.logs import get_logger
from edgeai.errors import EdgeAIError
from globalmanager.rest.routes import JSON
from globalmanager.rest.views import ErrorView

log = get_logger(__name__)

_PASSING: Final = (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.TOO_MANY_REQUESTS)


class RequestError(EdgeAIError):
    """The server answers the request with `status`. The message names the object and the remedy."""

    def __init__(
        self,
        status: HTTPStatus,
        message: str,
        *,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.status, self.message, self.headers = status, message, headers
        super().__init__(message)


def answer(view: Any, *, status: int = 200) -> web.Response:
    return web.Response(status=status, body=msgspec.json.encode(view), content_type=JSON)


def error_answer(status: int, message: str) -> web.Response:
    # In one word, as in the Kubernetes API: 404 -> NotFound.
    reason = HTTPStatus(status).phrase.title().replace(" ", "")
    return answer(ErrorView(code=status, reason=reason, message=message), status=status)


def answer_to(error: RequestError, response: web.Response) -> web.Response:
    """The response with the headers that the error demands."""
    response.headers.update(error.headers)
    if error.status in _PASSING:
        response.headers["Retry-After"] = "5"
    return response


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    response: web.StreamResponse
    try:
        if request.body_exists and request.match_info.route.method != hdrs.METH_POST:
            response = error_answer(413, f"{request.method} {request.path}: takes no body")
            # the connection still has the unread body, so it cannot be used again
            response.force_close()
        else:
            response = await handler(request)
    except RequestError as error:
        response = answer_to(error, error_answer(error.status, error.message))
    except web.HTTPMethodNotAllowed as error:
        allowed = ", ".join(sorted(error.allowed_methods))
        message = f"{request.method} {request.path}: read-only, allowed are {allowed}"
        response = error_answer(error.status, message)
        response.headers["Allow"] = allowed
    except web.HTTPException as error:
        message = f"{request.method} {request.path}: {error.reason}; see /openapi.json"
        response = error_answer(error.status, message)
    except Exception:  # the log has the details, which the client must not see
        log.exception("request failed", path=request.path)
        response = error_answer(500, f"{request.method} {request.path}: failed, see the log")
    return response


async def forbid_caching(_request: web.Request, response: web.StreamResponse) -> None:
    """Called before the headers of an answer are sent."""
    response.headers.setdefault("Cache-Control", "no-store")
    response.headers["X-Content-Type-Options"] = "nosniff"
