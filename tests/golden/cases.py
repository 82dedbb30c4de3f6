"""The inputs: manifests as users write them, each file with a head that says what it is about.

    about:   one sentence
    life:    full | short | spec | elastic: which moments, see `moments`; default: short
    absent:  ["Model/big"]  what is referred to and shall not exist; all else is there
    edit:    merge patch of the jobs' specs, for the moments after an edit; has a default
    reports: [{node, instance, worker, attempt, body}], folded one after the other; has a default

The manifests of edgeai/demo/, docs/ and tests/cluster/manifests are cases too, read where they are.
"""

import copy
import re
import string
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

import edgeai.demo.federated_learning.manifests as federated_learning
import edgeai.demo.joint_inference.manifests as joint_inference
from edgeai.cli.jobs.submitting import Loader
from tests.golden.world import Object

_LOADER: Final = type(
    "CaseLoader",
    (getattr(yaml, "CSafeLoader", yaml.SafeLoader),),
    {"yaml_implicit_resolvers": Loader.yaml_implicit_resolvers},
)
"""That of libyaml, where there is one: every test process reads the cases, also for other tests."""
_HERE: Final = Path(__file__).parent
_REPOSITORY: Final = _HERE.parents[1]
_DOCS: Final = ("datasets", "federated-learning", "install")
_PLACEHOLDERS: Final = {
    "EDGE_NODE": "edge0",
    "OTHER_EDGE_NODE": "edge1",
    "CLOUD_NODE": "cloud0",
}
_BLOCK: Final = re.compile(r"<<END\n(?P<here>.*?)^END$|^```yaml\n(?P<fence>.*?)^```", re.M | re.S)


@dataclass(frozen=True)
class Case:
    name: str
    about: str
    manifests: tuple[Object, ...]
    life: str = "short"
    absent: tuple[str, ...] = ()
    edit: dict[str, Any] | None = None
    reports: tuple[dict[str, Any], ...] | None = None


def load() -> list[Case]:
    """All cases, by name."""
    found = [*_files(), *_examples(), *_of_docs(), *_of_cluster_tests()]
    return sorted(found, key=lambda case: case.name)


def manifest(name: str) -> str:
    """The first manifest of the file of a case, as its user writes it."""
    return (_HERE / "cases" / f"{name}.yaml").read_text().split("---\n")[1]


def _files() -> Iterator[Case]:
    for path in (_HERE / "cases").glob("*.yaml"):
        head, *manifests = _documents(path.read_text())
        for field in ("absent", "reports"):
            if field in head:
                head[field] = tuple(head[field])
        yield Case(name=path.stem, manifests=tuple(manifests), **head)


def _examples() -> Iterator[Case]:
    files, python, checkout = Path("/files"), Path("/python3"), Path("/edgeai")
    service = joint_inference.Placement(
        files=files, python=python, checkout=checkout, edge_node="edge0"
    )
    job = federated_learning.Placement(files=files, python=python, checkout=checkout)
    made = {
        "joint-inference": joint_inference.objects(service),
        "federated-learning": federated_learning.objects(job),
    }
    for name, objects in made.items():
        # YAML's anchors give several workers one and the same dict.
        manifests = tuple(copy.deepcopy(objects))
        yield Case(f"example-{name}", f"examples/{name}", manifests, life="full")


def _of_docs() -> Iterator[Case]:
    for name in _DOCS:
        text = (_REPOSITORY / "docs" / f"{name}.md").read_text()
        blocks = (found["here"] or found["fence"] for found in _BLOCK.finditer(text))
        jobs = [document for block in blocks for document in _filled_in(block)]
        for number, manifests in enumerate(jobs):
            yield Case(f"docs-{name}-{number}", f"docs/{name}.md", tuple(manifests))


def _filled_in(block: str) -> Iterator[list[Object]]:
    """The block's manifests, if edgeai's groups are in it."""
    if "apiVersion: edgeai.io" in block or "apiVersion: sedna.io" in block:
        yield list(_documents(string.Template(block).safe_substitute(_PLACEHOLDERS)))


def _of_cluster_tests() -> Iterator[Case]:
    for path in (_REPOSITORY / "tests/cluster/manifests").glob("*.yaml"):
        manifests = tuple(_documents(path.read_text()))
        yield Case(path.stem, "as Sedna's users have it", manifests)


def _documents(text: str) -> Iterator[Any]:
    return (document for document in yaml.load_all(text, Loader=_LOADER) if document is not None)
