"""Starts a LocalController: `python -m localcontroller --help`.

Exit codes: 0 stopped by a signal; 1 a defect; 2 a setting is wrong; 3 the state directory cannot
be used; 4 the files of the credential are lost, a restarted container finds them again.
"""

import asyncio
import os
import sys

from common import logs
from common.errors import SettingsError, StateError
from common.settings import load
from localcontroller.app import run_until_signalled
from localcontroller.link.credentials import CredentialLost
from localcontroller.settings import Settings, check

DESCRIPTION = "Holds the tasks of one edge node and reports its workers to the GlobalManager."


def main() -> None:
    """Run until SIGTERM or SIGINT; what is wrong with the invocation is one line on stderr."""
    try:
        settings = load(
            Settings,
            prog="localcontroller",
            argv=sys.argv[1:],
            env=os.environ,
            description=DESCRIPTION,
        )
        check(settings)
        logs.configure("localcontroller", level=settings.log_level)
        with logs.bind(node=settings.node_name):
            asyncio.run(run_until_signalled(settings))
    except SettingsError as error:
        _exit(2, error)
    except StateError as error:
        _exit(3, error)
    except CredentialLost as error:
        _exit(4, error)


def _exit(code: int, error: Exception) -> None:
    sys.stderr.write(f"localcontroller: {error}\n")
    sys.exit(code)


if __name__ == "__main__":
    main()
