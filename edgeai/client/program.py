"""A function of a user as a program for the pods of a job.

The source of the function travels in an environment variable of each pod, as text that `kubectl`
shows. A function that needs what the pods do not have is refused here, with its name, and not by a
traceback of a pod: a variable of its module, a decorator, a closure.
"""

import ast
import builtins
import dis
import inspect
import json
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import CodeType, FunctionType
from typing import Any, Final

from edgeai.errors import EdgeAIError

PROGRAM: Final = "EDGEAI_PROGRAM"
REQUIREMENTS: Final = "EDGEAI_REQUIREMENTS"
MAX_CHARS: Final = 100_000
"""Of a program. Linux gives at most 128 KiB in one variable to a process."""
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
        name = getattr(function, "__name__", repr(function))
        super().__init__(f"function {name}: {problem}; {remedy}")


def program_of(function: Callable[..., object], arguments: Mapping[str, Any]) -> str:
    """A program that calls the function with these keyword arguments.

    Args: arguments: as JSON has them
    Raises: NotShippable
    """
    if not isinstance(function, FunctionType):
        raise NotShippable(function, "is no function", "pass a function that `def` has made")
    tree = _definition(function)
    _check_names(function, tree)
    try:
        inspect.signature(function).bind(**arguments)
        values = json.dumps(dict(arguments), allow_nan=False)
    except TypeError as error:
        raise NotShippable(function, f"args: {error}", "pass what its signature has") from error
    except ValueError as error:
        raise NotShippable(function, f"args: {error}", "pass what JSON has") from error
    program = (
        f"from __future__ import annotations\n\nimport json\n\n\n{ast.unparse(tree)}\n\n\n"
        f"if __name__ == '__main__':\n    {function.__name__}(**json.loads({values!r}))\n"
    )
    if len(program) > MAX_CHARS:
        problem = f"has {len(program)} characters, and {MAX_CHARS} can travel to a pod"
        raise NotShippable(function, problem, "put a part of it into a package or an image")
    return program


def _definition(function: FunctionType) -> ast.FunctionDef:
    try:
        source = textwrap.dedent(inspect.getsource(function))
        (tree,) = ast.parse(source).body
    except OSError as error:
        problem, remedy = "its source cannot be read", "write it into a file or a notebook"
        raise NotShippable(function, problem, remedy) from error
    except (SyntaxError, ValueError) as error:
        raise NotShippable(function, "is not alone in its lines", "use `def`") from error
    if not isinstance(tree, ast.FunctionDef):
        raise NotShippable(function, "is a lambda or `async`", "use `def`")
    if tree.decorator_list:
        raise NotShippable(function, "has a decorator", "pass the function without it")
    return tree


def _check_names(function: FunctionType, tree: ast.FunctionDef) -> None:
    """Raises: NotShippable for a name that is defined outside of the function"""
    if function.__code__.co_freevars:
        name = function.__code__.co_freevars[0]
        raise NotShippable(function, f"uses {name!r} of the function around it", _PASS_IT)
    defaults = [*tree.args.defaults, *filter(None, tree.args.kw_defaults)]
    names = {node.id for one in defaults for node in ast.walk(one) if isinstance(node, ast.Name)}
    names |= set(_global_names(function.__code__))
    for name in sorted(names):
        if not hasattr(builtins, name) and name != function.__name__:
            raise NotShippable(function, f"uses {name!r} from outside of it", _PASS_IT)


_PASS_IT: Final = "import or define it inside the function, or pass it in `args`"


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
    program: str, *, python: str, requirements: Sequence[str], launcher: Sequence[str]
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
