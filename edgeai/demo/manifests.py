"""Fills in the placeholders of the examples' manifests. Each example's `manifests` calls this."""

import argparse
import string
import sys
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import yaml

IN_IMAGE: Final = (Path("/opt/venv/bin/python3"), Path("/opt/edgeai"))  # deploy/containers


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """The placeholders of all examples, which the comment at the top of each manifest explains."""

    files: Path
    python: Path = Path(sys.executable)
    checkout: Path = Path(__file__).parents[2]
    image: str = "edgeai/example"
    cloud_node: str = "cloud0"
    namespace: str = "default"


AnyPlacement = TypeVar("AnyPlacement", bound=Placement)


def render(template: Path, placement: Placement) -> str:
    """The manifests of `template` as text for `kubectl apply -f -`, without the first comment.

    Each field of `placement` is the value of a placeholder. The placeholder has the name of the
    field in capital letters.
    """
    values = {name.upper(): value for name, value in msgspec.structs.asdict(placement).items()}
    body = template.read_text().split("\napiVersion", maxsplit=1)[1]
    return "apiVersion" + string.Template(body).substitute(values)


def objects(template: Path, placement: Placement) -> list[dict[str, Any]]:
    """The manifests of `template` as one dict for each resource."""
    return list(yaml.safe_load_all(render(template, placement)))


def resource(template: Path, placement: Placement) -> dict[str, Any]:
    """The one resource of `template`."""
    (object_,) = objects(template, placement)
    return object_


def parser(files: str) -> argparse.ArgumentParser:
    """Args: files: help text for the argument that names the directory of the files"""
    parser_ = argparse.ArgumentParser(description="Print the example's manifests.")
    parser_.add_argument("files", type=Path, help=files)
    parser_.add_argument("--cloud-node", default="cloud0", help="default: %(default)s")
    parser_.add_argument("--namespace", default="default", help="default: %(default)s")
    parser_.add_argument("--image", help="built from deploy/containers; not for the local cluster")
    return parser_


def placed(
    type_: type[AnyPlacement], arguments: argparse.Namespace, **further: Any
) -> AnyPlacement:
    """A placement from the arguments that `parser` has parsed, and from `further` fields."""
    common: dict[str, Any] = {"cloud_node": arguments.cloud_node, "namespace": arguments.namespace}
    if arguments.image:
        python, checkout = IN_IMAGE
        common |= {"image": arguments.image, "python": python, "checkout": checkout}
    return type_(files=arguments.files.absolute(), **(common | further))
