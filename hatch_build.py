"""What hatchling asks when it builds the package: the text of its page in an index.

It is README.md with the words alone of links and pictures that lead into the repository: an index
has no such files, and would show dead links.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE = re.compile(r"!?\[([^\]]*)\]\((?!\w+:)[^)]*\)")


class Readme(MetadataHookInterface):
    def update(self, metadata: dict[str, Any]) -> None:
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {
            "content-type": "text/markdown",
            "text": _RELATIVE.sub(r"\1", text),
        }
