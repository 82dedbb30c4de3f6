"""The errors of an installation. Each text says what is wrong, and what to do."""

from edgeai.errors import EdgeAIError


class InstallError(EdgeAIError):
    """An installation cannot go on. What was applied stays, and the same command goes on from
    there.
    """


class ValuesError(InstallError):
    """A value is wrong. `source` says where the value is from, for example "values.yaml"."""

    def __init__(self, source: str, problem: str) -> None:
        self.source, self.problem = source, problem
        super().__init__(f"{source}: {problem}")
