"""Runtimes in the user's cache: installed once, whole, by one process, from a lock with hashes."""

import hashlib
import shutil
import subprocess
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from edgeai.cli.runtimes import Library, Runtime, RuntimeUnavailable

WHEEL = "tiny-1.0-py3-none-any.whl"
METADATA = "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"
WHEEL_FILE = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"

pytestmark = pytest.mark.timeout(300)  # each makes virtual environments


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """A runtime of one package of one module. pip finds the package without a network."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with zipfile.ZipFile(tmp_path / WHEEL, "w") as wheel:
        wheel.writestr("tiny.py", "import sys; answer = 42")
        wheel.writestr("tiny-1.0.dist-info/METADATA", METADATA)
        wheel.writestr("tiny-1.0.dist-info/WHEEL", WHEEL_FILE)
        wheel.writestr("tiny-1.0.dist-info/RECORD", "")
    lock = tmp_path / "tiny.lock"
    lock.write_text(locked(hashlib.sha256((tmp_path / WHEEL).read_bytes()).hexdigest()))
    return Runtime(lock, tmp_path / "cache")


@pytest.fixture
def free(tiny: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """The same, whose library may come from the machine or from Debian too. The PATH is empty."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    library = Library("import tiny; print(tiny.__file__)", ("python3-tiny",))
    return Runtime(tiny.lock, tiny.cache, library)


def program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def machine_python(directory: Path, number: int) -> str:
    """A script that makes a python3 of the machine, whose library has this answer."""
    library = directory / f"of-{number}"
    made = f'#!/bin/sh\nPYTHONPATH={library} exec {sys.executable} "$@"\n'
    return (
        f"/bin/mkdir -p {library} && echo 'answer = {number}' > {library}/tiny.py\n"
        f"/bin/cat > {directory}/bin/python3 <<'END'\n{made}END\n"
        f"/bin/chmod +x {directory}/bin/python3"
    )


def locked(digest: str) -> str:
    return f"tiny==1.0 \\\n    --hash=sha256:{digest}\n"


def answer(python: Path) -> str:
    code = "import tiny; print(tiny.answer)"
    return subprocess.run(
        [python, "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_a_runtime_is_installed_once(tiny: Runtime) -> None:
    assert not tiny.is_installed()
    assert answer(tiny.install()) == "42"
    made_ns = (tiny.directory / "pyvenv.cfg").stat().st_mtime_ns
    assert tiny.is_installed()
    assert answer(tiny.install()) == "42"
    assert (tiny.directory / "pyvenv.cfg").stat().st_mtime_ns == made_ns


def test_an_interrupted_installation_is_made_anew(tiny: Runtime) -> None:
    package = tiny.directory / "lib" / "half"
    package.mkdir(parents=True)
    assert not tiny.is_installed()
    assert answer(tiny.install()) == "42"
    assert not package.exists()


def test_one_of_two_callers_installs_and_the_other_waits(tiny: Runtime) -> None:
    made: set[int] = set()
    together = threading.Barrier(2)

    def install() -> None:
        together.wait(30)
        python = tiny.install()
        assert answer(python) == "42"
        made.add((tiny.directory / "complete").stat().st_mtime_ns)

    with ThreadPoolExecutor(2) as pool:
        for each in [pool.submit(install), pool.submit(install)]:
            each.result(100)
    assert len(made) == 1


def test_another_lock_has_another_directory(tiny: Runtime) -> None:
    before = tiny.directory
    tiny.lock.write_text(f"# changed\n{tiny.lock.read_text()}")
    assert tiny.directory != before


def test_a_package_with_another_hash_is_refused_and_nothing_stays(tiny: Runtime) -> None:
    tiny.lock.write_text(locked("0" * 64))
    with pytest.raises(RuntimeUnavailable, match=r"(?s)tiny cannot be installed.*HASHES"):
        tiny.install()
    assert not tiny.directory.exists()


def test_a_package_that_is_not_to_be_had_is_named(tiny: Runtime) -> None:
    (tiny.lock.parent / WHEEL).unlink()
    with pytest.raises(RuntimeUnavailable, match=r"No matching distribution found for tiny==1.0"):
        tiny.install()


def test_a_cache_that_cannot_be_written_is_named(tiny: Runtime) -> None:
    tiny.cache.write_text("a file where the directory should be")
    with pytest.raises(RuntimeUnavailable, match=r"XDG_CACHE_HOME"):
        tiny.install()


def test_a_runtime_without_lock_says_where_locks_are(tmp_path: Path) -> None:
    unknown = Runtime(tmp_path / "unknown.lock", tmp_path)
    assert not unknown.is_installed()
    with pytest.raises(RuntimeUnavailable, match="checkout of edgeai"):
        unknown.install()


def test_a_python_of_the_machine_that_has_the_library_is_taken_first(
    free: Runtime, tmp_path: Path
) -> None:
    subprocess.run(["/bin/sh", "-c", machine_python(tmp_path, 7)], check=True)
    assert answer(free.install()) == "7"
    assert free.is_installed()
    shutil.rmtree(tmp_path / "of-7")  # as a package that the user removes
    assert not free.is_installed()
    assert answer(free.install()) == "42"


def test_the_index_comes_before_debian(free: Runtime, tmp_path: Path) -> None:
    program(tmp_path / "bin" / "apt-get", machine_python(tmp_path, 7))
    program(tmp_path / "bin" / "python3", "exit 1")  # has no such library
    assert answer(free.install()) == "42"


def test_what_the_index_lacks_comes_from_debian(free: Runtime, tmp_path: Path) -> None:
    (free.lock.parent / WHEEL).unlink()
    called = f'echo "$@" >> {tmp_path}/called\n'
    program(tmp_path / "bin" / "apt-get", called + machine_python(tmp_path, 7))
    assert answer(free.install()) == "7"
    last = (tmp_path / "called").read_text().splitlines()[-1]
    assert last.endswith("install --yes --no-install-recommends python3-tiny")


def test_another_apt_get_is_waited_for(free: Runtime, tmp_path: Path) -> None:
    (free.lock.parent / WHEEL).unlink()
    locked = 'echo "E: Could not get lock /var/lib/apt/lists/lock." >&2; exit 100'
    once = f"[ -e {tmp_path}/seen ] || {{ /bin/touch {tmp_path}/seen; {locked}; }}\n"
    program(tmp_path / "bin" / "apt-get", once + machine_python(tmp_path, 7))
    assert answer(free.install()) == "7"


def test_where_nobody_has_the_library_each_refusal_and_each_remedy_is_named(
    free: Runtime, tmp_path: Path
) -> None:
    (free.lock.parent / WHEEL).unlink()
    program(tmp_path / "bin" / "apt-get", "echo are you root? >&2; exit 100")
    with pytest.raises(RuntimeUnavailable) as raised:
        free.install()
    for part in (
        "No matching distribution found for tiny==1.0",
        "packages python3-tiny are missing: install them, or run as root on a Debian 12",
        "are you root?",
        "install tiny into a Python on the PATH",
        "PIP_EXTRA_INDEX_URL",
    ):
        assert part in str(raised.value)
    assert not free.directory.exists()


def test_the_command_says_what_cannot_be_installed() -> None:
    command = [sys.executable, "-m", "edgeai.cli.runtimes", "nothing-of-this-name"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "requirements/nothing-of-this-name.lock" in done.stderr
