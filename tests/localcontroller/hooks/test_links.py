"""Paths and symbolic links of Datasets are resolved as on the node, wherever its root is."""

from pathlib import Path

import pytest

from localcontroller.hooks import files
from localcontroller.hooks.sources import SourceOptions
from localcontroller.ledger.ledger import Ledger
from tests.localcontroller.hooks.world import watching


async def test_paths_are_below_the_root_of_the_node(ledger: Ledger, tmp_path: Path) -> None:
    file = tmp_path / "rootfs" / "data" / "a.txt"
    file.parent.mkdir(parents=True)
    file.write_text("one\n")
    async with watching(ledger, SourceOptions(data_root=tmp_path / "rootfs")) as world:
        await world.hold(url="/data/a.txt")
        assert await world.samples() == 1


@pytest.fixture
def rootfs(tmp_path: Path) -> Path:
    """A root of the node with two files below /data, and secrets outside of this root."""
    root = tmp_path / "rootfs"
    data = root / "data"
    (data / "below").mkdir(parents=True)
    (data / "two.txt").write_text("one\ntwo\n")
    (data / "below" / "one.txt").write_text("one\n")
    (tmp_path / "secret.txt").write_text("s\n" * 7)
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "a.key").touch()
    return root


LINKS: dict[str, tuple[str, int | str]] = {
    "absolute": ("/data/two.txt", 2),
    "relative": ("below/one.txt", 1),
    "up and down": ("below/../two.txt", 2),
    "above the root": ("../" * 20 + "data/two.txt", 2),
    "out, absolute": ("{outside}/secret.txt", "NotFound"),
    "out, relative": ("../../secret.txt", "NotFound"),
    "a directory outside": ("{outside}/secrets", "NotFound"),
    "a directory outside, relative": ("../../secrets", "NotFound"),
    "through a file": ("two.txt/../two.txt", "NotFound"),
    "to itself": ("/data/link.txt", "Unreadable"),
}


@pytest.mark.parametrize("is_on_the_way", [False, True], ids=["at the end", "on the way"])
@pytest.mark.parametrize("case", LINKS)
async def test_links_in_paths_are_resolved_as_on_the_node(
    case: str, is_on_the_way: bool, ledger: Ledger, rootfs: Path
) -> None:
    target, expected = LINKS[case]
    (rootfs / "data" / "link.txt").symlink_to(target.format(outside=rootfs.parent))
    if is_on_the_way:
        (rootfs / "data" / "also").symlink_to("/data")
    url = "/data/also/link.txt" if is_on_the_way else "/data/link.txt"
    async with watching(ledger, SourceOptions(data_root=rootfs)) as world:
        await world.hold(url=url)
        problem = await world.problem()
        assert (await world.samples() if problem is None else problem) == expected


@pytest.mark.parametrize(
    ("target", "expected"), [("/data/below", 1), ("{outside}/secrets", "NotFound")]
)
async def test_a_link_to_a_directory_is_resolved_as_on_the_node(
    target: str, expected: int | str, ledger: Ledger, rootfs: Path
) -> None:
    (rootfs / "data" / "link").symlink_to(target.format(outside=rootfs.parent))
    async with watching(ledger, SourceOptions(data_root=rootfs)) as world:
        await world.hold(url="/data/link", format="dir")
        problem = await world.problem()
        assert (await world.samples() if problem is None else problem) == expected


@pytest.mark.parametrize("url", ["/etc/shadow", "/root/.ssh/id", "/proc/1/environ", "/data/link"])
async def test_a_file_of_the_system_is_not_counted(url: str, ledger: Ledger, rootfs: Path) -> None:
    for path in ("etc/shadow", "root/.ssh/id", "proc/1/environ"):
        (rootfs / path).parent.mkdir(parents=True)
        (rootfs / path).write_text("one\n")
    (rootfs / "data" / "link").symlink_to("/etc/shadow")
    async with watching(ledger, SourceOptions(data_root=rootfs)) as world:
        await world.hold(url=url, format="txt")
        assert await world.problem() == "Forbidden"
        assert await world.samples() is None
        told = (await world.report()).reason
        assert told == f"spec.url: {url} is or leads to a place that --node-path-prefixes forbids"


async def test_a_prefix_allows_a_directory_of_the_system(ledger: Ledger, rootfs: Path) -> None:
    (rootfs / "var" / "birds").mkdir(parents=True)
    (rootfs / "var" / "birds" / "a.txt").write_text("one\n")
    options = SourceOptions(data_root=rootfs, node_path_prefixes=("/data", "/var/birds"))
    async with watching(ledger, options) as world:
        await world.hold(url="/var/birds/a.txt")
        assert await world.samples() == 1


def test_the_number_of_links_that_are_followed_is_that_of_the_kernel(tmp_path: Path) -> None:
    """The kernel follows exactly MAX_LINKS links on one path."""
    (tmp_path / "0").touch()
    for number in range(files.MAX_LINKS + 1):
        (tmp_path / f"{number + 1}").symlink_to(f"{number}")
    last, one_more = (f"{tmp_path}/{files.MAX_LINKS + extra}" for extra in (0, 1))
    assert Path(last).stat()
    assert files.resolve_on_node(files.NODE_ROOT, last) == tmp_path / "0"
    with pytest.raises(OSError, match="Too many levels"):
        Path(one_more).stat()
    with pytest.raises(OSError, match="Too many levels"):
        files.resolve_on_node(files.NODE_ROOT, one_more)
