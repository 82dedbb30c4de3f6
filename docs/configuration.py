"""Writes docs/configuration.md from the settings structs; a test compares the file with it."""

from pathlib import Path

import msgspec

from common.settings import Field, fields_of
from edgeai.cli.install.values import FIELDS as VALUES
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


VALUES_INTRODUCTION = """
## edgeai install

Set values of `edgeai install` and `edgeai upgrade` in a YAML file (`--values`), or one by one
(`--set replicas=3`, `--set groups=edgeai.io,sedna.io`,
`--set resources.globalmanager.limits.memory=2Gi`).
"""


def table(title: str, settings: type[msgspec.Struct]) -> str:
    rows = [
        f"| `{field.flag}` | `{field.env}` | `{field.key}` | {_cell(field.type_text())} | "
        f"{'**required**' if field.is_required else _code(field.default)} | "
        f"{_cell(field.setting.help)} |"
        for field in fields_of(settings)
    ]
    head = [
        "| flag | environment | file | type | default | meaning |",
        "|---|---|---|---|---|---|",
    ]
    return "\n".join([f"\n## {title}\n", *head, *rows, ""])


def values_table() -> str:
    rows = [
        f"| `{field.key}` | {_cell(_type(field))} | {_code(field.default)} | "
        f"{_cell(field.setting.help)} |"
        for field in VALUES.values()
    ]
    head = ["| value | type | default | meaning |", "|---|---|---|---|"]
    return "\n".join([VALUES_INTRODUCTION, *head, *rows, ""])


def _type(field: Field) -> str:
    return field.type_text().removeprefix(" | ")  # the empty text is a choice, too


def _code(default: object) -> str:
    if default is None or default == {}:
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
