"""Tables of Prometheus metrics: a class whose body has one row for each metric."""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

M = TypeVar("M", bound=MetricWrapperBase)


class Row(Generic[M]):
    """A metric of a table. Args: options: further arguments of `class_`"""

    def __init__(
        self, class_: type[M], name: str, text: str, labels: Sequence[str] = (), **options: Any
    ) -> None:
        self._class, self._arguments, self._options = class_, (name, text, labels), options

    def make(self, registry: CollectorRegistry) -> M:
        return self._class(*self._arguments, registry=registry, **self._options)

    def __get__(self, table: object, owner: type) -> M:
        raise AttributeError("a table has metrics once it has a registry")


class MetricTable:
    """Makes the metrics of its rows; one instance for each registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        for name, row in vars(type(self)).items():
            if isinstance(row, Row):
                setattr(self, name, row.make(registry))
