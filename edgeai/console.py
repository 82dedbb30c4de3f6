"""Opens the web console of the local cluster in a browser that is already logged in."""

import http.client
import urllib.error
import urllib.request

from common.errors import EdgeAIError

TIMEOUT_S = 10.0


def login_address(rest_url: str, token: str) -> str:
    """The address that logs a browser of this machine in, once and within half a minute.

    Args: rest_url: base URL of the GlobalManager's REST
    Raises: EdgeAIError
    """
    request = urllib.request.Request(
        f"{rest_url}/login/code", method="POST", headers={"Authorization": f"Bearer {token}"}
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            code = response.read().decode()
    except urllib.error.HTTPError as error:
        raise EdgeAIError(f"the console at {rest_url} gives no code: {error}") from error
    except (OSError, http.client.HTTPException, ValueError) as error:
        problem = f"the GlobalManager does not answer at {rest_url}: {error}"
        raise EdgeAIError(problem) from error
    return f"{rest_url}/login?code={code}"
