"""Opens the web console in a browser that is already logged in."""

import asyncio
import http
import http.client
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from edgeai.errors import EdgeAIError, InvalidName
from edgeai.ids import is_subdomain

# Import the Kubernetes client late, because it loads more slowly than all other commands.
if TYPE_CHECKING:
    from edgeai.kube.user import UserClient

TIMEOUT_S: Final = 10.0
TOKEN_S: Final = 8 * 3600
"""Lifetime of a token that is made for a session: that of the session."""
_MAX_CODE_BYTES: Final = 4096
_ACCOUNT: Final = "--service-account NAMESPACE/NAME"
_REFUSALS: Final = {
    http.HTTPStatus.SEE_OTHER: "it does not accept the token; does it belong to another cluster?",
    http.HTTPStatus.NOT_FOUND: "it is disabled (--console off)",
}


def login_address(rest_url: str, token: str) -> str:
    """The address that logs a browser of this machine in, once and within half a minute.

    Args: rest_url: base URL of the GlobalManager's REST, on this machine
    Raises: EdgeAIError
    """
    request = urllib.request.Request(
        f"{rest_url}/login/code", method="POST", headers={"Authorization": f"Bearer {token}"}
    )
    # The token goes to this address and nowhere else.
    opener = urllib.request.build_opener(_NoRedirect, urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=TIMEOUT_S) as response:
            code = response.read(_MAX_CODE_BYTES).decode()
    except urllib.error.HTTPError as error:
        error.close()
        why = _REFUSALS.get(http.HTTPStatus(error.code), str(error))
        raise EdgeAIError(f"the console at {rest_url} does not give a login code: {why}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        problem = f"the GlobalManager does not answer at {rest_url}: {error}"
        raise EdgeAIError(problem) from error
    return f"{rest_url}/login?code={code}"


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


async def open_in_cluster(
    kubeconfig: Path,
    namespace: str,
    *,
    account: str,
    context: str,
    port: int,
    show: Callable[[str], object],
    say: Callable[[str], object],
) -> None:
    """Lead a port of this machine to the console of a cluster, until this task is cancelled.

    Args:
        account: NAMESPACE/NAME of the ServiceAccount to log in as; "" for the kubeconfig's token
        port: local port; 0: any free port
        show: gets the address that logs a browser in
        say: tells the user what goes wrong meanwhile
    Raises: EdgeAIError
    """
    from edgeai.cli.forward import forwarded
    from edgeai.client import AsyncClient

    async with await AsyncClient.open(kubeconfig, namespace, context=context) as client:
        token = await _token(client.kube, kubeconfig, account)
        async with forwarded(client.kube, client.namespace, port, say) as url:
            show(await asyncio.to_thread(login_address, url, token))
            await asyncio.get_running_loop().create_future()


async def _token(client: "UserClient", kubeconfig: Path, account: str) -> str:
    """Raises: EdgeAIError, ApiError"""
    from edgeai.api.resources import SERVICE_ACCOUNTS, ObjectRef

    if not account:
        if token := await client.token():
            return token
        problem = "has no token for the console, only a certificate or nothing; log in as"
        raise EdgeAIError(f"kubeconfig {kubeconfig} {problem} a ServiceAccount with {_ACCOUNT}")
    namespace, _, name = account.partition("/")
    if not (is_subdomain(namespace) and is_subdomain(name)):
        raise InvalidName("--service-account", account, "NAMESPACE/NAME, like default/viewer")
    return await client.new_token(ObjectRef(SERVICE_ACCOUNTS, namespace, name), seconds=TOKEN_S)
