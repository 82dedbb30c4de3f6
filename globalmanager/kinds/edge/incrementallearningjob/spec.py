"""Reads and checks the spec of an IncrementalLearningJob, and names what it refers to."""

import re
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import urlsplit

from edgeai.api.incrementallearningjob import (
    OPERATORS,
    IncrementalLearningJobSpec,
    TrainedModel,
    Trigger,
)
from edgeai.api.resources import Object, ObjectRef
from edgeai.api.specs import InvalidSpec, check_object_name, check_service_name, parse_spec, shown
from edgeai.api.status import Truth, condition_of, mapping
from edgeai.api.workers import WorkerForm
from edgeai.ids import WorkerName
from globalmanager.contract import Job, Observed
from globalmanager.kinds.edge import mining
from globalmanager.kinds.edge import references as refs
from globalmanager.kinds.edge.worker_form import check, fixed_node
from globalmanager.kinds.shared import storage

TRAIN: Final = "train"
EVAL: Final = "eval"
INFERENCE: Final = "inference"
ROLES: Final = (TRAIN, EVAL, INFERENCE)
LEARNING: Final = "Learning"

SAMPLES: Final = "num_of_samples"
HARD_EXAMPLES: Final = "num_of_hard_examples"

_PUBLISH: Final = "spec.deploySpec.publish.name"
_CLOCK: Final = re.compile(r"(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)\Z")
# A LocalController tells four items of a list.
_METRIC: Final = re.compile(r"[^\[\]]+(\[[0-3]\])?\Z")


def read(object_: Object) -> IncrementalLearningJobSpec:
    """The accepted spec. Raises: InvalidSpec"""
    spec = parse_spec(object_, IncrementalLearningJobSpec)
    # The workers have such names, which become labels of their pods.
    check_service_name(object_["metadata"]["name"], f"-{INFERENCE}")
    for name, path in _named(spec):
        check_object_name(name, path, "Model")
    check_object_name(spec.dataset.name, "spec.dataset.name", "Dataset")
    if not spec.dataset.train_prob:
        problem, remedy = "leaves no sample to train on", "give a number above 0, for example 0.8"
        raise InvalidSpec("spec.dataset.trainProb", problem, remedy)
    for form, path in forms(spec):
        check(form, path)
    storage.check_url(spec.output_dir, "spec.outputDir")
    if not is_path(spec.output_dir):
        storage.check_bucket_url(spec.output_dir, "spec.outputDir")
    _check_publish(spec)
    _check_trigger(spec.train_spec.trigger, "spec.trainSpec.trigger")
    _check_trigger(spec.deploy_spec.trigger, "spec.deploySpec.trigger")
    condition = spec.train_spec.trigger.condition
    if condition and condition.metric not in (SAMPLES, HARD_EXAMPLES):
        problem = f"{shown(condition.metric)} is not known before training"
        remedy = f"use {SAMPLES} or {HARD_EXAMPLES}"
        raise InvalidSpec("spec.trainSpec.trigger.condition.metric", problem, remedy)
    mining.check(spec.deploy_spec.hard_example_mining, "spec.deploySpec.hardExampleMining")
    return spec


def _check_publish(spec: IncrementalLearningJobSpec) -> None:
    if spec.deploy_spec.publish is None:
        return
    for name, path in models(spec):
        if name == spec.deploy_spec.publish.name:
            problem = f"{shown(name)} is the Model of {path} too, and its change would end rounds"
            raise InvalidSpec(_PUBLISH, problem, "name another Model, which services use")
    if is_path(spec.output_dir):
        problem = f"{shown(spec.output_dir)} is a directory of one node, and no other can fetch it"
        remedy = "give the s3 URL of a directory in a bucket, or leave out spec.deploySpec.publish"
        raise InvalidSpec("spec.outputDir", problem, remedy)


def _check_trigger(trigger: Trigger, path: str) -> None:
    condition = trigger.condition
    if condition and condition.operator not in OPERATORS:
        problem = f"{shown(condition.operator)} is no operator"
        raise InvalidSpec(f"{path}.condition.operator", problem, f"use {', '.join(OPERATORS)}")
    if condition and not _METRIC.match(condition.metric):
        problem = f"{shown(condition.metric)} is no name of a metric"
        remedy = "write it like precision_delta or precisions[3]"
        raise InvalidSpec(f"{path}.condition.metric", problem, remedy)
    times = {"start": trigger.timer.start, "end": trigger.timer.end} if trigger.timer else {}
    for field, text in times.items():
        # From 24:00 on is from 00:00 on; but between 24:00 and 24:00 there is no minute.
        if not _CLOCK.match(text) or set(times.values()) == {"24:00"}:
            problem = f"{shown(text)} is no time of day"
            raise InvalidSpec(f"{path}.timer.{field}", problem, 'write it like "02:00"')


def forms(spec: IncrementalLearningJobSpec) -> tuple[tuple[WorkerForm, str], ...]:
    paths = ("spec.trainSpec", "spec.evalSpec", "spec.deploySpec")
    return tuple(zip((spec.train_spec, spec.eval_spec, spec.deploy_spec), paths, strict=True))


def models(spec: IncrementalLearningJobSpec) -> Iterator[tuple[str, str]]:
    """The name of each Model that workers read, with its path."""
    yield spec.initial_model.name, "spec.initialModel.name"
    yield spec.deploy_spec.model.name, "spec.deploySpec.model.name"
    if spec.eval_spec.initial_eval_model:
        yield spec.eval_spec.initial_eval_model.name, "spec.evalSpec.initialEvalModel.name"


def _named(spec: IncrementalLearningJobSpec) -> Iterator[tuple[str, str]]:
    """Those, and the Model that the deployed models are published by."""
    yield from models(spec)
    if spec.deploy_spec.publish:
        yield spec.deploy_spec.publish.name, _PUBLISH


def samples(observed: Observed, spec: IncrementalLearningJobSpec) -> int | None:
    """The number of samples in the Dataset as its spec now is; None: not known."""
    ref = refs.dataset_ref(observed, spec.dataset.name)
    dataset = observed.references.get(ref, {"metadata": {}})
    counted, generation = condition_of(dataset, "Counted"), dataset["metadata"].get("generation")
    # After an edit of its url, the number is that of the former data until the node has counted.
    is_current = counted.get("observedGeneration") == generation
    if generation is not None and not (is_current and counted.get("status") == Truth.TRUE):
        return None
    return refs.dataset_samples(observed, spec.dataset.name)


def model_format(observed: Observed, name: str) -> str:
    ref = refs.model_ref(observed, name)
    spec = mapping(observed.references.get(ref, {}).get("spec"))
    return str(spec.get("format") or "")


def of_format(models: list[TrainedModel], format_: str) -> str:
    """The URL of the model in this format, or else of the first one; "" without models."""
    same = (model.url for model in models if model.format == format_)
    return next(same, models[0].url if models else "")


def worker_name(observed: Observed, role: str) -> WorkerName:
    return WorkerName(f"{observed.ref.name}-{role}")


def is_path(url: str) -> bool:
    """Whether the data stay on the node."""
    return not urlsplit(url).scheme


def job_directory(observed: Observed) -> str:
    # By the uid, because another job, or this one made again, may have the same outputDir.
    return f"{observed.ref.name}-{observed.uid[:8]}"


def directory(observed: Observed, spec: IncrementalLearningJobSpec) -> str:
    return f"{spec.output_dir.rstrip('/')}/{job_directory(observed)}"


def node_of(observed: Observed, spec: IncrementalLearningJobSpec, role: str) -> str:
    """Where the worker runs; "" while the Dataset does not exist."""
    form = {TRAIN: spec.train_spec, EVAL: spec.eval_spec, INFERENCE: spec.deploy_spec}[role]
    return fixed_node(form) or refs.dataset_node(observed, spec.dataset.name)


# ---- references ---------------------------------------------------------------------------------


def references(job: Job) -> frozenset[ObjectRef]:
    spec: IncrementalLearningJobSpec | None = job.spec
    if spec is None:
        return frozenset()
    named = refs.named(
        job,
        models=[name for name, _ in _named(spec)],
        datasets=[spec.dataset.name],
        forms=[form for form, _ in forms(spec)],
    )
    secret = spec.credential_name
    return named | {refs.secret_ref(job.ref.namespace, name) for name in (secret,) if name}


def obstacles(observed: Observed, spec: IncrementalLearningJobSpec) -> tuple[refs.Obstacle, ...]:
    """What the job waits for: missing objects and images. When none is missing: what clashes."""
    missing = tuple(entry for entry in _missing(observed, spec) if entry is not None)
    return missing or tuple(_clashes(observed, spec))


def _missing(
    observed: Observed, spec: IncrementalLearningJobSpec
) -> Iterator[refs.Obstacle | None]:
    for name, path in _named(spec):
        yield refs.model_obstacle(observed, name, path)
    for worker in (spec.train_spec, spec.eval_spec):
        name, node = spec.dataset.name, fixed_node(worker)
        yield refs.dataset_obstacle(observed, name, "spec.dataset.name", node=node)
    if spec.credential_name:
        yield refs.secret_obstacle(observed, spec.credential_name, "spec.credentialName")
    place = f"{spec.output_dir}/model"
    if fault := storage.fault_of_place(place, observed.settings, "spec.outputDir"):
        yield refs.Obstacle("PathNotAllowed", str(fault))
    for form, path in forms(spec):
        yield from refs.worker_obstacles(observed, form, path)


def forbidden(observed: Observed, urls: Iterable[str]) -> Iterator[refs.Obstacle]:
    """Data of the rounds that workers may not have, or no longer."""
    for url in urls:
        if fault := storage.fault_of_place(url, observed.settings):
            text = f".status: {fault.problem}; {fault.remedy}"
            yield refs.Obstacle("PathNotAllowed", text)


def _clashes(observed: Observed, spec: IncrementalLearningJobSpec) -> Iterator[refs.Obstacle]:
    place, node = node_of(observed, spec, INFERENCE), node_of(observed, spec, TRAIN)
    if is_path(spec.output_dir) and place != node:
        text = f"spec.outputDir is a directory of node {node}, and spec.deploySpec runs on {place}"
        yield refs.Obstacle("OutputElsewhere", f"{text}: give both one node, or use an s3 URL")
    sources = [refs.model_source(observed, name, env="") for name, _ in models(spec)]
    output = storage.Source(env="", url=spec.output_dir, credential=spec.credential_name)
    data = refs.dataset_source(observed, spec.dataset.name, env="")
    yield from refs.clashing_keys([*sources, data, output])
