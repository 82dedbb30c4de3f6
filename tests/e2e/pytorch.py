"""The image that `train` takes where a user names none, made of the PyTorch of this machine.

It has the name of the true one, and PyTorch without CUDA.
"""

import hashlib
import json
import re
import subprocess
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Final

from edgeai.client.training import IMAGES
from tests.cluster.binaries import cache_directory
from tests.cluster.images import Images, Recipe

_SHOW_FILES: Final = """
import sys, torch.distributed, torch.nn.parallel
for name, module in list(sys.modules.items()):
    file = getattr(module, "__file__", None) or ""
    if "-packages/" in file and "." not in name:
        print(file.removesuffix("/__init__.py"))
print(*{line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}, sep="\\n")
"""
"""Packages, and the libraries that they have loaded."""
_GLIBC: Final = re.compile(r"(ld-linux.*|lib(c|dl|m|pthread|resolv|rt|util))\.so\.\d+")
"""The programs of the base image need it as it is there."""


def archive(python: Path) -> Path:
    """The image as Images().archive packs it; made once for each PyTorch. Raises: Unavailable

    Args: python: of this machine, with PyTorch
    """
    text = _container_file(python)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    path = cache_directory().parent / "containers" / f"pytorch-{digest}.tar"
    if not path.exists():
        with tempfile.TemporaryDirectory() as directory:
            containerfile = Path(directory) / "Containerfile"
            containerfile.write_text(text)
            name = f"docker.io/{IMAGES['pytorch']}"
            recipe = Recipe(name=name, containerfile=containerfile, context=Path("/"))
            path.hardlink_to(Images().archive([recipe]))
    return path


def _container_file(python: Path) -> str:
    told = subprocess.check_output([python, "-c", _SHOW_FILES], text=True)
    paths = {Path(line) for line in told.splitlines()}
    packages = {path for path in paths if path.is_dir()}
    (torch,) = (path for path in packages if path.name == "torch")
    files: dict[str, list[str]] = defaultdict(list)
    for path in sorted(paths - packages):
        if packages.isdisjoint(path.parents) and not _GLIBC.fullmatch(path.name):
            files[f"{path.parent}/"].append(str(path))
    copies = [[str(path), f"{path}/"] for path in sorted(packages)]
    copies += [[*files[parent], parent] for parent in files]
    lines = [
        f"# {(torch / 'version.py').read_text().splitlines()}",
        *("ARG BASE_IMAGE", "FROM ${BASE_IMAGE}"),
        *(f"COPY {json.dumps(copy)}" for copy in copies),
        f"ENV PYTHONPATH={torch.parent}",
        # It links the names by which libraries are looked for to their files.
        f"RUN ldconfig {' '.join(files)} && python3 -c 'import torch.distributed'",
    ]
    return "\n".join(lines)
