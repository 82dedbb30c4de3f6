"""Fills in the placeholders of the examples' manifests. Called by each example's `manifests`."""

import string
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

IN_IMAGE: Final = (Path("/opt/venv/bin/python3"), Path("/opt/edgeai"))  # deploy/containers


def render(template: Path, placement: msgspec.Struct) -> str:
    """The manifests of `template` as text for `kubectl apply -f -`, without the head that explains.

    Each field of `placement` is the value of the placeholder of its name, in capitals.
    """
    values = {name.upper(): value for name, value in msgspec.structs.asdict(placement).items()}
    body = template.read_text().split("\napiVersion", maxsplit=1)[1]
    return "apiVersion" + string.Template(body).substitute(values)


def objects(template: Path, placement: msgspec.Struct) -> list[dict[str, Any]]:
    """The same as one dict per resource."""
    return list(yaml.safe_load_all(render(template, placement)))
