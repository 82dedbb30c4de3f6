"""Files of docs/ that are written by a program are what the program writes now."""

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_configuration_page_is_up_to_date() -> None:
    page = runpy.run_path(str(DOCS / "configuration.py"))["page"]
    assert (DOCS / "configuration.md").read_text() == page(), "run: python docs/configuration.py"


def test_metrics_page_is_up_to_date() -> None:
    page = runpy.run_path(str(DOCS / "metrics.py"))["page"]
    assert (DOCS / "metrics.md").read_text() == page(), "run: python docs/metrics.py"


def test_tables_of_the_page_on_scale_are_up_to_date() -> None:
    page = runpy.run_path(str(DOCS / "scale.py"))["page"]
    assert (DOCS / "scale.md").read_text() == page(), "run: python docs/scale.py"


def test_pictures_are_up_to_date() -> None:
    pictures = runpy.run_path(str(DOCS / "pictures" / "draw.py"))["pictures"]
    for name, picture in pictures().items():
        drawn = (DOCS / "pictures" / name).read_text()
        assert drawn == picture.svg(), "run: python docs/pictures/draw.py"
