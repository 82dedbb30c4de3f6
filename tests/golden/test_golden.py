"""Every kind decides for every case, at every moment, what it decided when that was recorded."""

import pytest

from tests.golden import cases, golden
from tests.golden.cases import Case

CASES = cases.load()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_decided_is_what_was_recorded(case: Case) -> None:
    difference = golden.difference(case)
    if difference:
        pytest.fail(difference, pytrace=False)


def test_every_recorded_file_has_a_case() -> None:
    recorded = {path.stem for path in golden.RECORDED.glob("*.json")}
    assert recorded == {case.name for case in CASES}


def test_there_are_many_cases_in_both_groups() -> None:
    groups = [{_group(one) for one in case.manifests} for case in CASES]
    assert sum("edgeai.io" in group for group in groups) >= 15
    assert sum("sedna.io" in group for group in groups) >= 15


def _group(manifest: dict[str, str]) -> str:
    return manifest["apiVersion"].partition("/")[0]


def test_no_word_of_the_program_is_in_the_recorded_files() -> None:
    """Else a renamed module would look like a change of behaviour."""
    for path in golden.RECORDED.glob("*.json"):
        text = path.read_text()
        for word in ("globalmanager", "ResourceType(", "datetime(", "<class", " object at 0x"):
            assert word not in text, f"{path.name} has {word!r}"
