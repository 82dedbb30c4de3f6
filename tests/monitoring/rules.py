"""The alerts of the chart."""

from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[2]
FILE: Final = ROOT / "deploy" / "chart" / "monitoring" / "prometheusrule.yaml"


def groups() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))["spec"]["groups"]
    return found


def alerts() -> dict[str, dict[str, Any]]:
    """Each alert by its name."""
    return {rule["alert"]: rule for group in groups() for rule in group["rules"]}
