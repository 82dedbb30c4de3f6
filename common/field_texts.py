"""The texts below the fields of a class, as data: what --help and /metrics say of each field."""

import ast
import contextlib
import inspect
from functools import cache
from itertools import pairwise


@cache
def field_texts(classes: tuple[type, ...]) -> dict[str, str]:
    """Field -> the text below it in the source, on one line. Args: classes: the first one counts"""
    texts: dict[str, str] = {}
    for class_ in reversed(classes):
        with contextlib.suppress(OSError, TypeError):  # there is no source, or it is not Python
            (definition,) = ast.parse(inspect.getsource(class_)).body
            for statements in pairwise(getattr(definition, "body", ())):
                match statements:
                    case (
                        ast.AnnAssign(ast.Name(name)) | ast.Assign([ast.Name(name)]),
                        ast.Expr(ast.Constant(str(text))),
                    ):
                        texts[name] = " ".join(text.split())
    return texts
