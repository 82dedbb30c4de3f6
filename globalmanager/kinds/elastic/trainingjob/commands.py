"""The commands that scaling runs in the launcher's container."""

import shlex
from collections.abc import Iterator, Sequence
from typing import Final

from edgeai.api.resources import Object
from edgeai.ids import Uid
from globalmanager.contract import Execution
from globalmanager.kinds.elastic.scalers import Script

STILL_BUSY: Final = 124
"""The exit code of `idle` when a worker is still in use at the end of the time."""
_MARGIN_S: Final = 15.0
"""The command ends by itself before the engine gives up."""
_HOSTS_IN_CHECK: Final = 100  # the URL of the request has all their names
_RUN_INPUT: Final = 'eval "$(head -c {bytes})"'
# The arguments of every process of the launcher are compared with the names as a whole, so worker-1
# is never taken for worker-10. ssh has the host as an argument of its own, and so has the agent of
# the attach mode kubexec. Only the shell and `tr` are needed.
_IDLE: Final = """\
names=$1 left=$2
command -v tr >/dev/null || exit 125
busy() {
  for file in /proc/[0-9]*/cmdline; do
    if tr '\\000' '\\n' 2>/dev/null <"$file" | {
      while IFS= read -r word; do
        word=${word##*@}
        case $word in *,*) continue ;; esac
        case $names in *",$word,"*) [ -n "$word" ] && exit 0 ;; esac
      done
      exit 1
    }; then return 0; fi
  done 2>/dev/null
  return 1
}
while busy; do
  left=$((left - 1))
  [ "$left" -gt 0 ] || exit 124
  sleep 1
done
"""


def script(launcher: Object, user_script: Script, workers: Sequence[str], slots: int) -> Execution:
    """The user's script: `sh <script> <pod>:<slots>,…`, with the variables of the scaler.

    The variables may be secret, so the command comes over standard input and stands in no log.
    """
    hosts = ",".join(f"{worker}:{slots}" for worker in workers)
    lines = [f"export {name}={shlex.quote(value)}" for name, value in user_script.env]
    lines.append(f"exec timeout {user_script.timeout_s} sh {user_script.text} {hosts}")
    text = "\n".join(lines).encode()
    command = ("sh", "-c", _RUN_INPUT.format(bytes=len(text)))
    return _in(launcher, command, user_script.timeout_s, text)


def idle(launcher: Object, workers: Sequence[str], timeout_s: int) -> Iterator[Execution]:
    """Commands that end with 0 as soon as no process of the launcher works with these workers."""
    for start in range(0, len(workers), _HOSTS_IN_CHECK):
        # With the commas the argument of the check itself is not a name.
        names = f",{','.join(workers[start : start + _HOSTS_IN_CHECK])},"
        yield _in(launcher, ("sh", "-c", _IDLE, "idle", names, str(timeout_s)), timeout_s)


def _in(
    launcher: Object, command: tuple[str, ...], timeout_s: int, stdin: bytes = b""
) -> Execution:
    return Execution(
        pod=launcher["metadata"]["name"],
        uid=Uid(launcher["metadata"]["uid"]),
        container=launcher["spec"]["containers"][0]["name"],
        command=command,
        stdin=stdin,
        timeout_s=timeout_s + _MARGIN_S,
    )
