"""The algorithms of hard-example mining on the page of their kind are those of the code."""

import inspect
import re
from pathlib import Path
from typing import Final

from edgeai.api.jointinferenceservice import PARAMETERS
from edgeai.worker import hard_example_mining

PAGE: Final = Path(__file__).parents[2] / "docs" / "kinds" / "jointinferenceservice.md"
NOT_OF_THE_SDK: Final = "BertRouter"


def test_each_algorithm_has_its_parameters_and_defaults() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("## Which samples are hard")[2]
    rows = dict(
        re.findall(r"^\| `(\w+)` \| ?([^|]*?) ?\|", table.partition("\n## ")[0], re.MULTILINE)
    )
    told = {name: dict(re.findall(r"`(\w+)`(?: ([\d.]+))?", text)) for name, text in rows.items()}
    assert {name: set(each) for name, each in told.items()} == {
        name: set(each) for name, each in PARAMETERS.items()
    }
    for name in told.keys() - {NOT_OF_THE_SDK}:
        parameters = inspect.signature(getattr(hard_example_mining, name)).parameters
        defaults = {
            key: "" if (d := each.default) is None else str(d) for key, each in parameters.items()
        }
        assert told[name] == defaults, name
