"""The error of `edgeai credentials`. Its text says what is wrong, and what to do."""

from edgeai.errors import EdgeAIError


class CredentialsError(EdgeAIError):
    """A credential cannot be made. What was made stays, and the same command goes on from there."""
