"""Reads a Model, and says whether workers can use the scheme and the path of the Model's URL, and
whether the nodes have its content.
"""

from datetime import datetime

from edgeai.api.model import ModelSpec
from edgeai.api.objects import is_being_deleted
from edgeai.api.resources import Object
from edgeai.api.specs import parse_spec
from globalmanager.contract import Observed, Plan
from globalmanager.kinds.edge.model.delivery import delivery
from globalmanager.kinds.edge.model.history import history
from globalmanager.kinds.shared import status, storage


def read(object_: Object) -> ModelSpec:
    """The accepted spec. Raises: InvalidSpec"""
    spec = parse_spec(object_, ModelSpec)
    storage.check_url(spec.url)
    return spec


def plan(observed: Observed, now: datetime) -> Plan:
    if is_being_deleted(observed.object):
        return Plan()
    # A change of the prefixes takes effect without an edit of the Model.
    fault = observed.invalid or storage.fault_of_place(observed.spec.url, observed.settings)
    delivered, fields = delivery(observed)
    findings = [status.rejected(fault)] if fault else [status.accepted(), *delivered]
    return Plan(
        status=status.subtree(
            observed,
            {
                "observedGeneration": observed.generation,
                "conditions": status.conditions(observed, findings, now),
                **fields,
                **history(observed, now),
            },
        ),
        events=status.events(observed, findings),
    )
