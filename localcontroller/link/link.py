"""Keeps one WebSocket to the GlobalManager, for as long as the process lives.

Started by `app`. It dials, lets a Conversation run, and dials again with full jitter. Whatever
goes wrong is a reason to wait; losing the cloud stops nothing else on the node. A credential that
is replaced on disk ends the session too, before the old one has expired. Only a credential whose
files are lost for good, while the GlobalManager is there, ends the link and with it the process.
"""

import asyncio
import random
import ssl
from collections.abc import Callable
from typing import Final, NoReturn
from urllib.parse import urlsplit

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import InvalidMessage, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from common import times, wire
from common.backoff import Backoff
from common.edge_session import ReportAcked, Welcomed
from common.errors import EdgeAIError
from common.logs import get_logger
from common.session import Timing
from common.settings import is_loopback
from common.tasks import TaskGroup
from localcontroller.ledger.ledger import Ledger
from localcontroller.link.conversation import CLOSE_S, Conversation, HungUp
from localcontroller.link.credentials import (
    CredentialError,
    CredentialLost,
    Credentials,
    Defect,
    Shown,
)
from localcontroller.metrics import Metrics

log = get_logger(__name__)

NODE_HEADER: Final = "Edgeai-Node"  # a hint for logs; who we are is in the credential
FLOOR_S: Final = 0.2  # a lucky draw is no hot loop
MAX_RETRY_AFTER_S: Final = 300.0


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where the GlobalManager is, and what proves who we are."""

    url: str
    node: str
    credentials: Credentials = msgspec.field(default_factory=Credentials)


class LinkState(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """For people: connected or not, `since` (RFC 3339)."""

    connected: bool
    since: str
    session: str = ""
    epoch: int = 0
    protocol_version: int = 0
    failures: int = 0
    """Connections that failed or ended, since the process started."""
    last_error: str = ""
    retry_in_s: float = 0.0
    """Counted from the last failure."""


class Unwelcome(EdgeAIError):
    """No conversation came about; `at_least_s` is how long to stay away."""

    def __init__(self, problem: str, *, at_least_s: float = 0.0) -> None:
        self.at_least_s = at_least_s
        super().__init__(problem)


class Rejected(Unwelcome):
    """The GlobalManager, or this node, does not accept what the other side shows."""


class Renewed(EdgeAIError):
    """The credential on disk is another one than the session was opened with."""


class Delays(msgspec.Struct, frozen=True, kw_only=True):
    """How long to stay away, and after what."""

    usual: Backoff
    replaced: Backoff
    """After another LocalController with this node's name took over: they must not alternate."""
    credential_s: float
    """Least delay after a rejected credential, unless it has been replaced meanwhile."""


def default_delays(*, min_s: float, max_s: float) -> Delays:
    return Delays(
        usual=Backoff(base_s=min_s, max_s=max_s, floor_s=min(FLOOR_S, min_s)),
        replaced=Backoff(base_s=max_s, max_s=5 * max_s, floor_s=max_s / 2),
        credential_s=max_s / 2,
    )


class Link:
    """
    Args:
        credential_check_s: the credential files are looked at so often; once they changed, a new
            session follows within as long again, for edges that were started together are not to
            come together
        credential_lost_s: the link ends once the files have been of no use for so long
        now: UTC, for people
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
        now: times.Clock = times.utc_now,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._endpoint = endpoint
        self._ledger = ledger
        self._metrics = metrics
        self._timing = timing
        self._delays = delays
        self._credential_check_s = credential_check_s
        self._credential_lost_s = credential_lost_s
        self._now = now
        self._uniform = uniform
        self._shown = b""  # digest of the credential that was shown last
        self._is_rejected = False  # since then no session came about
        self._is_in_reach = False  # the last dial was answered, by a session or a rejection
        self.lost = ""  # why the credential is lost for good; "" while it is not
        self.state = LinkState(connected=False, since=times.rfc3339(self._now()))

    async def run(self) -> None:
        """Dial, talk, wait, again. Raises: CredentialLost"""
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
        """One connection from dial to end. Returns: how long to stay away, seconds."""
        try:
            await self._talk()
        except Renewed as error:
            log.info("session ended to open a new one", reason=str(error))
            self._set_disconnected()
            return 0.0
        except Exception as error:  # the link must outlive any fault
            if not isinstance(error, EdgeAIError | OSError | WebSocketException):
                log.exception("link failed")
            delay_s = self._delay_s(error)
            self._on_disconnected(error, delay_s)
            return delay_s

    async def _talk(self) -> NoReturn:
        ws = await self._dial()
        conversation = Conversation(ws, self._ledger, self, timing=self._timing)
        try:
            async with TaskGroup() as group:
                group.create_task(conversation.run(), name="conversation")
                group.create_task(self._watch_credentials(), name="link-credentials")
        except BaseExceptionGroup as problems:
            raise problems.exceptions[0] from problems
        finally:
            await conversation.hang_up()
        raise AssertionError("unreachable: every loop ends by an exception")

    async def _watch_credentials(self) -> NoReturn:
        """Raises: Renewed, once other files than were shown are there and can be used."""
        refused = self._shown
        while True:
            await asyncio.sleep(self._credential_check_s)
            digest = self._endpoint.credentials.digest()
            if digest in (self._shown, refused):
                continue
            await asyncio.sleep(self._uniform(0.0, self._credential_check_s))
            try:
                self._endpoint.credentials.load(is_secure=self._is_secure)
            except CredentialError as error:  # half of a pair, perhaps: the rest is to come
                log.warning("new credential cannot be used yet", problem=str(error))
                refused = digest
            else:
                raise Renewed("the credential of this node was replaced")

    async def _watch_files(self) -> NoReturn:
        """Raises: CredentialLost, once the files are of no use for too long and a restart can help.

        Without an answer of the GlobalManager nothing ends: the link may be down, and then the
        container could not be started again, and workers would find nobody to report to.
        """
        loop = asyncio.get_running_loop()
        since_s: float | None = None
        while True:
            await asyncio.sleep(self._credential_check_s)
            defect = self._defect()
            if defect is None:
                if since_s is not None:
                    log.info("credential on disk can be used again")
                since_s = None
                continue
            if since_s is None:
                since_s = loop.time()
                log.warning("credential on disk cannot be used", problem=defect.text)
            if loop.time() - since_s >= self._credential_lost_s and self._is_in_reach:
                self.lost = (
                    f"{defect.text}, for {self._credential_lost_s:g} s by now; a restart of the "
                    "container mounts its files anew"
                )
                raise CredentialLost(self.lost)

    def _defect(self) -> Defect | None:
        """What is wrong with the files; an expired token only where it is rejected, too.

        Where a session with it is open, this node's clock is wrong.
        """
        defect = self._endpoint.credentials.defect(self._now())
        if defect is not None and defect.is_by_clock and not self._is_rejected:
            return None
        return defect

    def _delay_s(self, error: Exception) -> float:
        match error:
            case HungUp(code=wire.Close.REPLACED):
                log.error(
                    "another LocalController uses this node's name; stop one of them",
                    node=self._endpoint.node,
                )
                return self._delays.replaced.next_s()
            case HungUp(code=wire.Close.REVOKED):
                return self._delays.usual.next_s(at_least_s=self._credential_s())
            case Unwelcome():
                return self._delays.usual.next_s(at_least_s=error.at_least_s)
        return self._delays.usual.next_s()

    # ---- dialling -------------------------------------------------------------------------------

    async def _dial(self) -> ClientConnection:
        """Raises: Unwelcome; what websockets and sockets raise"""
        endpoint = self._endpoint
        shown = self._newest_credential()
        try:
            ws = await connect(
                endpoint.url,
                subprotocols=[Subprotocol(wire.SUBPROTOCOL)],
                compression=None,
                additional_headers={NODE_HEADER: endpoint.node, **shown.headers},
                ssl=shown.tls,
                proxy=None if is_loopback(urlsplit(endpoint.url).hostname or "") else True,
                open_timeout=self._timing.opening_s,
                ping_interval=None,  # Beats watch both ways
                close_timeout=CLOSE_S,
                max_size=wire.MAX_FRAME_BYTES,
            )
        except InvalidStatus as error:
            raise self._refused(error) from error
        except ssl.SSLError as error:
            raise Rejected(_tls_problem(endpoint.url, error)) from error
        except (InvalidMessage, ConnectionError) as error:
            raise self._cut(error) from error
        if ws.subprotocol != wire.SUBPROTOCOL:
            ws.transport.abort()
            raise Unwelcome(f"{endpoint.url} speaks no {wire.SUBPROTOCOL}; is it a GlobalManager?")
        return ws

    def _newest_credential(self) -> Shown:
        """Read for each connection: files are rotated. Raises: Unwelcome"""
        self._shown = self._endpoint.credentials.digest()
        try:
            return self._endpoint.credentials.newest(is_secure=self._is_secure)
        except CredentialError as error:
            log.error("cannot use a credential of this node", problem=str(error))
            raise Unwelcome(str(error), at_least_s=self._delays.credential_s) from error

    @property
    def _is_secure(self) -> bool:
        return urlsplit(self._endpoint.url).scheme == "wss"

    def _credential_s(self) -> float:
        """How long to stay away after a rejection: not at all, should there be a new credential."""
        is_new = self._endpoint.credentials.digest() != self._shown
        return 0.0 if is_new else self._delays.credential_s

    def _refused(self, error: InvalidStatus) -> Unwelcome:
        status = error.response.status_code
        if status in (401, 403):
            log.error("GlobalManager rejects the credential of this node", status=status)
            return Rejected(
                f"GlobalManager rejects the credential of this node with {status}; check "
                "--token-file or the client certificate",
                at_least_s=self._credential_s(),
            )
        return Unwelcome(
            f"GlobalManager answers the handshake with {status}",
            at_least_s=_retry_after_s(error.response.headers.get("Retry-After", "")),
        )

    def _cut(self, error: InvalidMessage | ConnectionError) -> Unwelcome:
        """The connection ended without an answer, as TLS 1.3 ends one whose client is not liked."""
        url, certificate = self._endpoint.url, self._endpoint.credentials.client_certificate
        if certificate is None or not isinstance(error, InvalidMessage | ConnectionResetError):
            return Unwelcome(f"{url}: {error}")
        return Rejected(
            f"{url} ended the connection without an answer; it has too many at once, or does not "
            f"accept the client certificate {certificate}: see the log of the GlobalManager"
        )

    # ---- what the conversation tells ------------------------------------------------------------

    def on_welcomed(self, welcomed: Welcomed) -> None:
        log.info(
            "session open",
            session=welcomed.session,
            epoch=welcomed.epoch,
            protocol_version=welcomed.version,
        )
        self._metrics.connects.labels(outcome="welcomed").inc()
        self._is_rejected, self._is_in_reach = False, True
        self._metrics.is_connected.set(1)
        self.state = msgspec.structs.replace(
            self.state,
            connected=True,
            since=times.rfc3339(self._now()),
            session=welcomed.session,
            epoch=welcomed.epoch,
            protocol_version=welcomed.version,
            retry_in_s=0.0,
        )

    def on_synced(self) -> None:
        # Not before: a GlobalManager that dies of every Hello must not be hammered.
        self._delays.usual.reset()

    def on_report_settled(self, report: ReportAcked) -> None:
        outcome = "refused" if report.refused else "accepted"
        self._metrics.reports.labels(outcome=outcome).inc()
        if report.refused:
            sent = report.report
            log.warning("report refused", uid=sent.uid, worker=sent.worker, reason=report.refused)

    def _on_disconnected(self, error: Exception, delay_s: float) -> None:
        problem = str(error) or type(error).__name__
        log.warning("no session with GlobalManager", reason=problem, retry_in_s=round(delay_s, 1))
        if not self.state.connected:
            self._metrics.connects.labels(outcome="failed").inc()
        self._is_in_reach = isinstance(error, Rejected) or (
            isinstance(error, HungUp) and error.code == wire.Close.REVOKED
        )
        self._is_rejected = self._is_rejected or self._is_in_reach
        self._set_disconnected()
        self.state = msgspec.structs.replace(
            self.state,
            failures=self.state.failures + 1,
            last_error=problem,
            retry_in_s=delay_s,
        )

    def _set_disconnected(self) -> None:
        self._metrics.is_connected.set(0)
        self.state = msgspec.structs.replace(
            self.state,
            connected=False,
            since=times.rfc3339(self._now()) if self.state.connected else self.state.since,
            session="",
            protocol_version=0,
        )


def _tls_problem(url: str, error: ssl.SSLError) -> str:
    """Which side does not like the other, and why."""
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
    """Seconds of a Retry-After header; a date, or nonsense, is as if it were not there."""
    return min(float(text), MAX_RETRY_AFTER_S) if text.strip().isdecimal() else 0.0
