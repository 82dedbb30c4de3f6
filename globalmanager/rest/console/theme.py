"""Templates and files of the console, read once at the start, and the headers that guard them."""

import hashlib
from functools import lru_cache
from importlib import resources
from typing import Any, Final, NamedTuple

TYPES: Final = {
    "js": "text/javascript",
    "css": "text/css",
    "svg": "image/svg+xml",
    "txt": "text/plain",
}
POLICY: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of every answer, so that a page can do what it needs and nothing else."""


class File(NamedTuple):
    content_type: str
    body: bytes
    version: str
    """Changes with the body, and is part of the address, so that browsers may keep the file."""


class Theme:
    def __init__(self) -> None:
        import jinja2  # here, because jinja2 takes 2 MiB, and only a page needs it

        self.files = {
            file.name: File(type_, body := file.read_bytes(), hashlib.sha256(body).hexdigest()[:12])
            for file in (resources.files(__package__) / "static").iterdir()
            if (type_ := TYPES.get(file.name.rpartition(".")[2]))
        }
        self._environment = jinja2.Environment(
            loader=jinja2.PackageLoader(__package__),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.globals["asset"] = self.address_of

    def page(self, template: str, **values: Any) -> str:
        return self._environment.get_template(template).render(**values)

    def block(self, template: str, name: str, **values: Any) -> str:
        """One block of a page alone."""
        template_ = self._environment.get_template(template)
        return "".join(template_.blocks[name](template_.new_context(values))).strip()

    def address_of(self, name: str) -> str:
        return f"/static/{name}?{self.files[name].version}"


@lru_cache
def theme() -> Theme:
    """The theme of this process; templates are compiled once."""
    return Theme()
