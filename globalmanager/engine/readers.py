"""Which nodes read the content of a job resource, because assignments of other jobs name it.

So a Model gets to the nodes of the services that use it, however these find their nodes.
"""

from collections.abc import Collection, Mapping

from edgeai.api.resources import ObjectRef
from edgeai.ids import NodeName
from globalmanager.contract import Assignment


class Readers:
    def __init__(self) -> None:
        # input -> job -> nodes
        self._nodes: dict[ObjectRef, dict[ObjectRef, frozenset[NodeName]]] = {}
        self._inputs: dict[ObjectRef, frozenset[ObjectRef]] = {}  # job -> inputs
        self.are_complete = False
        """Whether the assignments of every job that existed at the start are here."""

    def nodes(self, input_: ObjectRef) -> frozenset[NodeName]:
        return frozenset().union(*self._nodes.get(input_, {}).values())

    def set(self, job: ObjectRef, by_node: Mapping[NodeName, Assignment]) -> list[ObjectRef]:
        """Let exactly these assignments of `job` name inputs. Returns: inputs with other readers"""
        after: dict[ObjectRef, set[NodeName]] = {}
        for node, assignment in by_node.items():
            for input_ in assignment.inputs:
                after.setdefault(input_, set()).add(node)
        names = self._inputs.get(job, frozenset()) | after.keys()
        changed = [name for name in names if self._put(name, job, after.get(name, ()))]
        if after:
            self._inputs[job] = frozenset(after)
        else:
            self._inputs.pop(job, None)
        return sorted(changed, key=str)

    def _put(self, input_: ObjectRef, job: ObjectRef, nodes: Collection[NodeName]) -> bool:
        """Returns: whether `input_` has other readers now"""
        before = self.nodes(input_)
        jobs = self._nodes.setdefault(input_, {})
        if nodes:
            jobs[job] = frozenset(nodes)
        else:
            jobs.pop(job, None)
        if not jobs:
            del self._nodes[input_]
        return before != self.nodes(input_)
