"""Computes the assignments of a Model. Nodes whose workers load the model hot fetch its content.

The LocalController itself reports, as a worker with the names of the Model and of its node. The
grant of this worker has no secret, so no other process on the node can report in its place.
"""

from collections.abc import Mapping
from typing import Any, Final

from common.wire import THE_NODE_ITSELF
from edgeai.api.objects import is_being_deleted
from edgeai.api.rollouts import ModelVersion
from edgeai.api.status import mapping
from edgeai.ids import NodeName, WorkerName
from globalmanager.contract import Assignment, Observed
from globalmanager.kinds.edge.model.server import targets
from globalmanager.kinds.edge.references import newest_number

FIELDS: Final = ("url", "sha256", "credentialName")


def assignments(observed: Observed) -> Mapping[NodeName, Assignment]:
    """Node -> url, sha256 and credentialName: those of the spec, or those of the version that a
    rollout gives to the node.
    """
    if is_being_deleted(observed.object):
        return {}
    # After a wrong edit, too: a Model that left its nodes would take its last version with it. The
    # nodes refuse what is wrong, and keep that version.
    spec = mapping(observed.object.get("spec"))
    excerpt = {name: text for name in FIELDS if isinstance(text := spec.get(name, ""), str)}
    return {
        node: Assignment.of(
            observed,
            spec=excerpt if content is None else _excerpt(content),
            workers={worker_name(observed, node): THE_NODE_ITSELF},
            targets=targets(observed, content),
            version=number_of(observed, content),
        )
        for node, content in observed.readers.items()
    }


def _excerpt(content: ModelVersion) -> dict[str, Any]:
    texts = (content.url, content.sha256, content.credential_name)
    return dict(zip(FIELDS, texts, strict=True))


def number_of(observed: Observed, content: ModelVersion | None) -> int:
    return newest_number(observed.object) if content is None else content.number


def worker_name(observed: Observed, node: NodeName) -> WorkerName:
    return WorkerName(f"{observed.ref.name}-{node}")
