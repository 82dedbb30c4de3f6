"""Functions and classes of a user as a program for the pods of a job.

The source of the function travels in an environment variable of each pod, as text that `kubectl`
shows. A function that needs what the pods do not have is refused here, with its name, and not by a
traceback of a pod: a variable of its module, a decorator, a closure.
"""

import ast
import builtins
import dis
import functools
import inspect
import json
import linecache
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any, Final, Self

import msgspec

from edgeai.errors import EdgeAIError

PROGRAM: Final = "EDGEAI_PROGRAM"
REQUIREMENTS: Final = "EDGEAI_REQUIREMENTS"
IMAGE_PYTHON: Final = "python3"
MAX_BYTES: Final = 100_000
"""Of a program. Linux gives at most 128 KiB in one variable to a process."""
_NAMES: Final = frozenset({"functions", "functools", "json"})
"""What a program imports beside its parts."""
_START: Final = f"""\
import json, os, runpy, subprocess, sys, tempfile

directory = tempfile.mkdtemp(prefix="edgeai-")
path = os.path.join(directory, "program.py")
with open(path, "w", encoding="utf-8") as file:
    file.write(os.environ["{PROGRAM}"])
if requirements := json.loads(os.environ["{REQUIREMENTS}"]):
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", directory]
    subprocess.run([*pip, *requirements], check=True)
os.environ["PYTHONPATH"] = os.pathsep.join([directory, os.environ.get("PYTHONPATH", "")])
if launcher := sys.argv[1:]:
    os.execv(sys.executable, [sys.executable, *launcher, path])
sys.path.insert(0, directory)
sys.argv = [path]
runpy.run_path(path, run_name="__main__")
"""


class NotShippable(EdgeAIError):
    """The function cannot run in another process. The text names the function and the remedy."""

    def __init__(self, function: object, problem: str, remedy: str) -> None:
        name = getattr(function, "__name__", function)
        super().__init__(f"function {name}: {problem}; {remedy}")


class Part(msgspec.Struct, frozen=True):
    """A function or a class of a user, as a program defines it."""

    name: str
    definition: str
    """Its source."""
    value: str
    """The expression for it, with the arguments of a `functools.partial`."""

    @classmethod
    def of(cls, function: Callable[..., object], *, positional: int = 0) -> Self:
        """Args:
            function: that `def` has made, a class, or a `functools.partial` of one with keyword
                arguments, as JSON has them: keys are strings, and a tuple arrives as a list
            positional: number of arguments of a call beside these
        Raises: NotShippable
        """
        whole: Any = function
        is_partial = isinstance(whole, functools.partial)
        function, arguments = (whole.func, whole.keywords) if is_partial else (whole, {})
        if is_partial and whole.args:
            raise NotShippable(function, "has arguments without names", "name them in `partial`")
        if not isinstance(function, FunctionType | type):
            raise NotShippable(function, "is no function and no class", "pass what `def` has made")
        own = _own_function(function)
        tree = _definition(function, own.__code__)
        _check_names(function, tree, own.__globals__)
        try:
            inspect.signature(function).bind(*[None] * positional, **arguments)
        except TypeError as error:
            raise NotShippable(function, f"args: {error}", "pass what its signature has") from error
        try:
            values = json.dumps(arguments, allow_nan=False)
            _check_keys(arguments)
        except (TypeError, ValueError) as error:
            raise NotShippable(function, f"args: {error}", "pass what JSON has") from error
        name = function.__name__
        value = f"functools.partial({name}, **json.loads({values!r}))" if arguments else name
        return cls(name, ast.unparse(tree), value)


def _check_keys(value: object) -> None:
    """Raises: ValueError for a key that is no string: JSON makes a string of a number"""
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise ValueError(f"{key!r} is a key and no string")
        value = list(value.values())
    for one in value if isinstance(value, list | tuple) else ():
        _check_keys(one)


def program_of(function: Callable[..., object], arguments: Mapping[str, Any]) -> str:
    """A program that calls the function with these keyword arguments.

    Args: arguments: as of `Part.of`
    Raises: NotShippable
    """
    if not isinstance(function, FunctionType):
        raise NotShippable(function, "is no function", "pass a function that `def` has made")
    part = Part.of(functools.partial(function, **arguments))
    return program([part], f"{part.value}()")


def program(parts: Iterable[Part], call: str) -> str:
    """A program that defines the parts, and makes the call. Raises: NotShippable"""
    definitions: dict[str, str] = {}
    for part in parts:
        if part.name in _NAMES:
            problem = "has a name of the program around it"
            raise NotShippable(part.name, problem, "give it another name")
        if definitions.setdefault(part.name, part.definition) != part.definition:
            problem = "has the name of another one"
            raise NotShippable(part.name, problem, "give each a name of its own")
    head = "from __future__ import annotations\n\nimport functools\nimport json"
    text = "\n\n\n".join([head, *definitions.values(), f"if __name__ == '__main__':\n    {call}\n"])
    if (size := len(text.encode())) > MAX_BYTES:
        problem = f"has {size} bytes, and {MAX_BYTES} can travel to a pod"
        names = ", ".join(definitions)
        raise NotShippable(names, problem, "put a part of it into a package or an image")
    return text


_Definition = ast.FunctionDef | ast.ClassDef


def _definition(function: FunctionType | type, code: CodeType) -> _Definition:
    """By the lines of the code: `inspect` finds no class that a notebook has defined.

    Raises: NotShippable
    """
    linecache.checkcache()
    if not (lines := linecache.getlines(code.co_filename)):
        problem, remedy = "its source cannot be read", "write it into a file or a notebook"
        raise NotShippable(function, problem, remedy)
    try:
        module = ast.parse("".join(lines), code.co_filename)
    except SyntaxError as error:
        problem = f"its file has an error: {error.msg} ({code.co_filename}, line {error.lineno})"
        raise NotShippable(function, problem, "correct the file") from error
    trees = [
        tree
        for tree in ast.walk(module)
        if isinstance(tree, _Definition) and tree.name == function.__name__
        if min(one.lineno for one in (tree, *tree.decorator_list)) <= code.co_firstlineno
        if code.co_firstlineno <= (tree.end_lineno or 0)
    ]
    if not trees:
        raise NotShippable(function, "is a lambda or `async`", "use `def`")
    if trees[-1].decorator_list:
        raise NotShippable(function, "has a decorator", "pass it without the decorator")
    return trees[-1]


def _own_function(function: FunctionType | type) -> FunctionType:
    """The function itself, or the first that the class defines. Raises: NotShippable"""
    if isinstance(function, FunctionType):
        own: FunctionType = inspect.unwrap(function)
        return own
    members = map(inspect.unwrap, vars(function).values())
    for one in (member for member in members if isinstance(member, FunctionType)):
        if one.__qualname__.rpartition(".")[0] == function.__qualname__:
            return one
    problem, remedy = "has no method of its own", "define one without a decorator"
    raise NotShippable(function, problem, remedy)


def _check_names(
    function: FunctionType | type, tree: _Definition, variables: Mapping[str, Any]
) -> None:
    """Args: variables: of the module

    Raises: NotShippable for a name that is defined outside of the function
    """
    if isinstance(function, FunctionType) and function.__code__.co_freevars:
        name = function.__code__.co_freevars[0]
        raise NotShippable(function, f"uses {name!r} of the function around it", _PASS_IT)
    # Compiled alone: what comes from outside is a global name then, also a default or a base.
    text = f"from __future__ import annotations\n{ast.unparse(tree)}"
    for name in sorted(_global_names(compile(text, "<function>", "exec"))):
        if name not in (function.__name__, "__annotations__") and not _is_builtin(name, variables):
            raise NotShippable(function, f"uses {name!r} from outside of it", _PASS_IT)


def _is_builtin(name: str, variables: Mapping[str, Any]) -> bool:
    """A variable of the module may hide a builtin. The `open` of IPython only wraps it."""
    is_own = name in variables and not name.startswith("__")  # each module has a __name__
    builtin = getattr(builtins, name, None)
    return hasattr(builtins, name) and (not is_own or inspect.unwrap(variables[name]) is builtin)


_PASS_IT: Final = "import or define it inside the function, or pass it as an argument"


def _global_names(code: CodeType) -> Iterator[str]:
    instructions = list(dis.get_instructions(code))
    # The body of a class has names of its own.
    own = {one.argval for one in instructions if one.opname == "STORE_NAME"}
    for one in instructions:
        if one.opname == "LOAD_GLOBAL" or (one.opname == "LOAD_NAME" and one.argval not in own):
            yield one.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)


def container(
    program: str, *, python: str, requirements: Sequence[str] = (), launcher: Sequence[str] = ()
) -> dict[str, Any]:
    """The command and the environment of a container that runs the program.

    Args:
        python: the interpreter in the container
        requirements: what pip installs first, into a directory of the pod
        launcher: arguments of Python before the program: ["-m", "torch.distributed.run"]
    """
    variables = {PROGRAM: program, REQUIREMENTS: json.dumps(list(requirements))}
    return {
        "command": [python, "-c", _START, *launcher],
        # Kubernetes reads $(NAME) in a value as a reference, and $$ as a dollar.
        "env": [
            {"name": name, "value": value.replace("$", "$$")} for name, value in variables.items()
        ],
    }
