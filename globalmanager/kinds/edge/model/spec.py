"""Reads and checks the spec of a Model."""

from edgeai.api.model import ModelSpec
from edgeai.api.resources import Object
from edgeai.api.specs import parse_spec
from globalmanager.kinds.shared.storage import check_url


def read(object_: Object) -> ModelSpec:
    """The accepted spec. Raises: InvalidSpec"""
    spec = parse_spec(object_, ModelSpec)
    check_url(spec.url)
    return spec
