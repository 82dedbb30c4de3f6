"""Tables of Prometheus metrics: a class whose body has one row for each metric, and below it the
text that /metrics shows.
"""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from common.field_texts import field_texts

M = TypeVar("M", bound=MetricWrapperBase)


class Row(Generic[M]):
    """A metric of a table. Args: options: further arguments of `class_`"""

    def __init__(
        self, class_: type[M], name: str, labels: Sequence[str] = (), **options: Any
    ) -> None:
        self._class, self._name, self._labels, self._options = class_, name, labels, options

    def make(self, text: str, registry: CollectorRegistry) -> M:
        return self._class(self._name, text, self._labels, registry=registry, **self._options)

    def __get__(self, table: object, owner: type) -> M:
        raise AttributeError("a table has metrics once it has a registry")


class MetricTable:
    """Makes the metrics of its rows; one instance for each registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        texts = field_texts(type(self).__mro__)
        for name, row in vars(type(self)).items():
            if isinstance(row, Row):
                setattr(self, name, row.make(texts.get(name, ""), registry))
