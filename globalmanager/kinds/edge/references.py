"""The objects that a job refers to: their names, and which of the objects are missing.

A job with missing references waits, and the job's status names the missing objects. A missing
reference is not an error, because `kubectl apply` may create objects in any order.
"""

import contextlib
import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import urlsplit

import msgspec

from edgeai.api.resources import NODES, SECRETS, Object, ObjectRef, ResourceType
from edgeai.api.specs import InvalidSpec, parse_spec, shown
from edgeai.api.status import Finding, Truth, condition_of, count_of, mapping
from edgeai.api.workers import WorkerForm
from edgeai.ids import is_subdomain
from globalmanager.contract import Job, Observed
from globalmanager.kinds.edge.worker_form import fixed_node, framework
from globalmanager.kinds.shared import storage

MAX_URL_CHARS: Final = 2048
"""Of content that a rollout gives to nodes; the status of the rollout has it twice."""
RESOLVED_REFS: Final = "ResolvedRefs"

# Unknown and not False: a wrong spec says nothing of the objects that the right one names.
UNRESOLVED: Final = Finding(
    RESOLVED_REFS, Truth.UNKNOWN, "InvalidSpec", "not looked for: the spec is not accepted"
)


class Obstacle(msgspec.Struct, frozen=True):
    """One thing that a job waits for. `message` names it, the field that wants it, and a remedy."""

    reason: str
    message: str


class DataSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The fields of a Model or Dataset that jobs read. A Model has no node and no format."""

    url: str
    credential_name: str = ""
    node_name: str = ""
    format: str = ""
    sha256: str = ""


def model_ref(job: Job, name: str) -> ObjectRef:
    """The reference to a Model in the namespace and the API group of the job."""
    # A job of sedna.io refers to a Model of sedna.io, so a manifest of Sedna works unchanged.
    model = ResourceType(job.type.group, job.type.version, "models", "Model")
    return ObjectRef(model, job.ref.namespace, name)


def content_of(model: Object) -> DataSpec:
    """What a Model names, for nodes that fetch it. Raises: InvalidSpec"""
    data = _data_of(model)
    if not urlsplit(data.url).scheme or len(data.url) > MAX_URL_CHARS:
        raise InvalidSpec("spec.url", "cannot be delivered", "give it a URL")
    return data


def newest_number(model: Object) -> int:
    """The version of an assignment with what the Model names now."""
    generation = int(model["metadata"].get("generation", 1))
    return generation + count_of(mapping(model.get("status")).get("returns"))


def dataset_ref(job: Job, name: str) -> ObjectRef:
    """As `model_ref`, to a Dataset."""
    dataset = ResourceType(job.type.group, job.type.version, "datasets", "Dataset")
    return ObjectRef(dataset, job.ref.namespace, name)


def node_ref(name: str) -> ObjectRef:
    return ObjectRef(NODES, "", name)


def secret_ref(namespace: str, name: str) -> ObjectRef:
    return ObjectRef(SECRETS, namespace, name)


def secrets(references: Mapping[ObjectRef, Object]) -> frozenset[ObjectRef]:
    """The Secrets with the keys of the Models and Datasets among `references`."""
    refs: set[ObjectRef] = set()
    for ref, object_ in references.items():
        if ref.type.kind in ("Model", "Dataset"):
            # The plan of the job names the fault of the Model. This only says what to read.
            with contextlib.suppress(InvalidSpec):
                names = storage.secrets([_source(object_)])
                refs.update(secret_ref(ref.namespace, name) for name in names)
    return frozenset(refs)


def named(
    job: Job,
    *,
    models: Iterable[str],
    datasets: Iterable[str] = (),
    forms: Iterable[WorkerForm],
) -> frozenset[ObjectRef]:
    """The objects that a job names: Models and Datasets of its namespace, Nodes of its workers."""
    return frozenset(
        (
            *(model_ref(job, name) for name in models),
            *(dataset_ref(job, name) for name in datasets),
            *(node_ref(fixed_node(form)) for form in forms if fixed_node(form)),
        )
    )


def model_obstacle(observed: Observed, name: str, path: str) -> Obstacle | None:
    return _data_obstacle(observed, model_ref(observed, name), path)


def content_obstacle(observed: Observed, name: str, path: str) -> Obstacle | None:
    """Why a node cannot fetch the content of a Model that is not missing otherwise."""
    ref = model_ref(observed, name)
    try:
        url = _data_of(observed.references[ref]).url
    except (KeyError, InvalidSpec):  # `model_obstacle` names the fault
        return None
    if urlsplit(url).scheme:
        return None
    text = f"Model {ref.namespace}/{name} is a file of the node ({path})"
    return Obstacle("ModelNotDelivered", f"{text}: give it an s3, http or https URL")


def dataset_obstacle(observed: Observed, name: str, path: str, *, node: str) -> Obstacle | None:
    """The reason why a worker cannot use the Dataset; None when it can.

    Args: node: node of the worker that reads the Dataset; "" when the worker runs on the
        Dataset's node
    """
    ref = dataset_ref(observed, name)
    obstacle = _data_obstacle(observed, ref, path)
    if obstacle:
        return obstacle
    # A path on another node is other data, or a directory for which a pod waits for ever.
    elsewhere = dataset_node(observed, name)
    subject = f"Dataset {ref.namespace}/{name} ({path})"
    if not node:
        return _unfit(observed.references[ref], elsewhere, subject)
    if node == elsewhere:
        return None
    text = f"{subject} is on node {elsewhere}, its worker on {node}"
    return Obstacle("DatasetElsewhere", f"{text}: give both the same node")


def file_obstacle(observed: Observed, name: str, path: str, *, node: str) -> Obstacle | None:
    """As `dataset_obstacle`, for a worker that writes the Dataset: a file of lines of JSON."""
    obstacle = dataset_obstacle(observed, name, path, node=node)
    if obstacle:
        return obstacle
    data = _data_of(observed.references[dataset_ref(observed, name)])
    format_ = data.format or posixpath.splitext(data.url)[1].removeprefix(".")
    if not urlsplit(data.url).scheme and format_ in ("jsonl", "ndjson"):
        return None
    text = f"Dataset {observed.ref.namespace}/{name} ({path}) is no file of lines of JSON"
    return Obstacle("DatasetInvalid", f"{text}: give it the path of a file on its node, and jsonl")


def _unfit(dataset: Object, node: str, subject: str) -> Obstacle | None:
    """Why no worker can run on the Dataset's node. The Dataset's status tells if there is one."""
    # Without a node in its pod, a trainer would start anywhere, away from its data.
    if not is_subdomain(node):
        return Obstacle("DatasetInvalid", f"{subject}: spec.nodeName names no node: correct it")
    # Kubernetes deletes a pod on a missing node, and the plan would make it again and again.
    condition = condition_of(dataset, RESOLVED_REFS)
    # A condition about an earlier generation says nothing about the present node.
    is_current = condition.get("observedGeneration") == dataset["metadata"].get("generation")
    if condition.get("status") == Truth.FALSE and is_current:
        return Obstacle(str(condition.get("reason")), f"{subject}: {condition.get('message')}")
    return None


def _data_obstacle(observed: Observed, ref: ObjectRef, path: str) -> Obstacle | None:
    data = observed.references.get(ref)
    subject = f"{ref.type.kind} {ref.namespace}/{ref.name} ({path})"
    if data is None:
        text = f"{subject} does not exist in group {ref.type.group}: create it"
        return Obstacle(f"{ref.type.kind}NotFound", text)
    try:
        url = _data_of(data).url
    except InvalidSpec as error:
        return Obstacle(f"{ref.type.kind}Invalid", f"{subject}: {error}")
    # The prefixes are settings of the GlobalManager, which `read` of a Model does not have.
    if fault := storage.fault_of_place(url, observed.settings):
        return Obstacle("PathNotAllowed", f"{subject}: {fault}")
    # A pod without the Secret could not read the bucket.
    for name in storage.secrets([_source(data)]):
        return secret_obstacle(observed, name, f"credentialName of {subject}")
    return None


def secret_obstacle(observed: Observed, name: str, path: str) -> Obstacle | None:
    """Why no worker can use a bucket with the Secret; None when workers can."""
    secret = observed.references.get(secret_ref(observed.ref.namespace, name))
    subject = (
        f"Secret {observed.ref.namespace}/{name if is_subdomain(name) else shown(name)} ({path})"
    )
    if secret is None:
        return Obstacle("SecretNotFound", f"{subject} does not exist: create it or correct this")
    try:
        # With a wrong server a worker would ask another store, and fail far from the cause.
        storage.endpoint(secret)
    except InvalidSpec as error:
        return Obstacle("SecretInvalid", f"{subject}: {error}")
    return None


def bucket_endpoint(observed: Observed, secret: str) -> str:
    """URL of the S3 server that the annotations of the Secret name; "" for none, and no Secret."""
    return server_of(observed.references.get(secret_ref(observed.ref.namespace, secret)))


def server_of(secret: Object | None) -> str:
    """As `bucket_endpoint`."""
    try:
        return "" if secret is None else storage.endpoint(secret)
    # `secret_obstacle` names the fault. Nothing is created until it is corrected.
    except InvalidSpec:
        return ""


def model_source(observed: Observed, name: str, env: str) -> storage.Source:
    """The data of a Model. The Model must exist and be valid."""
    return _used(observed, model_ref(observed, name), env)


def dataset_source(observed: Observed, name: str, env: str) -> storage.Source:
    """The data of a Dataset. The Dataset must exist and be valid."""
    return _used(observed, dataset_ref(observed, name), env)


def dataset_node(observed: Observed, name: str) -> str:
    """The node that the Dataset names; "" when the Dataset is missing or not valid."""
    ref = dataset_ref(observed, name)
    try:
        return _data_of(observed.references[ref]).node_name
    # The assignments of a job are computed also while a reference is missing.
    except (KeyError, InvalidSpec):
        return ""


def dataset_format(observed: Observed, name: str) -> str:
    """The format that the Dataset names; "" when its URL tells. The Dataset must exist."""
    return _data_of(observed.references[dataset_ref(observed, name)]).format


def dataset_samples(observed: Observed, name: str) -> int | None:
    """The number of samples that a LocalController has counted in the Dataset; None: not known."""
    dataset = observed.references.get(dataset_ref(observed, name), {})
    number = mapping(dataset.get("status")).get("numberOfSamples")
    # Anybody with the right may write a status, and this number becomes the weight of a trainer.
    is_count = isinstance(number, int) and not isinstance(number, bool) and number >= 0
    return number if is_count else None


def _used(observed: Observed, ref: ObjectRef, env: str) -> storage.Source:
    source = _source(observed.references[ref])
    endpoint = bucket_endpoint(observed, source.credential)
    return msgspec.structs.replace(source, env=env, endpoint=endpoint)


def _source(object_: Object) -> storage.Source:
    """Raises: InvalidSpec"""
    data = _data_of(object_)
    return storage.Source(env="", url=data.url, credential=data.credential_name)


def _data_of(object_: Object) -> DataSpec:
    data = parse_spec(object_, DataSpec)
    storage.check_url(data.url)
    return data


def node_obstacle(observed: Observed, name: str, path: str) -> Obstacle | None:
    # Kubernetes chooses the node of a worker that names none.
    if not name or node_ref(name) in observed.references:
        return None
    return Obstacle("NodeNotFound", f"Node {name} ({path}) does not exist: join it or correct this")


def worker_obstacles(observed: Observed, form: WorkerForm, path: str) -> Iterable[Obstacle | None]:
    """The node and the image that are missing, and a directory of scripts that is forbidden."""
    yield node_obstacle(observed, fixed_node(form), f"{path}.nodeName")
    # A template brings its image, and its hostPath is a matter of the Pod Security Standard.
    if form.worker_spec is not None:
        yield _image_obstacle(observed, framework(form.worker_spec), f"{path}.workerSpec")
        directory, field = form.worker_spec.script_dir, f"{path}.workerSpec.scriptDir"
        if fault := storage.fault_of_directory(directory, observed.settings, field):
            yield Obstacle("PathNotAllowed", str(fault))


def _image_obstacle(observed: Observed, key: str, path: str) -> Obstacle | None:
    images = observed.settings.framework_images
    # Sedna's older API names a framework and no image. An administrator says which image that is.
    if key in images:
        return None
    configured = ", ".join(sorted(images)) or "none"
    remedy = "add it to framework_images of the GlobalManager or use a template"
    problem = f"no image is configured for framework {key} ({path}; configured: {configured})"
    return Obstacle("FrameworkImageNotConfigured", f"{problem}: {remedy}")


def clashing_keys(sources: Iterable[storage.Source]) -> Iterator[Obstacle]:
    """Why one container cannot use all of these."""
    names = storage.secrets(sources)
    # A container can use the keys of one Secret: the names of the keys are the same in all.
    if len(names) > 1:
        text = f"one worker would need the keys of the Secrets {' and '.join(names)}"
        yield Obstacle("CredentialsDiffer", f"{text}: put them into one Secret")


def resolved(obstacles: Iterable[Obstacle]) -> Finding:
    """The condition ResolvedRefs for these missing references."""
    # One message names all of them, so a user can create the missing objects at once.
    faults = tuple(obstacles)
    if not faults:
        return Finding(RESOLVED_REFS, Truth.TRUE, "Resolved", "all references exist")
    message = "; ".join(dict.fromkeys(fault.message for fault in faults))
    return Finding(RESOLVED_REFS, Truth.FALSE, faults[0].reason, message)
