"""A job that a program has started, with what can be done to it."""

import html
from collections.abc import Iterator

from edgeai.client.blocking import Client
from edgeai.client.curves import curves, points_of
from edgeai.client.logs import LogLine
from edgeai.client.objects import AnyResource
from edgeai.client.pods import pods_of, workers_of
from edgeai.client.state import State
from edgeai.errors import EdgeAIError
from edgeai.faults.summary import numbers_of, progress_of

WAIT_S = 3600.0
_POINTS = 2000  # last lines of each log that are looked at


class JobFailed(EdgeAIError):
    """The job has failed. The text says why."""


class Job:
    """A job on the cluster. A notebook shows it as a table of its workers."""

    def __init__(self, client: Client, resource: AnyResource) -> None:
        self._client = client
        self.resource = resource

    @property
    def name(self) -> str:
        return self.resource.name

    def refresh(self) -> AnyResource:
        """The job as the API has it now."""
        kind, one = type(self.resource), self.resource
        self.resource = self._client.get(
            kind, one.name, namespace=one.namespace, group=one.type.group
        )
        return self.resource

    def status(self) -> State:
        """Phase, result and faults, as the conditions and the pods say now."""
        return self._client.state(self.resource)

    def wait(self, condition: str = "ended", *, timeout_s: float = WAIT_S) -> State:
        """Wait until the job has ended, or has a condition: "Running".

        Raises: JobFailed; WaitTimeout, which says what the job waits for; ObjectGone
        """
        self.resource = self._client.wait(self.resource, condition, timeout_s=timeout_s)
        state = self.status()
        if state.result == "failed":
            raise JobFailed(f"{self.resource}: {'; '.join(state.waits_for) or state.phase}")
        return state

    def logs(
        self, *, worker: str = "", follow: bool = False, tail: int | None = None
    ) -> Iterator[LogLine]:
        """The lines of the logs of all workers. Args: see Client.logs"""
        return self._client.logs(self.resource, worker=worker, follow=follow, tail=tail)

    def metrics(self) -> dict[str, float]:
        """The newest value of each metric that the workers report."""
        return numbers_of(self.refresh().object.get("status"))

    def history(self) -> list[dict[str, float]]:
        """The metrics by time, as the logs of the workers have them: each line that is JSON with
        the event "metrics" is one point: {"event": "metrics", "round": 3, "loss": 0.25}.
        """
        return points_of(line.text for line in self.logs(tail=_POINTS))

    def scale(self, workers: int) -> None:
        self.resource = self._client.scale(self.resource, workers)

    def suspend(self) -> None:
        """End the workers until `resume`."""
        self.resource = self._client.suspend(self.resource)

    def resume(self) -> None:
        self.resource = self._client.resume(self.resource)

    def delete(self) -> None:
        """Delete the job with its workers."""
        self._client.delete(self.resource)

    def __repr__(self) -> str:
        return f"<{self.resource}>"

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        state, job = self.status(), self.refresh()
        pods = self._client.run(pods_of(self._client.asynchronous.kube, job))
        rows = [(w.name, w.node, w.phase, w.problem) for w in workers_of(job.object, pods)]
        head = f"{job}: {state.phase} {progress_of(job.object.get('status'))}"
        cells = ["".join(f"<td>{html.escape(text)}</td>" for text in row) for row in rows]
        faults = "".join(f"<li>{html.escape(text)}</li>" for text in state.waits_for)
        titles = "".join(f"<th>{title}</th>" for title in ("worker", "node", "phase", ""))
        table = f"<tr>{titles}</tr>" + "".join(f"<tr>{row}</tr>" for row in cells)
        drawn = curves(self.history())
        return f"<b>{html.escape(head)}</b>{drawn}<table>{table}</table><ul>{faults}</ul>"
