"""Saves a model into a bucket, with obstore, which the image of the worker must have then."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from edgeai.worker.environment import wrong

if TYPE_CHECKING:
    from obstore.store import S3Config

REGION: Final = "us-east-1"
"""Of servers that know no regions, unless AWS_REGION names another one."""


class Bucket:
    """The directory of a bucket.

    Args: environ: has S3_ENDPOINT_URL, of which AWS needs none, and the keys
    Raises: SettingsError
    """

    def __init__(self, url: str, environ: Mapping[str, str]) -> None:
        if not url.startswith("s3://"):
            raise wrong("MODEL_URL", "is no directory of the node and no s3 URL")
        try:
            import obstore
            from obstore.store import S3Store
        except ImportError as error:
            problem = "is in a bucket, and this image has no obstore: pip install obstore"
            raise wrong("MODEL_URL", problem) from error
        parts = urlsplit(url)
        self._put, self._directory = obstore.put, parts.path.strip("/")
        endpoint = environ.get("S3_ENDPOINT_URL", "")
        self._store = S3Store(
            parts.netloc.rpartition("@")[2],
            config=_config(endpoint, environ),
            client_options={"allow_http": endpoint.startswith("http://")},
        )

    def save(self, directory: Path) -> None:
        """Save all files below the directory. Raises: obstore.exceptions.BaseError"""
        for file in filter(Path.is_file, directory.rglob("*")):
            key = f"{self._directory}/{file.relative_to(directory).as_posix()}"
            self._put(self._store, key, file)


def _config(endpoint: str, environ: Mapping[str, str]) -> "S3Config":
    region = environ.get("AWS_REGION", REGION)
    config: S3Config = {"region": region, "virtual_hosted_style_request": False}
    if endpoint:
        config["endpoint"] = endpoint
    access, secret = environ.get("ACCESS_KEY_ID", ""), environ.get("SECRET_ACCESS_KEY", "")
    if not access:
        return {**config, "skip_signature": True}
    return {**config, "access_key_id": access, "secret_access_key": secret}
