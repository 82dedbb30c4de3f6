"""The runner of documentation pages: a failing command is never taken for a success."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.document import Block, Shell, blocks

PAGE = """
# Title
```bash
name=world
```
```sh
echo "not run"
```
Text
```bash
cat <<END
hello $name
END
```
"""


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path, {"GREETING": "hello"})
    shell.start()
    yield shell
    shell.stop()


def test_blocks_are_found_with_their_lines(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    assert [block.line for block in blocks(page)] == [4, 11]


def test_blocks_share_one_shell(shell: Shell) -> None:
    assert shell.run(Block(1, "name=world\n")) == ""
    assert shell.run(Block(2, 'echo "$GREETING $name"\n')) == "hello world\n"


@pytest.mark.parametrize("text", ["false\necho after\n", "false | cat\n", "echo $unset\n"])
def test_a_failing_command_fails_its_block(shell: Shell, text: str) -> None:
    with pytest.raises(AssertionError, match="line 7 ended with"):
        shell.run(Block(7, text))


def test_nothing_runs_after_a_failure(shell: Shell) -> None:
    with pytest.raises(AssertionError):
        shell.run(Block(1, "false\n"))
    with pytest.raises(AssertionError, match="a block before this one failed"):
        shell.run(Block(2, "true\n"))


def test_a_block_that_hangs_fails(shell: Shell) -> None:
    with pytest.raises(AssertionError, match=r"took longer than 0\.2 s"):
        shell.run(Block(1, "sleep 60\n"), timeout_s=0.2)
