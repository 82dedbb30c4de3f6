"""Keeps one WebSocket to the GlobalManager while the process runs.

`app` starts the link. The link dials the GlobalManager, runs a Conversation, and dials again. Each
delay before a dial has full jitter. While the cloud cannot be reached, all other parts of the
LocalController go on. If the credential on disk is replaced, a new session begins before the old
credential expires. The link and the process end in one case only: the credential files stay lost
although the GlobalManager can be reached.
"""

import asyncio
import random
import ssl
from collections.abc import Callable
from typing import Final, NoReturn

import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import InvalidMessage, InvalidStatus, WebSocketException

from common import wire
from common.clock import SYSTEM_CLOCK, Clock
from common.logs import get_logger
from common.session import Timing
from common.tasks import TaskGroup
from edgeai import times
from edgeai.backoff import Backoff
from edgeai.errors import EdgeAIError
from localcontroller.ledger.ledger import Ledger
from localcontroller.ledger.outbox import ReportAcked
from localcontroller.link.conversation import RETRY_COMMIT_S, SEND_S, Conversation, SessionEnded
from localcontroller.link.credentials import (
    CredentialError,
    CredentialLost,
    CredentialProblem,
    Presented,
)
from localcontroller.link.endpoint import Endpoint
from localcontroller.link.relay_link import RelayLink
from localcontroller.metrics import Metrics
from localcontroller.traces import NO_TRACES, TaskTraces

log = get_logger(__name__)

FLOOR_S: Final = 0.2  # least delay, so that small random delays make no hot loop
MAX_RETRY_AFTER_S: Final = 300.0
MOVE_S: Final = 1.0  # longest delay of an edge that a replica has sent to another replica
FILES_S: Final = 2.0  # between two looks at files that were never usable


class LinkState(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The state of the link, for people. `since` is RFC 3339."""

    connected: bool
    since: str
    session: str = ""
    epoch: int = 0
    protocol_version: int = 0
    failures: int = 0
    """Number of connections that failed or ended since the process started."""
    last_error: str = ""
    retry_in_s: float = 0.0
    """Seconds from the last failure to the next dial."""


class DialFailed(EdgeAIError):
    """The dial opened no session; `at_least_s` is the least delay before the next dial."""

    def __init__(self, problem: str, *, at_least_s: float = 0.0) -> None:
        self.at_least_s = at_least_s
        super().__init__(problem)


class CredentialRejected(DialFailed):
    """One side does not accept the credential or the certificate of the other side."""


class CredentialReplaced(EdgeAIError):
    """The credential on disk differs from the credential that opened the session."""


class Delays(msgspec.Struct, frozen=True, kw_only=True):
    """Waits before the next dial. The reason of the last failure selects the wait."""

    usual: Backoff
    rival: Backoff
    """Delay after another LocalController with this node's name took over. The delay is long, so
    that the two LocalControllers do not replace each other again and again."""
    credential_s: float
    """Least delay after a rejected credential, unless the files have changed since."""


def default_delays(*, min_s: float, max_s: float) -> Delays:
    return Delays(
        usual=Backoff(base_s=min_s, max_s=max_s, floor_s=min(FLOOR_S, min_s)),
        rival=Backoff(base_s=max_s, max_s=5 * max_s, floor_s=max_s / 2),
        credential_s=max_s / 2,
    )


class Link:
    """
    Args:
        credential_check_s: period of the checks of the credential files. After a change, a new
            session follows within one more period, at a random time, so that nodes that
            started together do not reconnect together
        credential_lost_s: the link ends after the files have been unusable for this time
        send_s, retry_commit_s: see Conversation
        relay: may open while a session is open; None: there is no relay
        uniform: draws a float in [low, high]
    """

    def __init__(
        self,
        endpoint: Endpoint,
        ledger: Ledger,
        metrics: Metrics,
        *,
        timing: Timing,
        delays: Delays,
        credential_check_s: float = 30.0,
        credential_lost_s: float = 300.0,
        send_s: float = SEND_S,
        retry_commit_s: float = RETRY_COMMIT_S,
        relay: RelayLink | None = None,
        clock: Clock = SYSTEM_CLOCK,
        uniform: Callable[[float, float], float] = random.uniform,
        traces: TaskTraces = NO_TRACES,
    ) -> None:
        self._traces = traces
        self._endpoint = endpoint
        self._ledger = ledger
        self._metrics = metrics
        self._timing = timing
        self._delays = delays
        self._credential_check_s = credential_check_s
        self._credential_lost_s = credential_lost_s
        self._send_s = send_s
        self._retry_commit_s = retry_commit_s
        self._relay = relay
        self._clock = clock
        self._uniform = uniform
        self._presented_digest = b""  # digest of the credential that the last dial presented
        self._is_rejected = False  # the credential was rejected, and no session opened since
        self._is_in_reach = False  # the last dial ended with a session or a rejection
        self._problem = ""  # what is wrong with the files now
        self.loss = ""  # why the credential is lost; "": the credential is not lost
        self.waits_for = ""  # why no dial is possible yet; "": the files were usable once
        self.state = LinkState(connected=False, since=times.rfc3339(self._clock.utcnow()))

    async def run(self) -> None:
        """Dial, run the session, wait, and repeat. Raises: CredentialLost"""
        try:
            async with TaskGroup() as group:
                group.create_task(self._stay_connected(), name="link-connect")
                group.create_task(self._watch_files(), name="link-files")
        except BaseExceptionGroup as problems:
            raise problems.exceptions[0] from problems

    async def _stay_connected(self) -> NoReturn:
        while True:
            delay_s = await self._connect_once()
            await asyncio.sleep(delay_s)

    async def _connect_once(self) -> float:
        """Run one connection from dial to end. Returns: seconds to wait before the next dial."""
        try:
            await self._run_session()
        except CredentialReplaced as error:
            log.info("session ended to open a new one", reason=str(error))
            self._set_disconnected()
            return 0.0
        except Exception as error:  # an unexpected error must not end the link
            if isinstance(error, SessionEnded) and error.code == wire.Close.MOVED:
                return self._move(error.reason)
            if not isinstance(error, EdgeAIError | OSError | WebSocketException):
                log.exception("link failed")
            self._endpoint.addresses.leave()
            delay_s = self._delay_s(error)
            self._on_disconnected(error, delay_s)
            return delay_s

    def _move(self, url: str) -> float:
        """Go to the replica that the GlobalManager names. The relay may stay where it is.

        Returns: seconds to wait before the dial
        """
        is_used = self._endpoint.addresses.use(url)
        log.info("session moves to another replica", url=url if is_used else "")
        self._set_disconnected()
        # A replica sends away only sessions that are in sync. If none was in sync since the last
        # failure, something is wrong, and the delays must grow.
        if self._delays.usual.failures > 0:
            return self._delays.usual.next_s()
        return self._uniform(0.0, MOVE_S)

    async def _run_session(self) -> NoReturn:
        ws = await self._dial()
        conversation = Conversation(
            ws,
            self._ledger,
            self,
            timing=self._timing,
            send_s=self._send_s,
            retry_commit_s=self._retry_commit_s,
            traces=self._traces,
        )
        try:
            async with TaskGroup() as group:
                group.create_task(conversation.run(), name="conversation")
                group.create_task(self._watch_credentials(), name="link-credentials")
        except BaseExceptionGroup as problems:
            raise problems.exceptions[0] from problems
        finally:
            await conversation.close()
        raise AssertionError("unreachable: every loop ends by an exception")

    async def _watch_credentials(self) -> NoReturn:
        """Raises: CredentialReplaced, if the files have changed and can be used."""
        unusable = self._presented_digest
        while True:
            await asyncio.sleep(self._credential_check_s)
            digest = self._endpoint.credentials.digest()
            if digest in (self._presented_digest, unusable):
                continue
            await asyncio.sleep(self._uniform(0.0, self._credential_check_s))
            try:
                self._endpoint.credentials.load(is_secure=self._endpoint.is_secure)
            except CredentialError as error:  # perhaps the key of a new certificate comes later
                log.warning("new credential cannot be used yet", problem=str(error))
                unusable = digest
            else:
                raise CredentialReplaced("the credential of this node was replaced")

    async def _watch_files(self) -> NoReturn:
        """Raises: CredentialLost, if the files are unusable for too long and a restart can help.

        Without an answer of the GlobalManager the process goes on, because the network may be down.
        Without network a stopped container could not start again, and the workers could not report.
        """
        loop = asyncio.get_running_loop()
        since_s: float | None = None
        while True:
            await asyncio.sleep(self._credential_check_s)
            problem = self._credential_problem()
            self._problem = "" if problem is None else problem.text
            if problem is None:
                if since_s is not None:
                    log.info("credential on disk can be used again")
                since_s = None
                continue
            if since_s is None:
                since_s = loop.time()
                log.warning("credential on disk cannot be used", problem=problem.text)
            if loop.time() - since_s >= self._credential_lost_s and await self._answers():
                self.loss = (
                    f"{problem.text}, for {self._credential_lost_s:g} s by now; a restart of the "
                    "container mounts its files again"
                )
                raise CredentialLost(self.loss)

    async def _answers(self) -> bool:
        """Whether the GlobalManager is in reach. Without a credential no dial has told it yet."""
        if self.waits_for:
            return await self._endpoint.answers(opening_s=self._timing.opening_s)
        return self._is_in_reach

    @property
    def without_credential(self) -> str:
        """Why this node has no credential that the GlobalManager accepts; "" while it may have one.

        Files that are lost count from the first rejection on: what was read before may be good.
        """
        return self.waits_for or (self._problem if self._is_rejected else "")

    def _credential_problem(self) -> CredentialProblem | None:
        """What is wrong with the files. An expired token counts only after a rejection.

        If the GlobalManager accepts the token, this node's clock is wrong.
        """
        problem = self._endpoint.credentials.problem(self._clock.utcnow())
        if problem is not None and problem.is_expiry and not self._is_rejected:
            return None
        return problem

    def _delay_s(self, error: Exception) -> float:
        match error:
            case SessionEnded(code=wire.Close.REPLACED):
                log.error(
                    "another LocalController uses this node's name; stop one of them",
                    node=self._endpoint.node,
                )
                return self._delays.rival.next_s()
            case SessionEnded(code=wire.Close.REVOKED):
                return self._delays.usual.next_s(at_least_s=self._credential_delay_s())
            case DialFailed():
                return self._delays.usual.next_s(at_least_s=error.at_least_s)
        return self._delays.usual.next_s()

    # ---- dialling -------------------------------------------------------------------------------

    async def _dial(self) -> ClientConnection:
        """Raises: DialFailed; errors of websockets and of sockets"""
        endpoint, url = self._endpoint, self._endpoint.addresses.current
        credential = await self._newest_credential()
        try:
            ws = await endpoint.dial(
                credential, subprotocol=wire.SUBPROTOCOL, opening_s=self._timing.opening_s
            )
        except InvalidStatus as error:
            raise self._handshake_refused(error) from error
        except ssl.SSLError as error:
            raise CredentialRejected(_tls_problem(url, error)) from error
        except (InvalidMessage, ConnectionError) as error:
            raise self._ended_without_answer(error) from error
        if ws.subprotocol != wire.SUBPROTOCOL:
            ws.transport.abort()
            raise DialFailed(f"{url} speaks no {wire.SUBPROTOCOL}; is it a GlobalManager?")
        return ws

    async def _newest_credential(self) -> Presented:
        """Read the files again, because they may have been replaced.

        If the files were never usable, wait for them: edgecore may start a pod with empty volumes,
        and fill the volumes more than a minute later.
        """
        while True:
            self._presented_digest = self._endpoint.credentials.digest()
            try:
                credential = self._endpoint.credentials.newest(is_secure=self._endpoint.is_secure)
            except CredentialError as error:
                self._wait_for_files(str(error))
                await asyncio.sleep(FILES_S)
            else:
                self.waits_for = ""
                return credential

    def _wait_for_files(self, problem: str) -> None:
        if problem == self.waits_for:
            return
        log.error("waiting for the credential of this node", problem=problem)
        self.waits_for = problem
        failures = self.state.failures + 1
        self.state = msgspec.structs.replace(
            self.state, failures=failures, last_error=problem, retry_in_s=FILES_S
        )

    def _credential_delay_s(self) -> float:
        """Least delay after a rejection; 0 if the files have changed since the dial."""
        is_new = self._endpoint.credentials.digest() != self._presented_digest
        return 0.0 if is_new else self._delays.credential_s

    def _handshake_refused(self, error: InvalidStatus) -> DialFailed:
        status = error.response.status_code
        if status in (401, 403):
            log.error("GlobalManager rejects the credential of this node", status=status)
            return CredentialRejected(
                f"GlobalManager rejects the credential of this node with {status}; check "
                "--token-file or the client certificate",
                at_least_s=self._credential_delay_s(),
            )
        return DialFailed(
            f"GlobalManager answers the handshake with {status}",
            at_least_s=_retry_after_s(error.response.headers.get("Retry-After", "")),
        )

    def _ended_without_answer(self, error: InvalidMessage | ConnectionError) -> DialFailed:
        """A TLS 1.3 server refuses a certificate by ending the connection without an answer."""
        url = self._endpoint.addresses.current
        certificate = self._endpoint.credentials.client_certificate
        if certificate is None or not isinstance(error, InvalidMessage | ConnectionResetError):
            return DialFailed(f"{url}: {error}")
        return CredentialRejected(
            f"{url} ended the connection without an answer; it has too many at once, or does not "
            f"accept the client certificate {certificate}: see the log of the GlobalManager"
        )

    # ---- events of the conversation -------------------------------------------------------------

    def on_welcomed(self, welcome: wire.Welcome) -> None:
        log.info(
            "session open",
            session=welcome.session,
            epoch=welcome.epoch,
            protocol_version=welcome.version,
        )
        self._metrics.connects.labels(outcome="welcomed").inc()
        self._is_rejected, self._is_in_reach = False, True
        self._metrics.is_connected.set(1)
        if self._relay is not None:
            self._relay.is_allowed = True
        self.state = msgspec.structs.replace(
            self.state,
            connected=True,
            since=times.rfc3339(self._clock.utcnow()),
            session=welcome.session,
            epoch=welcome.epoch,
            protocol_version=welcome.version,
            retry_in_s=0.0,
        )

    def on_synced(self) -> None:
        # Not before Synced: if the GlobalManager crashes at each Hello, the delays must grow.
        self._delays.usual.reset()

    def on_report_settled(self, report: ReportAcked) -> None:
        outcome = "refused" if report.refusal else "accepted"
        self._metrics.reports.labels(outcome=outcome).inc()
        if report.refusal:
            uid, worker = report.report.uid, report.report.worker
            log.warning("report refused", uid=uid, worker=worker, reason=report.refusal)
        else:
            self._traces.reported(report.report.uid, report.report.worker)

    def _on_disconnected(self, error: Exception, delay_s: float) -> None:
        problem = str(error) or type(error).__name__
        log.warning("no session with GlobalManager", reason=problem, retry_in_s=round(delay_s, 1))
        if not self.state.connected:
            self._metrics.connects.labels(outcome="failed").inc()
        self._is_in_reach = isinstance(error, CredentialRejected) or (
            isinstance(error, SessionEnded) and error.code == wire.Close.REVOKED
        )
        self._is_rejected = self._is_rejected or self._is_in_reach
        self._set_disconnected()
        if self._relay is not None:
            self._relay.cut()
        self.state = msgspec.structs.replace(
            self.state,
            failures=self.state.failures + 1,
            last_error=problem,
            retry_in_s=delay_s,
        )

    def _set_disconnected(self) -> None:
        self._metrics.is_connected.set(0)
        if self._relay is not None:
            self._relay.is_allowed = False
        self.state = msgspec.structs.replace(
            self.state,
            connected=False,
            since=times.rfc3339(self._clock.utcnow()) if self.state.connected else self.state.since,
            session="",
            protocol_version=0,
        )


def _tls_problem(url: str, error: ssl.SSLError) -> str:
    """The text of a TLS error: which side refuses the other side, and why."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"this node does not accept the certificate of {url}: {error.verify_message}; check "
            "--ca-file, and that --global-manager has a name of the certificate"
        )
    reason = (error.reason or str(error)).replace("_", " ").lower()
    if " alert " in reason:
        return f"{url} does not accept this node's TLS: {reason}; check --client-certificate"
    return f"no TLS with {url}: {reason}; is it a GlobalManager with TLS?"


def _retry_after_s(text: str) -> float:
    """Seconds of a Retry-After header; 0 for a date or any other text."""
    return min(float(text), MAX_RETRY_AFTER_S) if text.strip().isdecimal() else 0.0
