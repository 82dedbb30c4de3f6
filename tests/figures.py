"""Prints figures of a checkout, by default this one, as a table; docs/figures.md explains them."""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from statistics import quantiles
from typing import Final, NamedTuple, TypeGuard

PRODUCT = ("common", "edgeai", "workersdk", "localcluster", "globalmanager", "localcontroller")
"""Packages; those that a checkout does not have are left out."""
WORDS: Final = """
accepted added again answered asked began begun bound broken built changed chosen counted created
cut done dropped each earned ended found gave given gone granted had have having held hidden joined
kept known lacking leaving left listed lost made marked me mine missed missing moved named needed
nobody nothing offered ours owned parked paused presented read received refused remembered removed
replaced said same saw seen sending sent served settled shown spent stalled started starting stored
struck such taken that theirs these this those told tolerated tried turned unserved waiting wanted
watched welcomed what which who withheld worn writing written
"""
"""Participles, verbs and pronouns; idioms (`other`) and fields of Kubernetes (`failed`) are not."""
PARTICIPLES: Final = frozenset(WORDS.split())
PRAGMA: Final = re.compile(r"#\s*(noqa|type:|pragma|fmt:)|#!")
COLUMNS: Final = (
    "| | files | lines | function p50 | p90 | max | comments/100 lines of code "
    "| `Callable` parameters | lambdas | variables | participles % |"
)


class Source(NamedTuple):
    module: str
    text: str
    nodes: list[ast.AST]  # all of the file

    def function_lengths(self) -> list[int]:
        """Lines of bodies, without docstrings."""
        functions = [n for n in self.nodes if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
        bodies = [function.body[is_text(function.body[0]) :] for function in functions]
        return [(b[-1].end_lineno or 0) - b[0].lineno + 1 for b in bodies if b]

    def code_and_comments(self) -> tuple[int, int]:
        """Lines with code, which blank lines and docstrings are not; comments for readers."""
        code: set[int] = set()
        comments = 0
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type == tokenize.COMMENT:
                comments += not PRAGMA.match(token.string)
            elif token.string.strip():  # not the layout
                code.update(range(token.start[0], token.end[0] + 1))
        for text in filter(is_text, self.nodes):
            code.difference_update(range(text.lineno, (text.end_lineno or text.lineno) + 1))
        return len(code), comments

    def variables(self) -> Iterator[str]:
        """The name of each binding: by assignment, a loop, `with`, a comprehension, a parameter."""
        for node in self.nodes:
            match node:
                case (
                    ast.Name(name, ast.Store())
                    | ast.arg(name)
                    | ast.Attribute(_, name, ast.Store())
                ):
                    yield name


def is_text(node: ast.AST) -> TypeGuard[ast.Expr]:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def is_participle(name: str) -> bool:
    """Whether no word of a name is anything else: `each`, `_told`, `found_again`."""
    return all(word in PARTICIPLES for word in name.strip("_").lower().split("_"))


class Callables:
    """The names of types that are a Callable: the class, its aliases, protocols with `__call__`."""

    def __init__(self, sources: list[Source]) -> None:
        self._names: set[tuple[str, str]] = set()  # module, name
        for _ in range(6):  # imports of aliases, and aliases of those
            self._names |= {(s.module, n) for s in sources for n in self._defined(s)}

    def _defined(self, source: Source) -> Iterator[str]:
        for node in source.nodes:
            match node:
                case ast.Assign([ast.Name(name)], ast.Subscript() | ast.BinOp() as value):
                    if self.contains(value, source.module):
                        yield name
                case ast.ClassDef(name) if "Protocol" in map(ast.unparse, node.bases):
                    if any(getattr(n, "name", "") == "__call__" for n in node.body):
                        yield name
                case ast.ImportFrom(str(module), names):
                    for alias in names:
                        if alias.name == "Callable" or (module, alias.name) in self._names:
                            yield alias.asname or alias.name

    def contains(self, annotation: ast.expr | None, module: str) -> bool:
        """Whether any part of a type is a Callable; also of a type that is given as a string."""
        words = re.findall(r"\w+", ast.unparse(annotation) if annotation else "")
        return any((module, word) in self._names for word in words)

    def parameters(self, source: Source) -> int:
        """Parameters of `__init__`, and fields of classes whose constructor is made from them."""
        classes = (n for n in source.nodes if isinstance(n, ast.ClassDef))
        nodes = [n for c in classes if c.bases or c.decorator_list for n in c.body]
        fields: list[ast.AnnAssign | ast.arg] = [n for n in nodes if isinstance(n, ast.AnnAssign)]
        functions = (n for n in source.nodes if isinstance(n, ast.FunctionDef))
        makers = (function.args for function in functions if function.name == "__init__")
        fields += (n for args in makers for n in ast.walk(args) if isinstance(n, ast.arg))
        return sum(self.contains(field.annotation, source.module) for field in fields)


def row(title: str, sources: list[Source], callables: Callables) -> str:
    lengths = [length for source in sources for length in source.function_lengths()]
    deciles = quantiles(lengths, n=10, method="inclusive")
    names = [is_participle(name) for source in sources for name in source.variables()]
    code, comments = map(sum, zip(*(s.code_and_comments() for s in sources), strict=True))
    cells: tuple[object, ...] = (
        *(len(sources), sum(source.text.count("\n") for source in sources)),
        *(round(deciles[4]), round(deciles[8]), max(lengths), round(100 * comments / code, 1)),
        sum(map(callables.parameters, sources)),
        sum(isinstance(node, ast.Lambda) for source in sources for node in source.nodes),
        *(len(names), round(100 * sum(names) / len(names), 1)),
    )
    return f"| {title} | {' | '.join(map(str, cells))} |"


def is_example(module: str) -> bool:
    """Whether it is a program that a demo runs, as users write them, and not the demo."""
    return fnmatch(module, "edgeai.demo.*.*") and not module.endswith(".story")


def read(root: Path, directory: str) -> Iterator[Source]:
    for path in sorted((root / directory).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        module = ".".join(path.relative_to(root).with_suffix("").parts)
        yield Source(module, text, list(ast.walk(ast.parse(text))))


def table(root: Path) -> str:
    files = {d: list(read(root, d)) for d in (*PRODUCT, "examples", "tests")}
    callables = Callables([source for part in files.values() for source in part])
    product = [source for d in PRODUCT for source in files[d] if not is_example(source.module)]
    files["the product, without examples"] = product
    files["globalmanager/kinds"] = [s for s in product if "globalmanager.kinds." in s.module]
    files["support of tests"] = [s for s in files.pop("tests") if ".test_" not in s.module]
    rows = [row(title, part, callables) for title, part in files.items() if part]
    return "\n".join([COLUMNS, f"|{'---|' * (COLUMNS.count('|') - 1)}", *rows])


if __name__ == "__main__":
    print(table(Path(sys.argv[1] if sys.argv[1:] else Path(__file__).parents[1])))
