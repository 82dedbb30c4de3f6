"""Saves a model into a bucket, with obstore, which the image of the worker must have then."""

import re
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from edgeai.buckets import BUCKET_NAME, DEFAULT_REGION, BucketKeys, endpoint_url
from edgeai.worker.environment import wrong

REQUEST_LIMIT: Final = timedelta(minutes=10)
"""Of one request with 5 MiB or less. A node at the edge may send 0.3 Mbit/s."""
_PARALLEL: Final = 4
_SERVER: Final = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(/[A-Za-z0-9._~%/-]*)?")


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
        name, self._directory = parts.netloc.rpartition("@")[2], parts.path.strip("/")
        if not BUCKET_NAME.fullmatch(name) or not self._directory or "?" in url or "#" in url:
            raise wrong("MODEL_URL", "is no s3 URL like s3://bucket/directory, without '?' and '#'")
        self._put, keys = obstore.put, _keys(environ)
        self.store = S3Store(
            name,
            config=keys.config,
            client_options={
                "allow_http": keys.endpoint.startswith("http://"),
                "timeout": REQUEST_LIMIT,
            },
        )

    def save(self, directory: Path) -> None:
        """Save all files below the directory. Raises: obstore.exceptions.BaseError"""
        for file in filter(Path.is_file, directory.rglob("*")):
            key = f"{self._directory}/{file.relative_to(directory).as_posix()}"
            self._put(self.store, key, file, max_concurrency=_PARALLEL)


# A file from which a Secret was made often ends with a line feed. With it, and with a wrong URL,
# obstore panics: after the training, and with what is no Exception.


def _endpoint(environ: Mapping[str, str]) -> str:
    """The URL of the server; "" for AWS. Raises: SettingsError"""
    endpoint = endpoint_url(environ.get("S3_ENDPOINT_URL", "").strip())
    if endpoint and not _SERVER.fullmatch(endpoint):
        raise wrong("S3_ENDPOINT_URL", "is no URL of a server, like https://minio.example:9000")
    return endpoint


def _keys(environ: Mapping[str, str]) -> BucketKeys:
    """Raises: SettingsError"""
    return BucketKeys(
        access=_key("ACCESS_KEY_ID", environ),
        secret=_key("SECRET_ACCESS_KEY", environ),
        endpoint=_endpoint(environ),
        region=environ.get("AWS_REGION", DEFAULT_REGION),
    )


def _key(name: str, environ: Mapping[str, str]) -> str:
    """Raises: SettingsError, which does not quote the key"""
    key = environ.get(name, "").strip()
    if key and not (key.isascii() and key.isprintable()):
        raise wrong(name, "has a character that no key has; write the key alone into the Secret")
    return key
