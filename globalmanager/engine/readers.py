"""Which nodes read the content of a job resource, because assignments of other jobs name it.

So a Model gets to the nodes of the services that use it, however these find their nodes.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from edgeai.api.resources import ObjectRef
from edgeai.api.rollouts import ModelVersion
from edgeai.ids import NodeName
from globalmanager.contract import Assignment


def _order(content: ModelVersion) -> tuple[Any, ...]:
    return content.number, msgspec.structs.astuple(content)


class Readers:
    def __init__(self) -> None:
        # input -> job -> node -> content
        self._nodes: dict[ObjectRef, dict[ObjectRef, Mapping[NodeName, ModelVersion | None]]] = {}
        self._inputs: dict[ObjectRef, frozenset[ObjectRef]] = {}  # job -> inputs
        self.are_complete = False
        """Whether the assignments of every job that existed at the start are here."""

    def nodes(self, input_: ObjectRef) -> Mapping[NodeName, ModelVersion | None]:
        """Where several jobs of a node read the input, the newest content of theirs counts: the
        version of an assignment never falls. Every replica chooses the same, also of two contents
        with one number.
        """
        first, *others = self._nodes.get(input_, {}).values() or [{}]
        if not others:
            return first
        nodes = dict(first)
        for job in others:
            for node, content in job.items():
                before = nodes.get(node, content)
                nodes[node] = max(before, content, key=_order) if before and content else None
        return nodes

    def set(self, job: ObjectRef, by_node: Mapping[NodeName, Assignment]) -> list[ObjectRef]:
        """Let exactly these assignments of `job` name inputs. Returns: inputs with other readers"""
        after: dict[ObjectRef, dict[NodeName, ModelVersion | None]] = {}
        for node, assignment in by_node.items():
            for input_, content in assignment.inputs.items():
                after.setdefault(input_, {})[node] = content
        names = self._inputs.get(job, frozenset()) | after.keys()
        changed = [name for name in names if self._put(name, job, after.get(name, {}))]
        if after:
            self._inputs[job] = frozenset(after)
        else:
            self._inputs.pop(job, None)
        return sorted(changed, key=str)

    def _put(
        self, input_: ObjectRef, job: ObjectRef, nodes: Mapping[NodeName, ModelVersion | None]
    ) -> bool:
        """Returns: whether `input_` has other readers now, or gives them other content"""
        before = self.nodes(input_)
        jobs = self._nodes.setdefault(input_, {})
        if nodes:
            jobs[job] = nodes
        else:
            jobs.pop(job, None)
        if not jobs:
            del self._nodes[input_]
        return before != self.nodes(input_)
