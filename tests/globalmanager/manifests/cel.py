"""Evaluates the CEL rules of a CustomResourceDefinition as the API server of Kubernetes does.

The CEL of Google in C++ (cel-expr-python) compiles the rules against the types of the schema. When
a rule names a field that the schema lacks, or compares values of two types, the rule does not
compile, and an API server refuses the definition. The types are protobuf messages, because protobuf
is the type system of CEL. Source: kubernetes.io/docs/reference/using-api/cel, section Type system.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from cel_expr_python import cel
from google.protobuf import (
    descriptor_pb2,
    descriptor_pool,
    json_format,
    message_factory,
    struct_pb2,
)

from edgeai.api.resources import Object

Schema = Mapping[str, Any]

RULES: Final = "x-kubernetes-validations"
_PACKAGE: Final = "crd"
_FIELD: Final = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    "integer": _FIELD.TYPE_INT64,
    "number": _FIELD.TYPE_DOUBLE,
    "boolean": _FIELD.TYPE_BOOL,
    "string": _FIELD.TYPE_STRING,
}
_CEL_SCALARS: Final = {
    "integer": cel.Type.INT,
    "number": cel.Type.DOUBLE,
    "boolean": cel.Type.BOOL,
    "string": cel.Type.STRING,
}


class Rule(NamedTuple):
    """One rule, and the place of its field."""

    path: tuple[str, ...]
    schema: Schema
    """Of the field."""
    text: str
    message: str

    @property
    def is_about_an_edit(self) -> bool:
        return "oldSelf" in self.text


def rules(schema: Schema, path: tuple[str, ...] = ()) -> Iterator[Rule]:
    """All rules of a schema. `path` has "*" for each entry of a map and "[]" for each of a list."""
    for each in schema.get(RULES, ()):
        yield Rule(path, schema, each["rule"], each["message"])
    for name, inner in (schema.get("properties") or {}).items():
        yield from rules(inner, (*path, name))
    for key, segment in (("additionalProperties", "*"), ("items", "[]")):
        if isinstance(schema.get(key), Mapping):
            yield from rules(schema[key], (*path, segment))


class Program:
    """One compiled rule. Raises: Exception of the library when the rule does not compile"""

    def __init__(self, rule: Rule) -> None:
        self._rule = rule
        self._types = _Types(rule.schema)
        variables = {"self": self._types.self_type}
        if rule.is_about_an_edit:
            variables["oldSelf"] = self._types.self_type
        environment = cel.NewEnv(descriptor_pool=self._types.pool, variables=variables)
        self._expression = environment.compile(rule.text)
        self.type = self._expression.return_type()

    def allows(self, object_: Object, old: Object | None = None) -> bool:
        """Whether the API server takes the object under this rule.

        Args: old: the object before an edit; None when the object is created
        """
        found, before = _at(object_, self._rule.path), _at(old or {}, self._rule.path)
        if found is None or (self._rule.is_about_an_edit and before is None):
            return True  # the server does not evaluate the rule
        data = {"self": self._types.value(found)}
        if self._rule.is_about_an_edit:
            data["oldSelf"] = self._types.value(before)
        result = self._expression.eval(data=data)
        if result.type() != cel.Type.BOOL:
            raise ValueError(f"{self._rule.text}: {result.value()}")  # e.g. there is no such key
        return bool(result.value())


def _at(value: Any, path: tuple[str, ...]) -> Any:
    for segment in path:
        if not isinstance(value, Mapping) or segment not in value:
            return None
        value = value[segment]
    return value


class _Types:
    """The types of one schema as protobuf messages.

    A value with unknown fields, or of several types, has the type dyn. The messages have the syntax
    proto2, so that `has` tells an absent number from 0.
    """

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._file = descriptor_pb2.FileDescriptorProto(
            name="crd.proto", package=_PACKAGE, dependency=["google/protobuf/struct.proto"]
        )
        # The root is a field of a message, like every other value.
        self._add_message("Root", {"self": schema})
        self.pool = descriptor_pool.DescriptorPool()
        self.pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
        self.pool.AddSerializedFile(self._file.SerializeToString())
        self._root = message_factory.GetMessageClass(
            self.pool.FindMessageTypeByName(f"{_PACKAGE}.Root")
        )
        self.self_type = self._cel_type(schema, "Root_self")

    def value(self, given: Any) -> Any:
        """The value as CEL takes it."""
        root = self._root()
        json_format.ParseDict(
            {"self": given}, root, ignore_unknown_fields=True, descriptor_pool=self.pool
        )
        if self._is_map(self._schema):
            return {key: root.self[key] for key in root.self}
        return root.self

    def _cel_type(self, schema: Schema, name: str) -> cel.Type:
        if "properties" in schema:
            return cel.Type(f"{_PACKAGE}.{name}")
        if self._is_map(schema):
            inner = self._cel_type(schema["additionalProperties"], f"{name}_value")
            return cel.Type.Map(cel.Type.STRING, inner)
        return _CEL_SCALARS.get(schema.get("type", ""), cel.Type.DYN)

    @staticmethod
    def _is_map(schema: Schema) -> bool:
        return isinstance(schema.get("additionalProperties"), Mapping)

    def _add_message(self, name: str, fields: Mapping[str, Schema]) -> None:
        message = descriptor_pb2.DescriptorProto(name=name)
        for number, (key, schema) in enumerate(fields.items(), start=1):
            field = message.field.add(name=key, number=number, json_name=key)
            field.label = _FIELD.LABEL_OPTIONAL
            own = f"{name}_{key}"
            if self._is_map(schema):
                field.label = _FIELD.LABEL_REPEATED
                entry = message.nested_type.add(name=f"{key[0].upper()}{key[1:]}Entry")
                entry.options.map_entry = True
                entry.field.add(
                    name="key", number=1, label=_FIELD.LABEL_OPTIONAL, type=_FIELD.TYPE_STRING
                )
                inner = entry.field.add(name="value", number=2, label=_FIELD.LABEL_OPTIONAL)
                self._set_type(inner, schema["additionalProperties"], f"{own}_value")
                field.type = _FIELD.TYPE_MESSAGE
                field.type_name = f".{_PACKAGE}.{name}.{entry.name}"
                continue
            if schema.get("type") == "array":
                field.label = _FIELD.LABEL_REPEATED
                schema = schema["items"]
            self._set_type(field, schema, own)
        self._file.message_type.append(message)

    def _set_type(self, field: Any, schema: Schema, name: str) -> None:
        if schema.get("type") in _SCALARS:
            field.type = _SCALARS[schema["type"]]
            return
        field.type = _FIELD.TYPE_MESSAGE
        if "properties" in schema:
            self._add_message(name, schema["properties"])
            field.type_name = f".{_PACKAGE}.{name}"
        else:
            field.type_name = ".google.protobuf.Value"
