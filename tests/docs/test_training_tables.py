"""The tables of docs/kinds say what the code refuses."""

from collections.abc import Sequence

import pytest

from globalmanager.kinds.elastic.trainingjob.spec import CONSTRAINTS as OF_TRAINING
from globalmanager.kinds.shared.constraints import Constraint, rows
from globalmanager.kinds.training.pytorchjob.spec import CONSTRAINTS as OF_PYTORCH
from globalmanager.kinds.training.tfjob.spec import CONSTRAINTS as OF_TF
from tests.docs.test_generated import DOCS

HEAD = "| field | must be | told by |"


@pytest.mark.parametrize(
    ("page", "table"),
    [("pytorchjob", OF_PYTORCH), ("tfjob", OF_TF), ("trainingjob", OF_TRAINING)],
)
def test_the_table_of_constraints_is_the_table_of_the_code(
    page: str, table: Sequence[Constraint]
) -> None:
    lines = (DOCS / "kinds" / f"{page}.md").read_text().splitlines()
    first = lines.index(HEAD) + 2
    written = [line for line in lines[first:] if line.startswith("|")]
    assert written[: len(rows(table))] == rows(table), "write into the page: " + "\n".join(
        rows(table)
    )
