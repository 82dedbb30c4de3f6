"""The keys of an S3 bucket, and what they are for obstore's client."""

import re
from typing import Any, Final

import msgspec

DEFAULT_REGION: Final = "us-east-1"
BUCKET_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")  # older names, too


class BucketKeys(msgspec.Struct, frozen=True):
    """Keys and address of a bucket. Without `access` the requests are not signed."""

    access: str = ""
    secret: str = ""
    endpoint: str = ""
    region: str = DEFAULT_REGION

    def __repr__(self) -> str:
        return f"Keys(endpoint={self.endpoint!r}, region={self.region!r})"

    @property
    def config(self) -> Any:
        """An S3Config of obstore, which not every image has."""
        config: dict[str, Any] = {"region": self.region, "virtual_hosted_style_request": False}
        if self.endpoint:
            config["endpoint"] = self.endpoint
        if not self.access:
            return {**config, "skip_signature": True}
        return {**config, "access_key_id": self.access, "secret_access_key": self.secret}


def endpoint_url(endpoint: str) -> str:
    """With the scheme that it lacks; "" for AWS, which needs none."""
    return endpoint if "://" in endpoint or not endpoint else f"https://{endpoint}"
