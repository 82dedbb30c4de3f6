"""The exceptions of requests to the Kubernetes API.

The text of an exception names the verb, the object, the server's own message and, where known, the
remedy. The text never contains a body.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec

from edgeai import errors
from edgeai.errors import EdgeAIError, Unavailable
from edgeai.kube.remedies import OF_A_PROCESS, Remedies

MAX_RETRY_AFTER_S: Final = 300.0
_MAX_MESSAGE_CHARS: Final = 1000
_RIGHT_MISSING: Final = " cannot "  # in … "x" cannot list resource "pods" in API group ""
# Go's TLS servers answer this text to http://
_PLAIN_HTTP: Final = b"HTTP request to an HTTPS server"
# The API server passes on what etcd and its client say, with the status 500.
_TOO_LARGE: Final = ("etcdserver: request is too large", "trying to send message larger than max")


class ApiError(EdgeAIError):
    """A request to the Kubernetes API failed; also any status without a class of its own.

    Args:
        verb: as in RBAC: get list watch create update patch delete
        target: the object or type of the request, e.g. "deployments.apps default/digits-cloud"
        code: HTTP status; 0 when there was no answer
        reason: the machine-readable reason of the server's Status; "" when the Status has none
        message: the server's message, or a description of the failure
        retry_after_s: seconds that the server asks the client to wait
        remedy: what a person can do; "" when that is not known
        about: the object that the server names, which may differ from the target
    """

    def __init__(
        self,
        verb: str,
        target: str,
        *,
        code: int = 0,
        reason: str = "",
        message: str = "",
        retry_after_s: float = 0.0,
        remedy: str = "",
        about: "Details | None" = None,
    ) -> None:
        self.verb, self.target = verb, target
        self.code, self.reason, self.message = code, reason, message
        self.retry_after_s = retry_after_s
        self.remedy = remedy
        self.about = about
        status = f" ({code} {reason})".replace(" )", ")") if code else ""
        self.problem = f"{verb} {target}: {message}{status}"  # the text without the remedy
        super().__init__(self.problem + (remedy and f"; {remedy}"))


class Unauthorized(ApiError):
    """401: the API server does not know the credential."""


class Forbidden(ApiError):
    """403: the credential lacks a right. The message names the verb and resource."""


class NotFound(ApiError, errors.Gone):
    """404: no such object, or no such type (a CRD is not installed)."""


class AlreadyExists(ApiError):
    """409: an object of this name exists already."""


class Conflict(ApiError):
    """409: the object changed since it was read, or has another uid."""


class Expired(ApiError):
    """410: the resourceVersion is too old; list again."""


class BadRequest(ApiError, errors.Unwritable):
    """400: the request is malformed."""


class Invalid(ApiError, errors.Unwritable):
    """422: the object breaks its schema."""


class TooLarge(ApiError, errors.TooLarge):
    """413, or a 500 of etcd: the object would be larger than the API stores."""


class NotLeading(ApiError):
    """Not sent, or cancelled: only the leader may write, and another replica leads."""


class Malformed(ApiError):
    """The answer does not come from a Kubernetes API, but e.g. is a proxy's HTML page."""


class TooManyRequests(ApiError, Unavailable):
    """429."""


class ServerError(ApiError, Unavailable):
    """5xx."""


class Unreachable(ApiError, Unavailable):
    """There is no connection, or the connection broke."""


class Silent(Unreachable):
    """Nothing came over the connection in time."""


_BY_CODE: Final[Mapping[int, type[ApiError]]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    413: TooLarge,
    422: Invalid,
    429: TooManyRequests,
}


class Details(msgspec.Struct, frozen=True):
    """Which object a meta/v1 Status is about. `kind` has the plural, as in "configmaps"."""

    name: str = ""
    kind: str = ""


class Status(msgspec.Struct, frozen=True):
    """The fields of a meta/v1 Status that describe a failure. What is not here may be of any type:
    a gateway answers JSON of its own.
    """

    code: int = 0
    reason: str = ""
    message: str = ""
    details: Details | None = None


def from_answer(
    verb: str,
    target: str,
    code: int,
    body: bytes,
    retry_after: str | None = None,
    *,
    source: str = "the kubeconfig",
    remedies: Remedies = OF_A_PROCESS,
) -> ApiError:
    """The error for a non-2xx HTTP answer.

    Args:
        body: a JSON Status, or any bytes that a proxy sent instead
        retry_after: the Retry-After header, seconds as text
        source: the configuration that names the server and the credential
        remedies: what a person can do
    """
    try:
        status = msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        status = Status()
    remedy = remedies.unauthorized if code == HTTPStatus.UNAUTHORIZED else ""
    if code == HTTPStatus.BAD_REQUEST and _PLAIN_HTTP in body:
        remedy = remedies.plain_http
    # A Kubernetes API answers plain text for a group that it does not have.
    if not (remedy or status.message or code == HTTPStatus.NOT_FOUND):
        remedy = remedies.no_api
    message = status.message or f"HTTP {code} without a Status"
    return from_status(
        verb,
        target,
        msgspec.structs.replace(status, code=code, message=message),
        retry_after_s=_retry_after_s(code, retry_after),
        remedy=remedy.format(source=source),
        missing_right=remedies.missing_right,
    )


def from_status(
    verb: str,
    target: str,
    status: Status,
    *,
    retry_after_s: float = 0.0,
    remedy: str = "",
    missing_right: str = OF_A_PROCESS.missing_right,
) -> ApiError:
    """The error for a Status. The Status comes from an answer or from a watch's ERROR event."""
    # A quota or an admission plugin forbids requests, too; only RBAC says this.
    lacks_right = status.code == HTTPStatus.FORBIDDEN and _RIGHT_MISSING in status.message
    return _class_of(status)(
        verb,
        target,
        code=status.code,
        reason=status.reason,
        message=status.message[:_MAX_MESSAGE_CHARS],
        retry_after_s=retry_after_s,
        remedy=missing_right if lacks_right else remedy,
        about=status.details,
    )


def _class_of(status: Status) -> type[ApiError]:
    if status.reason == "AlreadyExists":
        return AlreadyExists
    if status.code >= 500:
        is_too_large = any(text in status.message for text in _TOO_LARGE)
        return TooLarge if is_too_large else ServerError
    return _BY_CODE.get(status.code, ApiError)


def _retry_after_s(code: int, header: str | None) -> float:
    """Seconds to wait; 1 when an overloaded server gives no time or gives a date."""
    if header is None and code != 429:
        return 0.0
    try:
        asked_s = float(header or "")
    except ValueError:
        return 1.0
    # In this order min and max also replace NaN and infinity by a bound.
    return max(0.0, min(MAX_RETRY_AFTER_S, asked_s))
