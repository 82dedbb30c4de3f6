"""What can go wrong beside the errors of the Kubernetes API (edgeai.kube.errors).

The text of each error names the object, the field or the problem, and what to do.
"""

from typing import Final

from edgeai.api.resources import ObjectRef
from edgeai.errors import EdgeAIError

CLOSED: Final = "it is closed; make a new one"


class ClientUnusable(EdgeAIError):
    """A client was used where it cannot work: closed, in a fork, or inside its own `wait`."""

    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"the client cannot be used: {problem}")


class UnknownKind(EdgeAIError):
    """Args: subject: where the word stands: "JOB 'x/y'", "document 2 of job.yaml" """

    def __init__(self, subject: str, word: str, words: str) -> None:
        self.word = word
        super().__init__(f"{subject}: {word!r} is not a kind of edgeai; use one of {words}")


class InvalidObject(EdgeAIError):
    """An object, or a document of a file, has not the form of its kind."""

    def __init__(self, subject: str, field: str, problem: str, remedy: str) -> None:
        self.field, self.problem, self.remedy = field, problem, remedy
        super().__init__(f"{subject}: {field} {problem}; {remedy}")


class JobNotFound(EdgeAIError):
    """No object has the name that a user gave."""


class AmbiguousName(JobNotFound):
    """More than one object has the name that a user gave."""


class WaitTimeout(EdgeAIError):
    """The deadline is over. `waits_for` says what the object waits for; "" when it does not say."""

    def __init__(self, ref: ObjectRef, event: str, timeout_s: float, waits_for: str) -> None:
        self.ref, self.waits_for = ref, waits_for
        reason = waits_for or "it does not say what it waits for; see `edgeai describe`"
        super().__init__(f"{ref}: {event} did not come within {timeout_s:g} s: {reason}")


class ObjectGone(EdgeAIError):
    """The object that somebody waits for was deleted. Another one may have its name now."""

    def __init__(self, ref: ObjectRef, uid: str, *, is_replaced: bool) -> None:
        self.ref, self.uid = ref, uid
        now = "and created again" if is_replaced else "and is gone"
        super().__init__(f"{ref}: the object with uid {uid} was deleted {now}; get it again")
