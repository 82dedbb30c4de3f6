"""From functions to joint inference and federated learning: `serve` and `federate`.

service = serve(small, large, inputs=images, hard_examples=("Threshold", {"threshold": 0.8}))
job = federate(fit, {"edge0": "/data/own.csv", "edge1": "/data/own.csv"}, model="/data/line.npz")
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from operator import index
from typing import Any, Final, Literal, SupportsIndex, get_args

from edgeai.api.jointinferenceservice import PARAMETERS
from edgeai.api.resources import Object
from edgeai.client.blocking import Client
from edgeai.client.handles import Job
from edgeai.client.objects import Dataset, FederatedLearningJob, JointInferenceService, Model
from edgeai.client.program import IMAGE_PYTHON, NotShippable, Part, container, program
from edgeai.client.submission import Submission, check, node_affinity, placement

Aggregation = Literal["FedAvg", "FedAvgM", "TrimmedMean"]
Criterion = str | tuple[str, Mapping[str, Any]] | Callable[[Any], bool]
_NO_FILE: Final = "/mnt"
"""A Model needs a place. Each node has this directory, and it is empty."""
_EDGE: Final = "node-role.kubernetes.io/edge"
_ON_EDGE: Final = {
    "nodeSelector": {_EDGE: ""},
    "tolerations": [{"key": _EDGE, "operator": "Exists"}],
}
_IN_CLOUD: Final = {
    "affinity": node_affinity([{"matchExpressions": [{"key": _EDGE, "operator": "DoesNotExist"}]}])
}
_HEALTH: Final = {"httpGet": {"path": "/healthz", "port": 5000}, "periodSeconds": 1}
_GRACE_S: Final = 10


class Service(Job):
    """A JointInferenceService. `wait` waits until both workers run."""


class Federation(Job):
    """A FederatedLearningJob."""


def serve(
    edge: Callable[..., Any],
    cloud: Callable[..., Any],
    *,
    inputs: Callable[[], Any],
    outputs: Callable[[Any, Any], object] | None = None,
    hard_examples: Criterion = "CrossEntropy",
    edge_model: str = "",
    cloud_model: str = "",
    on: Sequence[str] = (),
    image: str = "",
    name: str = "",
    namespace: str = "",
    client: Client | None = None,
) -> Service:
    """Start joint inference: `edge` answers, and `cloud` answers the hard examples.

    Each function imports what it needs inside, and gets its own arguments by `functools.partial`.

    Args:
        edge: from a batch, an array with a row for each sample, to one answer for each. Or a class
            with such a method, `predict`, and with or without `load`, which gets a path first
        cloud: as `edge`
        inputs: yields batches, on the edge node
        outputs: gets each batch and its results (edgeai.worker.InferenceResult), on the edge node
        hard_examples: an algorithm, with or without parameters ("Threshold", {"threshold": 0.8}),
            or a function: from an answer of `edge` to whether `cloud` shall answer
        edge_model: what `load` gets: a path on the node, or an s3, http or https URL
        cloud_model: as `edge_model`
        on: names of nodes, one of which runs `edge`; empty: any edge node
        image: has edgeai.worker and what the functions import; "" for the one of edgeai
        name, namespace, client: as of `train`
    Raises: as `train`
    """
    criterion = _optional(hard_examples if callable(hard_examples) else None, positional=1)
    mining = {} if callable(hard_examples) else {"hardExampleMining": _mining(hard_examples)}
    functions = (_model(edge), Part.of(inputs), _optional(outputs, positional=2), criterion)
    large = _model(cloud)
    submission = Submission.open("serve", edge, name, namespace, client)
    submission.check_nodes(on)
    template = partial(_template, submission, image)
    at_edge = template("serve_edge", functions, **(placement(on) or _ON_EDGE))
    in_cloud = template("serve_cloud", [large], **_IN_CLOUD)
    in_cloud["spec"]["containers"][0]["readinessProbe"] = _HEALTH
    names = [f"{submission.name}-{role}" for role in ("edge", "cloud")]
    spec = {
        "edgeWorker": {"model": {"name": names[0]}, "template": at_edge, **mining},
        "cloudWorker": {"model": {"name": names[1]}, "template": in_cloud},
    }
    urls = zip(names, (edge_model, cloud_model), strict=True)
    models = [(Model, model, {"url": url or _NO_FILE}) for model, url in urls]
    made = submission.create(JointInferenceService, spec, models)
    return Service(submission.client, made)


def federate(
    function: Callable[..., Any],
    datasets: Mapping[str, str] | Sequence[str],
    *,
    model: str,
    args: Mapping[str, Any] | None = None,
    load: Callable[[str], Any] | None = None,
    rounds: SupportsIndex = 10,
    aggregation: Aggregation = "FedAvg",
    image: str = "",
    name: str = "",
    namespace: str = "",
    client: Client | None = None,
) -> Federation:
    """Start federated learning: in each round, each node trains the function with its own data.

    The function imports what it needs inside. It gets the weights, arrays by name, and the data of
    its node. It returns the new weights, or a pair of these and metrics by name. For None it
    returns the weights that training begins with.

    Args:
        datasets: node -> path or URL of its data; or names of Datasets
        model: path of the result on each node, a NumPy archive
        args: more arguments of the function, as of `train`
        load: from the path to the data, the length of which is the number of samples. None: for CSV
            files of numbers with a header, which become arrays (samples, columns)
        aggregation: what makes one model of those of the nodes
        image, name, namespace, client: as of `serve`
    Raises: as `train`
    """
    functions = (
        Part.of(partial(function, **(args or {})), positional=2),
        _optional(load, positional=1),
    )
    _check_federation(datasets, model, rounds, aggregation)
    submission = Submission.open("federate", function, name, namespace, client)
    trainer = _template(submission, image, "train", functions)
    join = [index(rounds), str(aggregation)]
    aggregator = _template(submission, image, "aggregate", join, **_IN_CLOUD)
    places = datasets if isinstance(datasets, Mapping) else {}
    submission.check_nodes(places)
    made = [
        (Dataset, f"{submission.name}-{number}", {"url": url, "nodeName": node})
        for number, (node, url) in enumerate(places.items())
    ]
    names = [name for _, name, _ in made] or datasets
    spec = {
        "aggregationWorker": {"model": {"name": submission.name}, "template": aggregator},
        "trainingWorkers": [{"dataset": {"name": one}, "template": trainer} for one in names],
    }
    parts = [(Model, submission.name, {"url": model}), *made]
    return Federation(submission.client, submission.create(FederatedLearningJob, spec, parts))


def _check_federation(
    datasets: object, model: str, rounds: SupportsIndex, aggregation: str
) -> None:
    """Raises: InvalidObject"""
    has_data = bool(datasets) and not isinstance(datasets, str)
    is_number = isinstance(rounds, SupportsIndex) and index(rounds) > 0
    algorithms = get_args(Aggregation)
    remedy = f"use {', '.join(algorithms)}"
    rows = [
        ("datasets", not has_data, f"{datasets!r} has none", "use {node: path}, or a list"),
        ("model", not model.startswith("/"), f"{model!r} is no path", "begin it with /"),
        ("rounds", not is_number, f"{rounds!r} is no whole number above 0", "use 1 or more"),
        ("aggregation", aggregation not in algorithms, f"{aggregation!r} is unknown", remedy),
    ]
    check("federate", rows)


def _template(
    submission: Submission, image: str, work: str, arguments: Sequence[object], **pod: Any
) -> Object:
    """The pods of workers that run a function of edgeai.worker.functions.

    Args:
        work: the function
        arguments: of it: parts, and values of Python
        pod: fields of the pod
    Raises: NotShippable
    """
    parts = [one for one in arguments if isinstance(one, Part)]
    values = [one.value if isinstance(one, Part) else repr(one) for one in arguments]
    call = f"from edgeai.worker import functions\n    functions.{work}({', '.join(values)})"
    local = "local" if submission.local_python else ""
    worker = container(program(parts, call), python=submission.local_python or IMAGE_PYTHON)
    worker["name"] = "worker"
    worker["image"] = image or local or f"docker.io/edgeai/worker:{version('edgeai')}"
    return {"spec": {"containers": [worker], "terminationGracePeriodSeconds": _GRACE_S, **pod}}


def _optional(function: Callable[..., Any] | None, *, positional: int) -> Part | None:
    return None if function is None else Part.of(function, positional=positional)


def _model(model: Callable[..., Any]) -> Part:
    """Raises: NotShippable"""
    class_ = getattr(model, "func", model)
    if not isinstance(class_, type):
        return Part.of(model, positional=1)
    if not callable(getattr(class_, "predict", None)):
        raise NotShippable(class_, "has no method `predict`", "define predict(self, batch)")
    return Part.of(model)


def _mining(criterion: str | tuple[str, Mapping[str, Any]]) -> Object:
    """Raises: InvalidObject"""
    name, parameters = (criterion, {}) if isinstance(criterion, str) else criterion
    # BertRouter is of Sedna's library alone.
    algorithms = {key: set(PARAMETERS[key]) for key in PARAMETERS if key != "BertRouter"}
    unknown = [name] if name not in algorithms else sorted(parameters.keys() - algorithms[name])
    texts = (f"{key} ({', '.join(sorted(algorithms[key]))})" for key in algorithms)
    remedy = f"use a function, or one of {', '.join(texts)}"
    check("serve", [("hard_examples", True, f"{word!r} is unknown", remedy) for word in unknown])
    pairs = [{"key": key, "value": str(value)} for key, value in parameters.items()]
    return {"name": name, "parameters": pairs}
