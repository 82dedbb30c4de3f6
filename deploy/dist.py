"""Builds what a release publishes: the same bytes from the same sources, wherever it runs.

    python deploy/dist.py DIRECTORY [URL]

wheel and sdist of the package, the chart as `helm package` names it, the plugin of kubectl with its
manifest for krew, a bill of materials of each image, and SHA256SUMS. URL is the address of the
published files, which the manifest of the plugin names; without it no manifest is written.
"""

import argparse
import gzip
import hashlib
import io
import json
import runpy
import subprocess
import sys
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
_CHART: Final = ROOT / "deploy" / "chart"
_OF_A_CHART: Final = frozenset((".json", ".tpl", ".txt", ".yaml"))  # not what an editor leaves
_PLUGIN: Final = ROOT / "deploy" / "krew"


def archive(files: Iterable[tuple[str, Path]]) -> bytes:
    """A tar.gz of (name, file) without times and owners, which differ from machine to machine."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", filename="", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for name, file in sorted(files):
            member = tarfile.TarInfo(name)
            member.size = file.stat().st_size
            # Only the owner's bit is kept: the others depend on the umask of the checkout.
            member.mode = 0o755 if file.stat().st_mode & 0o100 else 0o644
            with file.open("rb") as content:
                tar.addfile(member, content)
    return packed.getvalue()


def chart() -> bytes:
    files = (each for each in _CHART.rglob("*") if each.suffix in _OF_A_CHART and each.is_file())
    return archive((f"edgeai/{file.relative_to(_CHART)}", file) for file in files)


def plugin() -> bytes:
    return archive((file.name, file) for file in (_PLUGIN / "kubectl-edgeai", ROOT / "LICENSE"))


def krew_manifest(version: str, url: str, packed: bytes) -> str:
    text = (_PLUGIN / "edgeai.yaml").read_text(encoding="utf-8").split("\n", 1)[1]
    values = {"VERSION": version, "URL": url, "SHA256": hashlib.sha256(packed).hexdigest()}
    for name, value in values.items():
        text = text.replace(name, value)
    return text


def write(directory: Path, url: str) -> None:
    """Raises: subprocess.CalledProcessError when the package cannot be built"""
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        sys.exit(f"{directory} is not empty, and SHA256SUMS would name what is there")
    build = [sys.executable, "-m", "hatchling", "build", "-d", str(directory.absolute())]
    subprocess.run(build, cwd=ROOT, check=True)
    version = runpy.run_path(str(ROOT / "common" / "version.py"))["VERSION"]
    packed = plugin()
    (directory / f"edgeai-{version}.tgz").write_bytes(chart())
    (directory / "kubectl-edgeai.tar.gz").write_bytes(packed)
    if url:
        (directory / "edgeai.yaml").write_text(krew_manifest(version, url, packed))
    licenses = runpy.run_path(str(ROOT / "docs" / "licenses.py"))
    for role, images in licenses["IMAGES"].items():
        bill = json.dumps(licenses["sbom"](role), indent=2)
        for image in images:
            (directory / f"{image}.cdx.json").write_text(f"{bill}\n")
    _write_sums(directory)


def _write_sums(directory: Path) -> None:
    sums = directory / "SHA256SUMS"
    files = sorted(file for file in directory.iterdir() if file != sums)
    lines = [f"{hashlib.sha256(each.read_bytes()).hexdigest()}  {each.name}\n" for each in files]
    sums.write_text("".join(lines))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python deploy/dist.py")
    parser.add_argument("directory", type=Path)
    parser.add_argument("url", nargs="?", default="", help="of the published files")
    arguments = parser.parse_args()
    write(arguments.directory, arguments.url)
