"""Writes docs/fields: a page for each kind, with every field of its resources.

    python docs/fields.py

Types and bounds are those of the CustomResourceDefinitions of the chart. Meanings and defaults are
those of the structs from which the definitions are made, the examples are files beside the pages.
"""

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from globalmanager.contract import Kind
from globalmanager.kinds import KINDS
from globalmanager.manifests.crds import crd

DIRECTORY: Final = Path(__file__).parent / "fields"
PAGES: Final = {
    "kinds/pytorchjob.md": "PyTorchJob",
    "kinds/tfjob.md": "TFJob",
    "kinds/trainingjob.md": "TrainingJob ScaleOut ScaleIn",
    "federated-learning.md": "FederatedLearningJob",
    "kinds/jointinferenceservice.md": "JointInferenceService",
    "kinds/incrementallearningjob.md": "IncrementalLearningJob",
    "datasets.md": "Dataset",
}
"""Page that explains how kinds behave -> the kinds."""
_OPEN: Final = {"template": "a pod template, as in a Deployment"}
"""Fields of Kubernetes itself, which are shown as one -> type."""
_DEFAULT: Final = re.compile(
    r"(?:^|(?<=\. ))(?P<default>(?:[^.]|\.(?=\S))+?),? when the field is missing\.\s*"
)
"""The sentence of a meaning that says what holds for a missing field."""
_ALIAS: Final = "Another name of "
_COMMON: Final = {
    "conditions": "What is so, why, and since when.",
    "observed_generation": "The generation of the spec that this is about.",
    "phase": "The state in one word, for display.",
    "start_time": "When the GlobalManager began to work on it.",
    "completion_time": "When the job ended.",
    "last_reconcile_time": "When the status last changed.",
    "last_transition_time": "When `status` last changed.",
    "last_update_time": "When the condition was last written.",
    "replica_statuses": "The numbers of pods of each type.",
    "type": "The name of the condition.",
    "status": "True, False or Unknown.",
    "reason": "Why, in one word for programs.",
    "message": "Why, in a sentence for people.",
    "template": "The pods are made from it.",
}
"""Field that several structs have -> meaning, where its struct says nothing."""


class Field(NamedTuple):
    """A row of a table."""

    path: str
    type: str
    bounds: str
    is_required: bool
    default: str
    meaning: str

    def row(self) -> str:
        default = "required" if self.is_required else self.default
        cells = [f"`{self.path}`", self.type, self.bounds, default, self.meaning]
        if self.path.startswith("status."):
            cells = [cells[0], cells[1], cells[4]]
        return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


# ---- what the fields are ------------------------------------------------------------------------


def fields(schema: dict[str, Any], struct: type, path: str = "") -> Iterator[Field]:
    """All fields below a place of a definition, each before those below it.

    Args: schema: of this place;  struct: from which the schema is made
    """
    entries = {one.encode_name: one for one in msgspec.structs.fields(struct)}
    for name, inner in schema["properties"].items():
        field = entries[name]
        info = _without_none(msgspec.inspect.type_info(field.type))
        default, meaning = _apart(_meaning(struct, field.name, info))
        yield Field(
            f"{path}{name}",
            _OPEN.get(name) or _type(inner),
            _bounds(inner),
            is_required=name in schema.get("required", ()),
            default=default or _default(field.default, info),
            meaning=meaning,
        )
        if name not in _OPEN and not meaning.startswith(_ALIAS):
            yield from _below(inner, info, f"{path}{name}")


def _below(schema: dict[str, Any], info: Any, path: str) -> Iterator[Field]:
    info = _without_none(info)
    if isinstance(info, msgspec.inspect.StructType) and "properties" in schema:
        yield from fields(schema, info.cls, f"{path}.")
    elif isinstance(info, msgspec.inspect.ListType):
        yield from _below(schema["items"], info.item_type, f"{path}[]")
    elif isinstance(info, msgspec.inspect.DictType) and "additionalProperties" in schema:
        yield from _below(schema["additionalProperties"], info.value_type, f"{path}.*")


def _without_none(info: Any) -> Any:
    """The type of a field that may be missing, without its description and bounds."""
    if isinstance(info, msgspec.inspect.Metadata):
        return _without_none(info.type)
    if isinstance(info, msgspec.inspect.UnionType):
        members = [type_ for type_ in info.types if not isinstance(type_, msgspec.inspect.NoneType)]
        return _without_none(members[0]) if len(members) == 1 else info
    return info


def _type(schema: dict[str, Any]) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if "items" in schema:
        return f"list of {_type(schema['items'])}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"map of {_type(schema['additionalProperties'])}"
    if schema.get("format") == "date-time":
        return "time"
    return str(schema.get("type", "any"))


def _bounds(schema: dict[str, Any]) -> str:
    if "enum" in schema:
        return ", ".join(f"`{value}`" if value else "empty" for value in schema["enum"])
    texts = []
    for low, high, unit in (
        ("minimum", "maximum", ""),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " entries"),
    ):
        texts.append(_range(schema.get(low), schema.get(high), unit))
    if "pattern" in schema:
        texts.append(f"`{schema['pattern']}`")
    return "; ".join(filter(None, texts))


def _range(low: int | None, high: int | None, unit: str) -> str:
    if high is None:
        return "" if low is None else "not empty" if unit and low == 1 else f"at least {low}{unit}"
    return f"at most {high}{unit}" if low is None else f"{low} to {high}{unit}"


def _apart(meaning: str) -> tuple[str, str]:
    """The default that a meaning names, and the rest of the meaning."""
    meaning = " ".join(meaning.split())
    match = _DEFAULT.search(meaning)
    if match is None:
        return "", meaning
    default = match["default"]
    rest = (meaning[: match.start()] + meaning[match.end() :]).strip()
    return (default if " " in default else f"`{default}`"), rest


def _default(value: Any, info: Any) -> str:
    """What is taken where the field is missing, as its struct says."""
    if isinstance(info, msgspec.inspect.BoolType):
        return f"`{str(bool(value)).lower()}`"
    if value in (None, msgspec.NODEFAULT, "") or isinstance(value, (list, dict, msgspec.Struct)):
        return "none"
    return f"`{value}`"


# ---- what they mean -----------------------------------------------------------------------------


def _meaning(struct: type, name: str, info: Any) -> str:
    for cls in struct.__mro__:
        if text := _texts(cls).get(name):
            return text
    if isinstance(info, msgspec.inspect.ListType):
        info = _without_none(info.item_type)
    class_ = getattr(info, "cls", None)  # of a struct or an enumeration
    own = vars(class_).get("__doc__") if class_ is not None else None
    return _COMMON.get(name) or inspect.cleandoc(own or "")


@cache
def _texts(cls: type) -> dict[str, str]:
    """Field -> the text that follows it in the source of its struct."""
    if not issubclass(cls, msgspec.Struct) or cls is msgspec.Struct:
        return {}
    (node,) = ast.parse(inspect.getsource(cls)).body
    assert isinstance(node, ast.ClassDef)
    texts = {}
    for field, text in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            value = text.value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                texts[ast.unparse(field.target)] = value.value
    return texts


# ---- pages --------------------------------------------------------------------------------------

_HEADS: Final = {
    "spec": "| field | type | bounds | default | meaning |\n|---|---|---|---|---|",
    "status": "| field | type | meaning |\n|---|---|---|",
}
_SAID: Final = {
    "spec": "`[]` stands for each entry of a list, `*` for each key of a map.",
    "status": "The GlobalManager writes it. Programs read the conditions.",
}


def pages() -> dict[str, str]:
    """File name -> text."""
    names = sorted(_name(kind) for kind in KINDS)
    lines = [
        "# Fields",
        "",
        "Each kind has a page with an example and all its fields: types, bounds, defaults and other"
        " names.",
        "",
    ]
    lines += [f"- [{name}]({name.lower()}.md)" for name in names]
    index = "\n".join(lines) + "\n"
    return {"README.md": index} | {f"{_name(kind).lower()}.md": _page(kind) for kind in KINDS}


def _name(kind: Kind) -> str:
    return kind.definition.name


def _page(kind: Kind) -> str:
    definition = kind.definition
    first = definition.types[0]
    described = _fields_of(kind)
    lines = [
        f"# Fields of {_name(kind)}",
        "",
        "Written by `docs/fields.py` from the definitions of the chart; do not edit."
        f" `kubectl explain {first.plural}.{first.group}.spec` shows the fields in a cluster.",
        "",
        *_explained(_name(kind)),
        "```yaml",
        (DIRECTORY / f"{_name(kind).lower()}.yaml").read_text(encoding="utf-8").rstrip(),
        "```",
        "",
        "| group and version | resource | short names |",
        "|---|---|---|",
        *(
            f"| `{type_.group}/{type_.version}` | `{type_.plural}` | "
            f"{', '.join(f'`{name}`' for name in definition.short_names.get(type_.group, ()))} |"
            for type_ in definition.types
        ),
        "",
    ]
    for part, head in _HEADS.items():
        rows = [field.row() for field in described if field.path.startswith(f"{part}.")]
        lines += [f"## {part}", "", _SAID[part], "", head, *rows, ""]
    lines += [*_conditions(kind), *_rules(kind)]
    return "\n".join(lines).rstrip() + "\n"


def _explained(name: str) -> list[str]:
    page = next((page for page, names in PAGES.items() if name in names.split()), "")
    return [f"[How it behaves](../{page})", ""] if page else []


def _fields_of(kind: Kind) -> list[Field]:
    definition = kind.definition
    version = crd(kind, definition.types[0])["spec"]["versions"][0]
    whole = version["schema"]["openAPIV3Schema"]
    return [
        *fields(whole["properties"]["spec"], definition.spec, "spec."),
        *fields(whole["properties"]["status"], definition.status, "status."),
    ]


def _conditions(kind: Kind) -> list[str]:
    """The table of the conditions, which some modules of specs begin with."""
    text = inspect.getdoc(sys.modules[kind.definition.spec.__module__]) or ""
    _, begins, description = text.partition("\n.status.conditions has ")
    if not begins:
        return []
    order, table, *more = description.split("\n\n")
    entries = [re.split(r"\s+", row, maxsplit=1) for row in re.split(r"\n(?=\S)", table)]
    head = "| condition | meaning |\n|---|---|"
    rows = [f"| `{name}` | {_cell(meaning)} |" for name, meaning in entries]
    after = [line for paragraph in more for line in (" ".join(paragraph.split()), "")]
    opening = f"There are {order.strip()}" if "these" in order else f"There is {order.strip()}"
    return ["## Conditions", "", opening, "", head, *rows, "", *after]


def _rules(kind: Kind) -> list[str]:
    if not kind.validations:
        return []
    return [
        "## Rules over several fields",
        "",
        "The API server refuses an object that breaks one.",
        "",
        "| field | rule |",
        "|---|---|",
        *(
            f"| `{validation.field}` | {_cell(validation.message)} |"
            for validation in kind.validations
        ),
        "",
    ]


if __name__ == "__main__":
    DIRECTORY.mkdir(exist_ok=True)
    for name, text in pages().items():
        (DIRECTORY / name).write_text(text, encoding="utf-8")
