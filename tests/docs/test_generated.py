"""Files of docs/ that are written by a program are what the program writes now."""

import re
import runpy
from pathlib import Path

import pytest
import yaml

from edgeai.localcluster.objects import schemas
from globalmanager.contract import Kind
from globalmanager.kinds import KINDS
from globalmanager.manifests.crds import crd

DOCS = Path(__file__).parents[2] / "docs"


def test_configuration_page_is_up_to_date() -> None:
    page = runpy.run_path(str(DOCS / "configuration.py"))["page"]
    assert (DOCS / "configuration.md").read_text() == page(), "run: python docs/configuration.py"


def test_metrics_page_is_up_to_date() -> None:
    page = runpy.run_path(str(DOCS / "metrics.py"))["page"]
    assert (DOCS / "metrics.md").read_text() == page(), "run: python docs/metrics.py"


def test_rest_page_is_up_to_date() -> None:
    page = runpy.run_path(str(DOCS / "rest.py"))["page"]
    assert (DOCS / "rest.md").read_text() == page(), "run: python docs/rest.py"


def test_pages_of_fields_are_up_to_date_and_leave_nothing_out() -> None:
    pages = runpy.run_path(str(DOCS / "fields.py"))["pages"]()
    assert sorted(pages) == sorted(each.name for each in (DOCS / "fields").glob("*.md"))
    for name, text in pages.items():
        assert (DOCS / "fields" / name).read_text() == text, "run: python docs/fields.py"
        silent = [
            row
            for row in text.splitlines()
            if row.endswith("|  |") and re.match(r"\| `(spec|status)\.", row)
        ]
        assert silent == [], f"{name}: write the meaning after the field of its struct"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.definition.name)
def test_the_example_of_a_kind_is_valid_and_has_no_unknown_field(kind: Kind) -> None:
    file = DOCS / "fields" / f"{kind.definition.name.lower()}.yaml"
    example = yaml.safe_load(file.read_text())
    type_ = kind.definition.types[0]
    assert (example["apiVersion"], example["kind"]) == (type_.api_version, type_.kind)
    (version,) = crd(kind, type_)["spec"]["versions"][:1]
    schema = version["schema"]["openAPIV3Schema"]
    pruned, unknown = schemas.prune(schema, example, root=True)
    assert (unknown, schemas.validate(schema, pruned)) == ([], [])
    example["metadata"] |= {"namespace": "default", "uid": "1", "generation": 1}
    assert kind.decode(type_, example).invalid is None


def test_every_field_of_a_spec_has_a_default_or_is_required() -> None:
    for page in (DOCS / "fields").glob("*.md"):
        table = page.read_text().partition("\n## spec\n")[2].partition("\n## ")[0]
        rows = re.findall(r"^\| `spec.*$", table, re.MULTILINE)
        assert [row for row in rows if not re.split(r"(?<!\\)\|", row)[4].strip()] == []


def test_tables_of_the_page_on_scale_are_up_to_date() -> None:
    page = runpy.run_path(str(DOCS / "scale.py"))["page"]
    assert (DOCS / "scale.md").read_text() == page(), "run: python docs/scale.py"


def test_licenses_page_is_up_to_date() -> None:
    """It fails, too, for a package whose words for its license nobody has looked at."""
    page = runpy.run_path(str(DOCS / "licenses.py"))["page"]
    assert (DOCS / "licenses.md").read_text() == page(), "run: python docs/licenses.py"


def test_a_bill_of_materials_names_all_that_an_image_installs() -> None:
    program = runpy.run_path(str(DOCS / "licenses.py"))
    for role in program["IMAGES"]:
        lock = (DOCS.parent / "requirements" / f"{role}.lock").read_text()
        components = program["sbom"](role)["components"]
        assert {f"{each['name']}=={each['version']}" for each in components} == {
            line.split()[0] for line in lock.splitlines() if line and line[0] not in " #"
        }
        assert sum(len(each["hashes"]) for each in components) == lock.count("--hash=sha256:")


def test_pictures_are_up_to_date() -> None:
    pictures = runpy.run_path(str(DOCS / "pictures" / "draw.py"))["pictures"]
    for name, picture in pictures().items():
        drawn = (DOCS / "pictures" / name).read_text()
        assert drawn == picture.svg(), "run: python docs/pictures/draw.py"
