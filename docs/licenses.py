"""Writes docs/licenses.md from the images' locks; a test compares the file with it.

    python docs/licenses.py                writes the page
    python docs/licenses.py --sbom ROLE    prints what an image holds, as CycloneDX (JSON)

The licenses are those that the installed packages name.
"""

import json
import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

PAGE = Path(__file__).with_suffix(".md")
REQUIREMENTS = Path(__file__).parents[1] / "requirements"
IMAGES = {
    "manager": ("globalmanager",),
    "edge": ("localcontroller",),
    "worker": ("worker", "example"),
}
"""Role, which is the name of its lock -> the images that are installed by it."""

SPDX = {
    "Apache 2.0": "Apache-2.0",
    "Apache License, Version 2.0": "Apache-2.0",
    "MIT License": "MIT",
    "3-Clause BSD License": "BSD-3-Clause",
    "License :: OSI Approved :: Apache Software License": "Apache-2.0",
    "License :: OSI Approved :: MIT License": "MIT",
    "License :: Public Domain": "LicenseRef-Public-Domain",
}
"""What a package says in words of its own -> the identifier of SPDX."""

BY_TEXT = {"jinja2": "BSD-3-Clause"}
"""Packages whose words do not tell: which of the BSD licenses the text is that they carry."""

INTRODUCTION = """\
# Licenses

Written by `docs/licenses.py` from the locks in `requirements/`; do not edit.

edgeai itself is under [Apache-2.0](../LICENSE). The images hold Python and Debian, with their own
licenses in `/usr/share/doc`, and these packages. What an image holds, as CycloneDX with hashes:
`python docs/licenses.py --sbom ROLE`.
"""


def page() -> str:
    return INTRODUCTION + "".join(_table(role, images) for role, images in IMAGES.items())


def _table(role: str, images: tuple[str, ...]) -> str:
    title = f"\n## Role {role}: {' and '.join(images)}\n"
    head = f"{title}\n| package | version | license |\n|---|---|---|\n"
    rows = [f"| {name} | {version} | {license_of(name)} |\n" for name, version, _ in locked(role)]
    return head + "".join(rows)


def locked(role: str) -> list[tuple[str, str, list[str]]]:
    """(name, version, SHA-256 of its files) of each package in the role's lock."""
    text = (REQUIREMENTS / f"{role}.lock").read_text(encoding="utf-8")
    return [
        (match["name"], match["version"], re.findall("sha256:([0-9a-f]{64})", match["hashes"]))
        for match in _ENTRY.finditer(text)
    ]


_ENTRY = re.compile(
    r"^(?P<name>[a-z0-9.-]+)==(?P<version>\S+)[^\n]*\n(?P<hashes>(?: +--hash=[^\n]*\n)*)", re.M
)


def license_of(package: str) -> str:
    """As an expression of SPDX. Raises: KeyError for words that are not in the table"""
    if package in BY_TEXT:
        return BY_TEXT[package]
    description = metadata.metadata(package)
    if expression := description.get("License-Expression"):
        return str(expression)
    words = description.get("License") or ""
    if not words:
        (words,) = [
            classifier
            for classifier in description.get_all("Classifier", [])
            if classifier.startswith("License")
        ]
    return words if re.fullmatch(r"[A-Za-z0-9.-]+", words) else SPDX[words]


def sbom(role: str) -> dict[str, Any]:
    """The packages of an image, as CycloneDX 1.5."""
    components = [
        {
            "type": "library",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name}@{version}",
            "licenses": [{"expression": license_of(name)}],
            "hashes": [{"alg": "SHA-256", "content": hash_} for hash_ in hashes],
        }
        for name, version, hashes in locked(role)
    ]
    subject = {"type": "container", "name": f"edgeai/{IMAGES[role][0]}"}
    head = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1}
    return {**head, "metadata": {"component": subject}, "components": components}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--sbom"]:
        sys.stdout.write(json.dumps(sbom(sys.argv[2]), indent=2) + "\n")
    else:
        PAGE.write_text(page(), encoding="utf-8")
