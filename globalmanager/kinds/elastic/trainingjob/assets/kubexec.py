#!/usr/bin/env python3
"""Runs a command in a pod over the Kubernetes API: kubexec.py POD COMMAND…

The launcher of a TrainingJob has this program beside kubexec.sh. `files` reads its text; nothing
imports it. It needs Python 3.7 or newer and no other package, and the rights `get` and `create` of
pods/exec. The words of COMMAND are joined by spaces and given to /bin/sh in the pod, as ssh does.

The streams stdin, stdout and stderr are those of the command. The exit code is the command's, or
255 when the command could not be started or its end is not known. SIGHUP, SIGINT, SIGQUIT and
SIGTERM are passed on. When this program is killed, the command gets SIGTERM and later SIGKILL,
unless the command reads from stdin.

Source of the protocol: kubernetes/kubernetes, pkg/kubelet/cri/streaming/remotecommand/websocket.go;
RFC 6455.
"""

from __future__ import annotations

import base64
import hashlib
import ipaddress
import json
import os
import select
import signal
import socket
import ssl
import stat
import struct
import sys
import time
from typing import Any
from urllib.parse import quote, urlencode

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")  # the first one can close stdin
STDIN, STDOUT, STDERR, ERROR, CLOSE = 0, 1, 2, 3, 255  # channels
BINARY, CLOSING, PING, PONG = 0x2, 0x8, 0x9, 0xA  # opcodes
FAILED = 255  # exit code, as ssh has it
# A launcher that uses ssh has no token and, on the local cluster, no address of the API.
REMEDY = (
    "this pod has no access to the Kubernetes API; in the launcher of a TrainingJob set"
    " spec.launcherAttachMode to kubexec"
)
TRIES = 6
PAUSE_S = 1.0
CONNECT_S = 30.0
HEARTBEAT_S = 30.0  # kubelets and load balancers close a connection that says nothing
MAX_BYTES = 16 << 20  # of a frame
MAX_HEAD_BYTES = 64 << 10

# Every process of the command has EDGEAI_KUBEXEC in its environment. So the command and its
# children are found in the pod, also in sessions of their own. $1 is the value, $2 the signal.
END = """\
end() {
  for each in /proc/[0-9]*; do
    if grep -qsa "EDGEAI_KUBEXEC=$1" "$each/environ"; then kill -s "$2" "${each#/proc/}"; fi
  done 2>/dev/null
}
"""
SIGNAL = END + 'end "$1" "$2"\n'
RUN = 'exec env "EDGEAI_KUBEXEC=$1" /bin/sh -c "$2"\n'
# Its stdin says when the connection has ended. Then nobody waits for the command any more.
GUARD = f"""\
{END}exec 3<&0 </dev/null
( cat <&3
  if grep -qsa "EDGEAI_KUBEXEC=$1" "/proc/$$/environ"; then
    end "$1" TERM; sleep 10; end "$1" KILL
  fi
) >/dev/null 2>&1 &
exec 3<&-
{RUN}"""


class Failure(Exception):
    """The command cannot be run. The text says why."""


class Refused(Failure):
    """The API server answers with an error. Args: code: HTTP status"""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"the Kubernetes API answers {code}: {message}")
        self.code = code


class Api:
    """The API server, and the launcher's account."""

    def __init__(self) -> None:
        self.host = os.environ.get("KUBERNETES_SERVICE_HOST", "")
        self.port = os.environ.get("KUBERNETES_SERVICE_PORT", "443")
        if not self.host:
            raise Failure(f"KUBERNETES_SERVICE_HOST is not set: {REMEDY}")
        self.token = _account_file("token")
        self.namespace = _account_file("namespace")
        self._ca = os.path.join(ACCOUNT, "ca.crt")
        self._is_plain = not os.path.exists(self._ca)
        if self._is_plain and not _is_loopback(self.host):
            raise Failure(f"{self._ca} is missing: the token is sent to a known server only")

    def connect(self) -> socket.socket:
        """Raises: OSError"""
        plain = socket.create_connection((self.host, int(self.port)), CONNECT_S)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._is_plain:
            return plain
        context = ssl.create_default_context(cafile=self._ca)
        return context.wrap_socket(plain, server_hostname=self.host)

    def request(self, path: str, headers: dict[str, str]) -> bytes:
        host = f"[{self.host}]" if ":" in self.host else self.host
        lines = {
            "Host": f"{host}:{self.port}",
            "Authorization": f"Bearer {self.token}",
            "User-Agent": "edgeai-kubexec",
            **headers,
        }
        text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"GET {path} HTTP/1.1\r\n{text}\r\n".encode()

    def pod(self, name: str) -> str:
        return f"/api/v1/namespaces/{quote(self.namespace)}/pods/{quote(name, safe='')}"


def _account_file(name: str) -> str:
    path = os.path.join(ACCOUNT, name)
    try:
        with open(path) as file:
            return file.read().strip()
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}: {REMEDY}") from error


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


# ---- WebSocket -----------------------------------------------------------------------------------


class Connection:
    """A WebSocket to one command. Raises: OSError, Refused"""

    def __init__(self, api: Api, path: str) -> None:
        self.socket = api.connect()
        self._in = b""
        self._out = b""
        self._message = b""  # frames of a message that goes on
        self.is_open = True
        key = base64.b64encode(os.urandom(16)).decode()
        headers = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": key,
            "Sec-WebSocket-Protocol": ", ".join(PROTOCOLS),
        }
        self.socket.sendall(api.request(path, headers))
        code, answer, self._in = _read_head(self.socket)
        if code != 101:
            raise Refused(code, _message(_read_body(self.socket, answer, self._in)))
        digest = hashlib.sha1((key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11").encode()).digest()
        if answer.get("sec-websocket-accept") != base64.b64encode(digest).decode():
            raise Failure("the answer to the upgrade is no WebSocket's")
        self.can_close_stdin = answer.get("sec-websocket-protocol") == PROTOCOLS[0]
        self.socket.setblocking(False)

    @property
    def is_idle(self) -> bool:
        """Whether all that was sent has left."""
        return not self._out

    def send(self, opcode: int, data: bytes) -> None:
        mask = os.urandom(4)
        size = len(data)
        if size < 126:
            head = struct.pack("!BB", 0x80 | opcode, 0x80 | size)
        elif size < 1 << 16:
            head = struct.pack("!BBH", 0x80 | opcode, 0x80 | 126, size)
        else:
            head = struct.pack("!BBQ", 0x80 | opcode, 0x80 | 127, size)
        repeated = (mask * (size // 4 + 1))[:size]
        number = int.from_bytes(data, "big") ^ int.from_bytes(repeated, "big")
        self._out += head + mask + number.to_bytes(size, "big")
        self.flush()

    def flush(self) -> None:
        while self._out:
            try:
                size = self.socket.send(self._out)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            self._out = self._out[size:]

    def receive(self) -> list[bytes]:
        """The messages that have arrived; `is_open` is False after the last one."""
        try:
            while True:
                piece = self.socket.recv(1 << 16)
                if not piece:
                    self.is_open = False
                    break
                self._in += piece
                if len(self._in) > MAX_BYTES:
                    break
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        return self._messages()

    def _messages(self) -> list[bytes]:
        messages: list[bytes] = []
        while True:
            frame = self._frame()
            if frame is None:
                return messages
            is_last, opcode, data = frame
            if opcode == PING:
                self.send(PONG, data)
            elif opcode == CLOSING:
                self.is_open = False
            elif opcode < CLOSING:
                self._message += data
                if is_last:
                    messages.append(self._message)
                    self._message = b""

    def _frame(self) -> tuple[bool, int, bytes] | None:
        if len(self._in) < 2:
            return None
        first, second = self._in[0], self._in[1] & 0x7F
        start = 2 + {126: 2, 127: 8}.get(second, 0)
        if len(self._in) < start:
            return None
        size = int.from_bytes(self._in[2:start], "big") if start > 2 else second
        if size > MAX_BYTES:
            raise Failure(f"the API server sends a frame of {size} bytes")
        if len(self._in) < start + size:
            return None
        data, self._in = self._in[start : start + size], self._in[start + size :]
        return bool(first & 0x80), first & 0xF, data


def _read_head(connection: socket.socket) -> tuple[int, dict[str, str], bytes]:
    """Returns: HTTP status, headers, the first bytes of what follows"""
    answer = b""
    while b"\r\n\r\n" not in answer:
        piece = connection.recv(1 << 14)
        if not piece or len(answer) > MAX_HEAD_BYTES:
            raise ConnectionError("the API server has closed the connection")
        answer += piece
    head, _, rest = answer.partition(b"\r\n\r\n")
    status, *lines = head.decode("latin-1").split("\r\n")
    fields = (line.partition(":") for line in lines)
    headers = {name.strip().lower(): value.strip() for name, _, value in fields}
    return int(status.split()[1]), headers, rest


def _read_body(connection: socket.socket, headers: dict[str, str], body: bytes) -> bytes:
    """The body of an answer, without its chunks' sizes where it has chunks."""
    size = min(int(headers.get("content-length", MAX_BYTES)), MAX_BYTES)
    is_chunked = "chunked" in headers.get("transfer-encoding", "")
    while len(body) < size and not (is_chunked and body.endswith(b"0\r\n\r\n")):
        piece = connection.recv(1 << 16)
        if not piece:
            break
        body += piece
    return b"".join(body.split(b"\r\n")[1::2]) if is_chunked else body


def _message(body: bytes) -> str:
    text = body.decode(errors="replace").strip()
    try:
        return str(json.loads(text)["message"])
    except (ValueError, KeyError, TypeError):
        return text[:1000] or "no reason"


# ---- one command ---------------------------------------------------------------------------------


def connect(api: Api, pod: str, argv: list[str]) -> Connection:
    """Start `argv` in the pod. Tries again while the API server or the node is busy or away.

    Raises: Failure
    """
    container = ""
    for number in range(1, TRIES + 1):
        streams = [(name, "true") for name in ("stdin", "stdout", "stderr")]
        parameters = [("container", container)] if container else []
        query = urlencode([*parameters, *streams, *(("command", word) for word in argv)])
        try:
            return Connection(api, f"{api.pod(pod)}/exec?{query}")
        except Refused as error:
            if error.code == 400 and not container:
                container = main_container(api, pod)
                continue
            if number == TRIES or not (error.code == 429 or error.code >= 500):
                raise Failure(f"pod {pod}: {error}") from error
        except OSError as error:
            if number == TRIES:
                where = f"{api.host}:{api.port}"
                raise Failure(f"the Kubernetes API at {where} does not answer: {error}") from error
        time.sleep(PAUSE_S)
    raise Failure(f"pod {pod}: cannot choose one of its containers")


def main_container(api: Api, pod: str) -> str:
    """The container that is meant in a pod with several ones."""
    connection = api.connect()
    try:
        connection.sendall(api.request(api.pod(pod), {"Connection": "close"}))
        code, headers, rest = _read_head(connection)
        body = _read_body(connection, headers, rest)
    finally:
        connection.close()
    if code != 200:
        raise Refused(code, _message(body))
    content = json.loads(body)
    annotations = content["metadata"].get("annotations") or {}
    name = annotations.get("kubectl.kubernetes.io/default-container")
    return str(name or content["spec"]["containers"][0]["name"])


class Command:
    """A command in a pod, with the streams of this process."""

    def __init__(self, api: Api, pod: str, command: str) -> None:
        self._api = api
        self._pod = pod
        self._id = base64.b16encode(os.urandom(16)).decode()
        self._stdin = 0 if _has_stdin() else None
        self._is_stdin_closed = False
        script = GUARD if self._stdin is None else RUN
        argv = ["/bin/sh", "-c", script, "kubexec", self._id, command]
        self._connection = connect(api, pod, argv)
        self._status: dict[str, Any] | None = None
        self._signals, self._waker = os.pipe()
        self._catch_signals()

    def _catch_signals(self) -> None:
        os.set_blocking(self._waker, False)
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM):
            signal.signal(number, lambda number, _: os.write(self._waker, bytes([number])))

    def run(self) -> int:
        """Until the command ends. Returns: its exit code. Raises: Failure, OSError"""
        connection = self._connection
        heartbeat_s = time.monotonic() + HEARTBEAT_S
        while True:
            for message in connection.receive():
                self._take(message)
            if self._status is not None or not connection.is_open:
                break
            number = connection.socket.fileno()
            readers = [number, self._signals]
            if self._stdin is not None and connection.is_idle:
                readers.append(self._stdin)
            writers = [] if connection.is_idle else [number]
            left_s = max(0.0, heartbeat_s - time.monotonic())
            ready, _, _ = select.select(readers, writers, [], left_s)
            connection.flush()
            if self._signals in ready:
                self._pass_on(os.read(self._signals, 1)[0])
            if self._stdin in ready:
                self._feed()
            if time.monotonic() >= heartbeat_s:
                heartbeat_s = time.monotonic() + HEARTBEAT_S
                connection.send(PING, b"")
                if not self._is_stdin_closed:
                    connection.send(BINARY, bytes([STDIN]))
        return self._exit_code()

    def _take(self, message: bytes) -> None:
        channel, data = (message[0], message[1:]) if message else (STDIN, b"")
        if channel in (STDOUT, STDERR):
            _write(channel, data)
        elif channel == ERROR:
            self._status = json.loads(data)

    def _feed(self) -> None:
        data = os.read(0, 1 << 15)
        if data:
            self._connection.send(BINARY, bytes([STDIN]) + data)
            return
        self._stdin = None
        if self._connection.can_close_stdin:
            self._is_stdin_closed = True
            self._connection.send(BINARY, bytes([CLOSE, STDIN]))

    def _pass_on(self, number: int) -> None:
        name = signal.Signals(number).name[len("SIG") :]
        argv = ["/bin/sh", "-c", SIGNAL, "kubexec", self._id, name]
        connection = connect(self._api, self._pod, argv)
        deadline_s = time.monotonic() + CONNECT_S
        while connection.is_open and time.monotonic() < deadline_s:
            select.select([connection.socket], [], [], 1.0)
            connection.receive()
        connection.socket.close()

    def _exit_code(self) -> int:
        status = self._status
        if status is None:
            raise Failure(f"pod {self._pod}: the connection has ended before the command")
        if status.get("status") == "Success":
            return 0
        details = status.get("details")
        causes = details.get("causes") if isinstance(details, dict) else None
        for cause in causes or ():
            if cause.get("reason") == "ExitCode":
                return int(cause["message"])
        raise Failure(f"pod {self._pod}: {status.get('message')}")


def _has_stdin() -> bool:
    """Whether somebody may write to stdin."""
    try:
        entry = os.fstat(0)
    except OSError:
        return False
    is_null = stat.S_ISCHR(entry.st_mode) and entry.st_rdev == os.stat(os.devnull).st_rdev
    return not is_null


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def main(arguments: list[str]) -> int:
    if len(arguments) < 2:
        sys.stderr.write("usage: kubexec.py POD COMMAND…\n")
        return FAILED
    pod, *words = arguments
    try:
        return Command(Api(), pod, " ".join(words)).run()
    except BrokenPipeError:  # nobody reads our output any more
        return FAILED
    except (Failure, OSError) as error:
        sys.stderr.write(f"kubexec: {error}\n")
        return FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
