"""What mkdocs.yml asks of MkDocs beyond its own: docs/ is also read in the repository.

- Pages link to files and folders of the repository. The site has a page for each of them, below
  source/.
- `folder/*.md` in the navigation stands for the pages of the folder but its README.
- A notebook is shown as text and code.
- A fence of code may have a name after its language, which becomes its title.
- The search leaves out decisions and proofs, whose words are those of the pages for users. It shows
  tutorials first and pages for developers last.
- The dialog of the search has a name, for those who do not see it.
- A state diagram of Mermaid becomes a table: what draws it would come from another host.
"""

import ast
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[1]
DOCS: Final = "docs"
SOURCE: Final = "source"
_NOT_SEARCHED: Final = ("decisions/", "proofs.md")
_BOOSTS: Final = {
    ("tutorials/", "troubleshooting.md", "kubernetes-in-short.md", "cli.md"): 3.0,
    (f"{SOURCE}/", "adding-", "architecture.md", "performance.md", "protocol.md"): 0.1,
}
"""Beginnings of pages -> how much more than others the search prefers them."""
_LINK: Final = re.compile(r"\]\((?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
_CODE: Final = re.compile(r"(^ *```.*?^ *```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
_STATES: Final = re.compile(r"^```mermaid\nstateDiagram-v2\n(?P<lines>.*?)^```$", re.M | re.S)
_STEP: Final = re.compile(r"^ *(\S+) --> (\S+?)(?:: (.*))?$", re.MULTILINE)
_NAMED: Final = re.compile(r"^```(\w+) ([\w./]+)$", re.MULTILINE)
_LANGUAGES: Final = {".py": "python", ".yaml": "yaml", ".toml": "toml"}


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.nav = list(_with_folders(config.nav, Path(config.docs_dir)))
    return config


def _with_folders(entries: list[Any], docs: Path) -> Iterator[Any]:
    for entry in entries:
        if isinstance(entry, dict):
            yield {
                title: [*_with_folders(inner, docs)] if isinstance(inner, list) else inner
                for title, inner in entry.items()
            }
        elif entry.endswith("/*.md"):
            pages = sorted((docs / entry).parent.glob("*.md"))
            yield from (str(page.relative_to(docs)) for page in pages if page.stem != "README")
        else:
            yield entry


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add a page for each file and folder of the repository that a page links to."""
    pages = [
        (f"{DOCS}/{each.src_uri}", each.content_string) for each in files.documentation_pages()
    ]
    while pages:
        paths = {path for page, text in pages for path in _linked(page, text)}
        pages = []
        for path in sorted(paths):
            if files.get_file_from_path(_uri(path)) is None:
                content = _content(ROOT / path)
                files.append(
                    File.generated(
                        config, _uri(path), content=content, inclusion=InclusionLevel.NOT_IN_NAV
                    )
                )
                if path.endswith(".md"):
                    pages.append((path, content))
    return files


def _linked(page: str, text: str) -> Iterator[str]:
    """The files and folders outside docs/ that a page links to, as paths in the repository."""
    for match in _LINK.finditer(_CODE.sub("", text)):
        path = _path(page, match["target"])
        if path is not None and not path.startswith(f"{DOCS}/"):
            yield path


def _path(page: str, target: str) -> str | None:
    """Where a relative link leads in the repository, if anything is there."""
    path = os.path.normpath(os.path.join(os.path.dirname(page), target))
    leads = "://" not in target and not path.startswith("..") and (ROOT / path).exists()
    return path if leads else None


def _uri(path: str) -> str:
    """The page of the site for a path in the repository."""
    if path.startswith(f"{DOCS}/"):
        page = path if (ROOT / path).is_file() else f"{path}/README.md"
        return page.removeprefix(f"{DOCS}/")
    return f"{SOURCE}/{path}.md"


def _content(path: Path) -> str:
    name = path.relative_to(ROOT)
    if path.is_dir():
        names = sorted(each for each in path.iterdir() if not each.name.startswith((".", "__py")))
        return f"# {name}/\n\n" + "".join(f"- `{each.name}`{_meaning(each)}\n" for each in names)
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return text
    if path.suffix == ".ipynb":
        return "\n\n".join(_cell(cell) for cell in json.loads(text)["cells"]) + "\n"
    return f"# {name}\n\n~~~~~~{_LANGUAGES.get(path.suffix, 'text')}\n{text.rstrip()}\n~~~~~~\n"


def _cell(cell: dict[str, Any]) -> str:
    """Of a notebook."""
    text = "".join(cell["source"])
    return text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```"


def _meaning(path: Path) -> str:
    """The first line of a module's text."""
    module = path / "__init__.py" if path.is_dir() else path
    if module.suffix != ".py" or not module.exists():
        return ""
    text = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    return f": {text.splitlines()[0]}" if text else ""


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    if page.file.src_uri.startswith(_NOT_SEARCHED):
        page.meta["search"] = {"exclude": True}
    for beginnings, boost in _BOOSTS.items():
        if page.file.src_uri.startswith(beginnings):
            page.meta["search"] = {"boost": boost}
    if page.file.generated_by is None:
        path = f"{DOCS}/{page.file.src_uri}"
    else:
        path = page.file.src_uri.removeprefix(f"{SOURCE}/").removesuffix(".md")
        if not path.endswith(".md"):
            return markdown
    markdown = _NAMED.sub(r'```\1 title="\2"', _STATES.sub(_table, markdown))
    parts = _CODE.split(markdown)
    rewritten = (
        part if odd % 2 else _LINK.sub(lambda match: _link(match, path, page.file.src_uri), part)
        for odd, part in enumerate(parts)
    )
    return "".join(rewritten)


def on_post_page(output: str, **_: object) -> str:
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"', 1)


def _link(match: re.Match[str], path: str, uri: str) -> str:
    target = _path(path, match["target"])
    if target is None or (path.startswith(f"{DOCS}/") and target.startswith(f"{DOCS}/")):
        return match[0]
    link = os.path.relpath(_uri(target), os.path.dirname(uri))
    return f"]({link}{match['anchor'] or ''})"


def _table(match: re.Match[str]) -> str:
    rows = [step for step in _STEP.findall(match["lines"]) if "[*]" not in step[:2]]
    return "| from | to | when |\n|---|---|---|\n" + "".join(
        f"| {start} | {end} | {when} |\n" for start, end, when in rows
    )
