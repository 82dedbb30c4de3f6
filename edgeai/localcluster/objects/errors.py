"""Errors of the API. The reasons and the texts are the same as in Kubernetes.

An APIError becomes a `Status` object. Only `api.server` translates the errors to HTTP.
"""

from collections.abc import Sequence

import msgspec

from edgeai.localcluster.errors import ClusterError
from edgeai.localcluster.objects.resources import Object, Resource


class APIError(ClusterError):
    """An error that a client gets as a `Status` object."""

    code = 500
    reason = "InternalError"

    def __init__(self, message: str, details: Object | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details

    def status(self) -> Object:
        status: Object = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if self.details:
            status["details"] = self.details
        return status


class BadRequest(APIError):
    code, reason = 400, "BadRequest"


def undecodable(resource: Resource, why: object) -> BadRequest:
    """The error for an object that does not have the types of its kind."""
    return BadRequest(
        f'{resource.kind} in version "{resource.version}" cannot be handled as a'
        f" {resource.kind}: {why}"
    )


class Unauthorized(APIError):
    code, reason = 401, "Unauthorized"


class Forbidden(APIError):
    code, reason = 403, "Forbidden"


class NotFound(APIError):
    """The API has no such path. For a missing object use `NotFound.named`."""

    code, reason = 404, "NotFound"

    @classmethod
    def named(cls, resource: Resource, name: str) -> "NotFound":
        message = f'{resource.group_resource} "{name}" not found'
        return cls(message, details(resource, name))


class MethodNotAllowed(APIError):
    code, reason = 405, "MethodNotAllowed"


class RequestTimeout(APIError):
    code, reason = 408, "RequestTimeout"


class AlreadyExists(APIError):
    code, reason = 409, "AlreadyExists"

    def __init__(self, resource: Resource, name: str) -> None:
        message = f'{resource.group_resource} "{name}" already exists'
        super().__init__(message, details(resource, name))


class Conflict(APIError):
    code, reason = 409, "Conflict"

    def __init__(self, resource: Resource, name: str, why: str) -> None:
        message = f'Operation cannot be fulfilled on {resource.group_resource} "{name}": {why}'
        super().__init__(message, details(resource, name))


class Gone(APIError):
    code, reason = 410, "Expired"


class TooLarge(APIError):
    code, reason = 413, "RequestEntityTooLarge"


class UnsupportedMediaType(APIError):
    code, reason = 415, "UnsupportedMediaType"


class FieldError(msgspec.Struct, frozen=True):
    """`reason` is a cause of the Kubernetes API, as FieldValueInvalid; `detail` is for the user."""

    field: str
    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.field}: {self.detail}"


def required(field: str, why: str = "") -> FieldError:
    return FieldError(field, "FieldValueRequired", f"Required value: {why}".rstrip(": "))


def invalid(field: str, value: object, why: str) -> FieldError:
    return FieldError(field, "FieldValueInvalid", f"Invalid value: {quoted(value)}: {why}")


def forbidden(field: str, why: str) -> FieldError:
    return FieldError(field, "FieldValueForbidden", f"Forbidden: {why}")


def duplicate(field: str, value: object) -> FieldError:
    return FieldError(field, "FieldValueDuplicate", f"Duplicate value: {quoted(value)}")


def unsupported(field: str, value: object, allowed: Sequence[object]) -> FieldError:
    choices = ", ".join(quoted(choice) for choice in allowed)
    detail = f"Unsupported value: {quoted(value)}: supported values: {choices}"
    return FieldError(field, "FieldValueNotSupported", detail)


def quoted(value: object) -> str:
    """The first 200 characters of a value's JSON."""
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= 200 else text[:200] + "…"


class Unprocessable(APIError):
    """The API cannot apply a patch to the patch's object."""

    code, reason = 422, "Invalid"


class Invalid(APIError):
    """The API can decode an object, but some fields of the object have wrong values."""

    code, reason = 422, "Invalid"

    def __init__(self, resource: Resource, name: str, faults: Sequence[FieldError]) -> None:
        texts = ", ".join(str(fault) for fault in faults)
        text = texts if len(faults) == 1 else f"[{texts}]"
        kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
        reference = details(resource, name) | {"kind": resource.kind}
        reference["causes"] = [
            {"reason": fault.reason, "message": fault.detail, "field": fault.field}
            for fault in faults
        ]
        super().__init__(f'{kind} "{name}" is invalid: {text}', reference)
        self.faults = tuple(faults)


def invalid_options(verb: str, fault: FieldError) -> Invalid:
    """Args: verb: Create, Update, Patch or Delete"""
    kind = f"{verb}Options"
    options = Resource(group="meta.k8s.io", version="v1", plural=kind.lower(), kind=kind)
    return Invalid(options, "", [fault])


class InternalError(APIError):
    code, reason = 500, "InternalError"


class EtcdTooLarge(APIError):
    """The answer of a Kubernetes API server whose etcd refuses an object of more than 1.5 MiB."""

    code, reason = 500, ""

    def __init__(self) -> None:
        super().__init__("etcdserver: request is too large")


class OutOfSpace(APIError):
    code, reason = 507, "InsufficientStorage"


def details(resource: Resource, name: str) -> Object:
    """The `details` of a Status: name, kind and group of the object that the Status is about."""
    reference: Object = {"name": name, "kind": resource.plural}
    return reference | {"group": resource.group} if resource.group else reference
