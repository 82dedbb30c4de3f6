"""Publishes the deployed model: its URL becomes that of a Model, which services roll out.

The state says for which round this was done. It is done once for each, so an edit of the Model
after that stands, and so does what a rollout takes back. Pure and total.
"""

from collections.abc import Iterator

from msgspec.structs import replace

from edgeai.api.incrementallearningjob import IncrementalLearningJobSpec, Published
from globalmanager.contract import Event, Observed, Patch, Severity
from globalmanager.kinds.edge import references as refs
from globalmanager.kinds.edge.incrementallearningjob import rounds, workers
from globalmanager.kinds.edge.incrementallearningjob import spec as types
from globalmanager.kinds.edge.incrementallearningjob.state import State


def noted(observed: Observed, spec: IncrementalLearningJobSpec, state: State) -> State:
    """The state once the Model has the URL."""
    due = _due(observed, spec, state)
    is_done = due is not None and refs.model_source(observed, due.model, env="").url == due.url
    return replace(state, published=due) if is_done else state


def patches(observed: Observed, spec: IncrementalLearningJobSpec, state: State) -> Iterator[Patch]:
    """What gives the Model the URL."""
    due = _due(observed, spec, state)
    if due is not None:
        ref = refs.model_ref(observed, due.model)
        # The digest is that of the content before.
        yield Patch(ref, {"spec": {"url": due.url, "sha256": None}})


def events(before: State, after: State) -> Iterator[Event]:
    new = after.published
    if new is not None and new != before.published:
        text = f"Model {new.model} has the model of round {new.round} now: {new.url}"
        yield Event(Severity.NORMAL, "Published", text)


def _due(observed: Observed, spec: IncrementalLearningJobSpec, state: State) -> Published | None:
    """What the Model must get; None: it has got the deployed model, or there is none."""
    target, deployed, current = spec.deploy_spec.publish, state.deployed, state.current
    # While a round deploys its model, nobody knows whether the model can be loaded.
    if current is not None and rounds.is_deployed(state, current):
        return None
    url = workers.deployed_url(spec, state)
    if target is None or deployed is None or not url:
        return None
    last = state.published
    if last is not None and (last.round, last.model) == (deployed.round, target.name):
        return None
    url = types.of_format(deployed.models, types.model_format(observed, target.name)) or url
    # Others may write the status too. And a model from before an edit of outputDir may be a file of
    # one node.
    is_own = url.startswith(f"{types.directory(observed, spec)}/")
    is_right = is_own and len(url) <= refs.MAX_URL_CHARS
    return Published(deployed.round, target.name, url) if is_right else None
