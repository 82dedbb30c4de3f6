"""Writes docs/configuration.md from the settings structs; a test compares the file with it."""

import json
from pathlib import Path
from typing import Any

import msgspec
import yaml

from common.settings import fields_of
from globalmanager.settings import Settings as GlobalManagerSettings
from localcontroller.settings import Settings as LocalControllerSettings

PAGE = Path(__file__).with_suffix(".md")

INTRODUCTION = """\
# Configuration

Written by `docs/configuration.py` from the settings structs; do not edit.

Both managers take each setting from the first of these: a flag, the environment, the YAML file of
`--config` (or `EDGEAI_CONFIG`), and the default. Unknown flags and keys are errors. In flags and
variables, write a list as `a,b` and a map as `key=value,key=value`; in the file, use YAML.
"""


CHART = Path(__file__).parents[1] / "deploy" / "chart"

VALUES_INTRODUCTION = """
## The chart

Give values of the chart to `helm install` and `helm upgrade` in a YAML file (`--values`), or one by
one (`--set replicas=3`, `--set 'groups={edgeai.io,sedna.io}'`,
`--set resources.globalmanager.limits.memory=2Gi`). Helm refuses what the schema does not allow.
"""


def table(title: str, settings: type[msgspec.Struct]) -> str:
    rows = [
        f"| `{field.flag}` | `{field.env}` | `{field.key}` | {_cell(field.type_text())} | "
        f"{'**required**' if field.is_required else _code(field.default)} | "
        f"{_cell(field.help)} |"
        for field in fields_of(settings)
    ]
    head = [
        "| flag | environment | file | type | default | meaning |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([f"\n## {title}\n", *head, *rows, ""])


def values_table() -> str:
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    defaults = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    rows = [
        f"| `{name}` | {_values(described)} | {_code(defaults[name])} | "
        f"{_cell(described['description'])} |"
        for name, described in schema["properties"].items()
        if name in defaults
    ]
    head = ["| value | type | default | meaning |", "|---|---|---|---|"]
    return "\n".join([VALUES_INTRODUCTION, *head, *rows, ""])


def _values(described: dict[str, Any]) -> str:
    if choices := described.get("enum"):
        return _cell(" | ".join(choices))
    return str(described.get("type", "integer"))


def _code(default: object) -> str:
    if default is None or isinstance(default, dict):
        return ""
    text = ",".join(map(str, default)) if isinstance(default, list | tuple) else str(default)
    return f"`{text}`" if text else ""


def _cell(text: str) -> str:
    return text.replace("|", "&#124;")


def page() -> str:
    return (
        INTRODUCTION
        + table("globalmanager", GlobalManagerSettings)
        + table("localcontroller", LocalControllerSettings)
        + values_table()
    )


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
