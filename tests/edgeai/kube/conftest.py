"""The fixtures of a scripted Kubernetes API, which the tests of the GlobalManager have, too."""

from tests.globalmanager.conftest import impatient_client, scripted, scripted_client

__all__ = ["impatient_client", "scripted", "scripted_client"]
