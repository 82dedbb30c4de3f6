"""How users of Sedna's kinds describe a worker and the way that it takes to the cloud."""

import enum

import msgspec

from edgeai.api.specs import NonEmpty
from edgeai.api.templates import Template


class Transport(enum.StrEnum):
    AUTO = "auto"  # directly where the Service answers from the node, else through the relay
    DIRECT = "direct"
    RELAY = "relay"  # through the LocalController of the node


class Parameter(msgspec.Struct, frozen=True):
    """A parameter with a name and a text value."""

    key: NonEmpty
    """Its name."""
    value: str = ""
    """Its value."""


class WorkerSpec(msgspec.Struct, frozen=True, rename="camel"):
    """A script that runs as `python3 scriptDir/scriptBootFile` in the framework's image.

    scriptDir is a directory of the worker's node, mounted read-only at the same path. The
    GlobalManager's settings name the image for frameworkType:frameworkVersion. Each parameter
    becomes an environment variable.
    """

    script_dir: NonEmpty
    """Directory on the node."""
    script_boot_file: NonEmpty
    """The script, in scriptDir."""
    framework_type: NonEmpty
    """The framework, for example tensorflow."""
    framework_version: NonEmpty
    """Its version."""
    parameters: list[Parameter] = []


class WorkerForm(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How a user gives one worker: exactly one of workerSpec and template."""

    name: str = ""
    """A name for display. edgeai names workers after their job, so that the workers of two jobs
    never have the same name."""
    node_name: str = ""
    """The node of the worker. Kubernetes chooses one when the field is missing."""
    worker_spec: WorkerSpec | None = None
    template: Template | None = None
