"""Typed objects of every kind. The types of .spec and .status are those of the kinds themselves.

An object keeps the JSON that the API has, and reads .spec and .status when they are asked for. So a
list is complete also when one of its objects has a form that its kind does not accept.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Final, Generic, Self, TypeVar, cast

import msgspec

from edgeai.api import (
    dataset,
    federatedlearningjob,
    incrementallearningjob,
    jointinferenceservice,
    model,
    pytorchjob,
    scalers,
    tfjob,
    trainingjob,
)
from edgeai.api.dataset import DatasetSpec, DatasetStatus
from edgeai.api.definitions import Definition
from edgeai.api.federatedlearningjob import FederatedLearningJobSpec, FederatedLearningJobStatus
from edgeai.api.incrementallearningjob import (
    IncrementalLearningJobSpec,
    IncrementalLearningJobStatus,
)
from edgeai.api.jointinferenceservice import JointInferenceServiceSpec, JointInferenceServiceStatus
from edgeai.api.model import ModelSpec, ModelStatus
from edgeai.api.pytorchjob import PyTorchJobSpec, PyTorchJobStatus
from edgeai.api.resources import Object, ObjectRef, ResourceType, ref_of
from edgeai.api.scalers import ScaleInSpec, ScaleInStatus, ScaleOutSpec, ScaleOutStatus
from edgeai.api.specs import InvalidSpec, parse
from edgeai.api.tfjob import TFJobSpec, TFJobStatus
from edgeai.api.trainingjob import TrainingJobSpec, TrainingJobStatus
from edgeai.client.errors import InvalidObject

S = TypeVar("S", bound=msgspec.Struct)
T = TypeVar("T", bound=msgspec.Struct)


class Resource(Generic[S, T]):
    """One object. `object` has its JSON; do not change it.

    Raises: InvalidObject when the object is of another kind
    """

    DEFINITION: ClassVar[Definition]

    def __init_subclass__(cls, definition: Definition | None = None) -> None:
        cls.DEFINITION = definition or cls.DEFINITION

    def __init__(self, object_: Object) -> None:
        self.object = object_
        self.type = self._type_of(object_)

    @classmethod
    def of(
        cls,
        name: str,
        spec: S,
        *,
        namespace: str = "",
        group: str = "",
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
    ) -> Self:
        """A new object, for `apply`.

        Args:
            namespace: "" for the namespace of the client
            group: one of the kind's API groups; "" for the first
        """
        type_ = cls.type_in(group)
        metadata = {"name": name, "namespace": namespace, "labels": dict(labels or {})}
        metadata["annotations"] = dict(annotations or {})
        fields = {field: value for field, value in metadata.items() if value}
        head = {"apiVersion": type_.api_version, "kind": type_.kind, "metadata": fields}
        return cls({**head, "spec": plain(spec)})

    @classmethod
    def type_in(cls, group: str = "") -> ResourceType:
        """The type of the kind in one of its API groups; "" means the first group."""
        for type_ in cls.DEFINITION.resources:
            if group in ("", type_.group):
                return type_
        groups = ", ".join(type_.group for type_ in cls.DEFINITION.resources)
        raise InvalidObject(cls.DEFINITION.name, "group", f"{group!r} is not its", f"use {groups}")

    @classmethod
    def _type_of(cls, object_: Object) -> ResourceType:
        head = (object_.get("apiVersion"), object_.get("kind"))
        for type_ in cls.DEFINITION.types:
            if (type_.api_version, type_.kind) == head:
                return type_
        versions = " or ".join(type_.api_version for type_ in cls.DEFINITION.types)
        name, problem = cls.DEFINITION.name, f"and apiVersion are {head[1]!r} and {head[0]!r}"
        raise InvalidObject(name, "kind", problem, f"use {name} of {versions}")

    @cached_property
    def spec(self) -> S:
        """Raises: InvalidObject, which names the field that is wrong"""
        return cast(S, self._part("spec", self.DEFINITION.spec))

    @cached_property
    def status(self) -> T:
        """All defaults while nobody has written a status. Raises: InvalidObject"""
        return cast(T, self._part("status", self.DEFINITION.status))

    def _part(self, field: str, type_: type[Any]) -> msgspec.Struct:
        value = self.object.get(field)
        if value is None and field == "status":
            value = {}
        try:
            struct: msgspec.Struct = parse(value, type_, field)
        except InvalidSpec as error:
            raise InvalidObject(str(self), error.path, error.problem, error.remedy) from error
        return struct

    @property
    def ref(self) -> ObjectRef:
        return ref_of(self.type, self.object)

    @property
    def metadata(self) -> Mapping[str, Any]:
        return cast(Mapping[str, Any], self.object["metadata"])

    @property
    def name(self) -> str:
        return str(self.metadata["name"])

    @property
    def namespace(self) -> str:
        return str(self.metadata.get("namespace", ""))

    @property
    def uid(self) -> str:
        """ "" of an object that was not read from the API."""
        return str(self.metadata.get("uid", ""))

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.type.kind} {where}"

    def __repr__(self) -> str:
        """Without the object itself: a template may hold what does not belong into a log."""
        return f"<{self} of {self.type.api_version}>"


def plain(value: Any) -> Any:
    """The JSON of a struct without defaults: the API keeps what a user has written, no more."""
    if isinstance(value, msgspec.Struct):
        fields = msgspec.structs.fields(value)
        pairs = ((field, getattr(value, field.name)) for field in fields)
        return {f.encode_name: plain(item) for f, item in pairs if not _is_default(f, item)}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return msgspec.to_builtins(value)


def _is_default(field: msgspec.structs.FieldInfo, value: Any) -> bool:
    if field.default is not msgspec.NODEFAULT:
        return bool(value == field.default)
    is_made = field.default_factory is not msgspec.NODEFAULT
    return is_made and bool(value == cast(Any, field.default_factory)())


class Dataset(Resource[DatasetSpec, DatasetStatus], definition=dataset.DEFINITION):
    """Data on an edge node. The node's LocalController counts the samples of the Dataset."""


class Model(Resource[ModelSpec, ModelStatus], definition=model.DEFINITION):
    """Where a trained model is. Jobs refer to a Model. A Model itself runs nothing."""


class JointInferenceService(
    Resource[JointInferenceServiceSpec, JointInferenceServiceStatus],
    definition=jointinferenceservice.DEFINITION,
):
    """A small model on the edge sends hard samples to a big model in the cloud."""


class FederatedLearningJob(
    Resource[FederatedLearningJobSpec, FederatedLearningJobStatus],
    definition=federatedlearningjob.DEFINITION,
):
    """Trainers keep their data, and an aggregator joins the trained weights."""


class IncrementalLearningJob(
    Resource[IncrementalLearningJobSpec, IncrementalLearningJobStatus],
    definition=incrementallearningjob.DEFINITION,
):
    """A model is trained again and again with new samples, and deployed when it is better."""


class PyTorchJob(Resource[PyTorchJobSpec, PyTorchJobStatus], definition=pytorchjob.DEFINITION):
    """Processes of one PyTorch training, led by a master or by a rendezvous of workers."""


class TFJob(Resource[TFJobSpec, TFJobStatus], definition=tfjob.DEFINITION):
    """The tasks of one TensorFlow training, which find each other by TF_CONFIG."""


class TrainingJob(Resource[TrainingJobSpec, TrainingJobStatus], definition=trainingjob.DEFINITION):
    """A launcher that trains on workers, whose number may change while it trains."""


class ScaleOut(Resource[ScaleOutSpec, ScaleOutStatus], definition=scalers.SCALE_OUT):
    """More workers for a TrainingJob. The job's plan does the work."""


class ScaleIn(Resource[ScaleInSpec, ScaleInStatus], definition=scalers.SCALE_IN):
    """Fewer workers for a TrainingJob. The job's plan does the work."""


AnyResource = Resource[Any, Any]
CLASSES: Final[tuple[type[AnyResource], ...]] = (
    *(JointInferenceService, FederatedLearningJob, IncrementalLearningJob),
    *(PyTorchJob, TFJob, TrainingJob),
    *(Dataset, Model, ScaleOut, ScaleIn),
)
"""The kinds that run workers come first."""
TYPES: Final = tuple(type_ for class_ in CLASSES for type_ in class_.DEFINITION.resources)
"""The types that the API server stores, in the order of CLASSES."""
JOB_TYPES: Final = tuple(
    type_
    for class_ in CLASSES
    if class_.DEFINITION.has_workers
    for type_ in class_.DEFINITION.resources
)
