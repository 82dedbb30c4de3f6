"""Every error that edgeai raises on purpose.

EdgeAIError
├── InvalidName         a name that is not an RFC 1123 name
├── SettingsError       a flag, environment variable or configuration key is wrong; exit code 2
├── StateError          the state directory cannot be used; exit code 3
├── ProtocolError       the peer broke the wire protocol; carries the WebSocket close code
├── Gone                the object that somebody asks for does not exist
├── Unwritable          the store accepts the object, but not this content of it
│   └── TooLarge        an object would be larger than its store accepts
└── Unavailable         a dependency does not answer now; try again later
    └── Overloaded      the dependency refuses more requests now; carries seconds until the retry

The text of an error, and its attributes, name the object, the field, the problem and what to do.
"""

from typing import Any


class EdgeAIError(Exception):
    """Base class of the errors that edgeai expects. Code that catches this class hides no bug.

    An error may be pickled, as by a pool of processes, with all its facts.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        # As Exception has it, its text would be given to __init__, which wants the facts.
        return _remade, (type(self), self.args), self.__dict__


def _remade(class_: type[EdgeAIError], args: tuple[Any, ...]) -> EdgeAIError:
    return class_.__new__(class_, *args)


class InvalidName(EdgeAIError):
    def __init__(self, what: str, value: str, expected: str) -> None:
        self.what, self.value, self.expected = what, value, expected
        super().__init__(f"{what} {value!r} is invalid: expected {expected} of RFC 1123 names")


class SettingsError(EdgeAIError):
    """`source` says where the value is from, for example "flag --edge-address"."""

    def __init__(self, source: str, problem: str) -> None:
        self.source, self.problem = source, problem
        super().__init__(f"{source}: {problem}")


class StateError(EdgeAIError):
    def __init__(self, path: object, problem: str, remedy: str) -> None:
        self.path, self.problem, self.remedy = path, problem, remedy
        super().__init__(f"state directory {path}: {problem}; {remedy}")


class ProtocolError(EdgeAIError):
    """`code`: the WebSocket close code that ends the session (see common.wire.Close)."""

    def __init__(self, code: int, problem: str) -> None:
        self.code, self.problem = code, problem
        super().__init__(problem)


class Gone(EdgeAIError):
    """The object that the call is about does not exist, or no longer. A retry does not help."""


class Unwritable(EdgeAIError):
    """The store does not accept the content, for example because it breaks the schema."""


class TooLarge(Unwritable):
    """The object would be larger than its store accepts. A retry of the same call does not help."""


class Unavailable(EdgeAIError):
    """The called part cannot answer now. The same call may succeed later."""


class Overloaded(Unavailable):
    def __init__(self, what: str, retry_after_s: float) -> None:
        self.what, self.retry_after_s = what, retry_after_s
        super().__init__(f"{what} is overloaded, retry after {retry_after_s:g} s")
