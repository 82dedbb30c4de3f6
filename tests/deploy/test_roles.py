"""Each role runs with what its lock names, and its image holds nothing else.

Roles are the extras of pyproject.toml; requirements/ has their locks, by which the container files
install.
"""

import ast
import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONTAINERFILE: Final = ROOT / "deploy" / "containers" / "Containerfile"
SHARED: Final = re.findall(r"\bedgeai/\w+\.py\b", CONTAINERFILE.read_text())
"""The small modules of edgeai, which every image holds."""
PACKAGES: Final = {
    "manager": ("common", "edgeai/api", "edgeai/faults", "edgeai/kube", "globalmanager"),
    "edge": ("common", "localcontroller"),
    "worker": ("edgeai/worker",),
}
FOREIGN: Final = {
    "manager": {"sqlite-utils", "obstore", "numpy", "typer", "jsonpatch"},
    "edge": {"uvloop", "numpy", "typer", "jsonpatch"},
    "worker": {"aiohttp", "websockets", "obstore", "sqlite-utils"},
}
OPTIONAL: Final = {"worker": {"obstore"}}
"""What only some users' images need. Without it the error says what to install."""

IMPORT_ALL = """
import importlib, pkgutil, sys
sys.path.insert(0, sys.argv[1])
for package in sys.argv[2:]:
    found = importlib.import_module(package)
    for module in pkgutil.walk_packages(found.__path__, package + "."):
        importlib.import_module(module.name)
"""


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(role: str) -> set[tuple[str, str]]:
    """(name, version) of each distribution."""
    text = (ROOT / "requirements" / f"{role}.lock").read_text()
    return set(re.findall(r"^([a-z0-9.-]+)==(\S+)", text, re.M))


def names_locked(role: str) -> set[str]:
    return {name for name, _ in locked(role)}


def direct(role: str) -> set[str]:
    """What pyproject.toml names for the role."""
    extras = PROJECT["optional-dependencies"]
    wanted = [*extras[role], *(extras["traces"] if "edgeai[traces]" in extras[role] else ())]
    names = {canonical(re.split(r"[<>=\[ ]", each)[0]) for each in wanted}
    return names - {"edgeai"}


def owners(module: str) -> set[str]:
    return {canonical(name) for name in INSTALLED.get(module, ())}


INSTALLED: Final = metadata.packages_distributions()


@pytest.mark.parametrize("role", PACKAGES)
def test_every_module_of_a_role_can_be_imported_with_the_roles_lock(
    role: str, tmp_path: Path
) -> None:
    install(role, tmp_path)
    program = [sys.executable, "-I", "-S", "-c", IMPORT_ALL, str(tmp_path)]
    program += ["edgeai", *(path.replace("/", ".") for path in PACKAGES[role])]
    done = subprocess.run(program, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr


def install(role: str, directory: Path) -> None:
    """Links to what the role's lock names, out of this environment, and to what its image holds."""
    for distribution in metadata.distributions():
        if canonical(distribution.name) in names_locked(role):
            for top in {file.parts[0] for file in distribution.files or ()} - {".."}:
                link = directory / top
                if not link.is_symlink():
                    link.symlink_to(Path(str(distribution.locate_file(top))))
    (directory / "edgeai").mkdir()
    for path in (*SHARED, *PACKAGES[role]):
        (directory / path).symlink_to(ROOT / path)


@pytest.mark.parametrize("role", PACKAGES)
def test_what_a_role_imports_anywhere_is_named_in_its_extra(role: str) -> None:
    """Also in a function, where it would be missed only once that runs."""
    ours = {"edgeai", *PACKAGES[role], *OPTIONAL.get(role, ())}
    packaged = (file for package in PACKAGES[role] for file in (ROOT / package).rglob("*.py"))
    for file in (*(ROOT / path for path in SHARED), *packaged):
        for module in imports(file):
            known = module in sys.stdlib_module_names or module in ours
            assert known or owners(module) & direct(role), f"{file} imports {module}"


def imports(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Import():
                found |= {alias.name.partition(".")[0] for alias in node.names}
            case ast.ImportFrom(module=str(module)):
                found.add(module.partition(".")[0])
    return found


@pytest.mark.parametrize("role", PACKAGES)
def test_a_role_is_spared_what_the_others_need(role: str) -> None:
    assert direct(role) <= names_locked(role), "run `make lock`"
    assert not FOREIGN[role] & names_locked(role)


@pytest.mark.parametrize("role", [*PACKAGES, "cli"])
def test_the_locks_agree_and_name_no_index(role: str) -> None:
    assert locked(role) <= locked("dev")
    assert "://" not in (ROOT / "requirements" / f"{role}.lock").read_text()
