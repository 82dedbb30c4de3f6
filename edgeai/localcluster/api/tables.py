"""The form of an answer: whole objects, a Table, or metadata only.

Pure. `handlers` and `streams` use this module to render every object that they send. The client's
Accept header chooses the form.
"""

from datetime import datetime
from enum import Enum
from typing import Any

import msgspec

from edgeai.localcluster.api import jsonpath, printers
from edgeai.localcluster.api.printers import Cells, Printer
from edgeai.localcluster.objects.resources import Column, Object, Resource
from edgeai.times import Clock


class Form(Enum):
    """The forms of an answer. The value of a form is the `as` parameter of the media type."""

    OBJECT = ""
    TABLE = "Table"
    METADATA = "PartialObjectMetadata"
    METADATA_LIST = "PartialObjectMetadataList"


def form(accept: str) -> Form:
    """The first supported form of an Accept header.

    Returns: whole objects if the header names no supported form
    """
    for media_range in accept.split(","):
        media_type, *parameters = (part.strip() for part in media_range.split(";"))
        if media_type not in ("application/json", "*/*", "application/*"):
            continue
        given = dict(parameter.partition("=")[::2] for parameter in parameters)
        try:
            return Form(given.get("as", ""))
        except ValueError:
            continue
    return Form.OBJECT


class View(msgspec.Struct, frozen=True):
    """Renders objects of one resource in one client's form.

    `include` says how much of its object each row of a Table contains: Metadata, Object or None.
    """

    resource: Resource
    form: Form
    now: Clock
    include: str = "Metadata"

    def one(self, object_: Object, *, with_columns: bool = True) -> Object:
        """Render a single object.

        Args:
            with_columns: whether a Table has column definitions. In a watch, only the first event
                has these definitions.
        """
        if self.form is Form.TABLE:
            return self._table([object_], object_["metadata"], with_columns=with_columns)
        if self.form is Form.OBJECT:
            return object_
        return metadata_only(object_)

    def many(self, objects: list[Object], metadata: Object) -> Object:
        """Render a list of objects. `metadata` is the list's own (resourceVersion, continue)."""
        if self.form is Form.TABLE:
            return self._table(objects, metadata)
        if self.form is Form.OBJECT:
            kind, api_version = f"{self.resource.kind}List", self.resource.group_version
            return _list(kind, api_version, metadata, objects)
        listed = [metadata_only(object_) for object_ in objects]
        return _list("PartialObjectMetadataList", "meta.k8s.io/v1", metadata, listed)

    def _table(
        self, objects: list[Object], metadata: Object, *, with_columns: bool = True
    ) -> Object:
        printer, now = _printer(self.resource), self.now()
        columns = (_name_column(printer), *printer.columns) if with_columns else ()
        rows = [self._row(printer, object_, now) for object_ in objects]
        kept = ("resourceVersion", "continue", "remainingItemCount")
        return {
            "kind": "Table",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": {name: metadata[name] for name in kept if name in metadata},
            "columnDefinitions": [_definition(column) for column in columns],
            "rows": rows,
        }

    def _row(self, printer: Printer, object_: Object, now: datetime) -> Object:
        row: Object = {"cells": [object_["metadata"]["name"], *_safe_cells(printer, object_, now)]}
        if self.include == "Object":
            row["object"] = object_
        elif self.include != "None":
            row["object"] = metadata_only(object_)
        return row


def _name_column(printer: Printer) -> Column:
    description = "Unique within a namespace."
    return Column("Name", "string", "", "name", description, printer.name_priority)


def _safe_cells(printer: Printer, object_: Object, now: datetime) -> Cells:
    """The cells of one object. If a field has a wrong type, each cell is `<invalid>`.

    The API does not check all fields of built-in kinds. One bad object must not hide the others.
    """
    try:
        return printer.cells(object_, now)
    except (AttributeError, KeyError, TypeError):
        return ["<invalid>" for _ in printer.columns]


def metadata_only(object_: Object) -> Object:
    return {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object_["metadata"],
    }


def _list(kind: str, api_version: str, metadata: Object, items: list[Object]) -> Object:
    return {"kind": kind, "apiVersion": api_version, "metadata": metadata, "items": items}


def _definition(column: Column) -> Object:
    return {
        "name": column.name,
        # This module computes the ages, so a date column contains text for the client.
        "type": "string" if column.type == "date" else column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }


def _printer(resource: Resource) -> Printer:
    if not resource.columns:
        return printers.PRINTERS.get(resource.group_resource, printers.DEFAULT)
    return Printer(resource.columns, lambda object_, now: _cells(resource.columns, object_, now))


def _cells(columns: tuple[Column, ...], object_: Object, now: datetime) -> Cells:
    return [_cell(column, object_, now) for column in columns]


def _cell(column: Column, object_: Object, now: datetime) -> Any:
    """One cell of a custom resource. An object without the value gets an empty cell.

    An object without the value of a date column gets `<unknown>`.
    """
    values = jsonpath.find(column.json_path, object_)
    if column.type == "date":
        return printers.age(str(values[0]) if values else None, now)
    if not values or values[0] is None:
        return None
    value = values[0]
    if isinstance(value, dict | list) and column.type == "string":
        return msgspec.json.encode(value).decode()
    return value
