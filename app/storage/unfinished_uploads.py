"""Multipart uploads of S3 that were begun and neither completed nor aborted.

Their parts take room, cost money, and are in no list of objects. obstore can neither list nor abort
the uploads of others, so botocore, AWS's own client, sends these two requests, configured by the
same variables. It is an extra, imported at the first sweep: it is large and only S3 needs it.
"""

from __future__ import annotations

import logging
import os
from datetime import datetime
from importlib.util import find_spec
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit, urlunsplit

from ..errors import StorageError, StorageUnavailable
from .remote import is_true, s3_endpoint

logger = logging.getLogger(__name__)

#: One request takes at most two tries of 5 s to connect and 10 s to answer.
_CONNECT_S: Final = 5
_ANSWER_S: Final = 10
_TRIES: Final = 2
#: Uploads a page of the list; S3 gives no more.
_PAGE: Final = 1000
#: What a store says that knows no such list, as Google's S3 interface does of some.
_NOT_KNOWN: Final = ("NotImplemented", "MethodNotAllowed")
_DENIED: Final = (401, 403)
_MISSING: Final = (
    "Unfinished uploads to S3 cannot be removed: botocore is not installed. Install shardsmith[botocore], "
    "or give the bucket a lifecycle rule AbortIncompleteMultipartUpload."
)


def warn_if_missing() -> None:
    """Log what collection on S3 cannot do because botocore is not installed."""
    if find_spec("botocore") is None:
        logger.warning(_MISSING)


def abort_uploads(bucket: str, prefix: str, before: datetime) -> int:
    """Abort the uploads to keys that begin with `prefix` which were begun before then, and count them.

    One that its writer completes or aborts meanwhile is not counted.

    Raises:
        StorageError: listing or aborting them is not permitted (`storage_denied`), or botocore is not
            installed (`botocore_missing`).
        StorageUnavailable: the store did not answer.
    """
    try:
        from botocore.exceptions import BotoCoreError, ClientError
    except ImportError:
        raise StorageError(_MISSING, code="botocore_missing") from None

    aborted = 0
    try:
        client = _client(bucket)
        pages = client.get_paginator("list_multipart_uploads")
        for page in pages.paginate(Bucket=bucket, Prefix=prefix, PaginationConfig={"PageSize": _PAGE}):
            for upload in page.get("Uploads", []):
                if upload["Initiated"] < before:
                    aborted += _abort(client, bucket, upload["Key"], upload["UploadId"])
    except ClientError as error:
        if error.response["Error"].get("Code") not in _NOT_KNOWN:
            _raise_as_ours(error.response)
    except BotoCoreError as error:
        # Its text may quote a URL, so only its class is shown.
        raise StorageUnavailable(
            f"Unfinished uploads cannot be listed: {type(error).__name__}. Check AWS_ENDPOINT_URL."
        ) from None
    return aborted


def _abort(client: Any, bucket: str, key: str, upload: str) -> bool:
    try:
        client.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload)
    except client.exceptions.NoSuchUpload:
        return False
    return True


def _raise_as_ours(response: dict[str, Any]) -> NoReturn:
    # The answer's other members may repeat a token.
    code = response["Error"].get("Code")
    status = response["ResponseMetadata"].get("HTTPStatusCode")
    if status in _DENIED or code in ("ExpiredToken", "InvalidToken"):
        raise StorageError(
            f"The store refuses to list or abort unfinished uploads ({code}). Permit "
            f"s3:ListBucketMultipartUploads and s3:AbortMultipartUpload.",
            code="storage_denied",
        ) from None
    raise StorageUnavailable(f"Unfinished uploads cannot be listed or aborted ({code}).") from None


def _client(bucket: str) -> Any:
    """A client of the store that obstore reaches with the same environment."""
    import botocore.session
    from botocore import UNSIGNED
    from botocore.config import Config

    # obstore reads no profile and no files of AWS's tools: neither may name another account here.
    unset = (None, None, None, None)
    session = botocore.session.Session(session_vars={"profile": unset})
    session.set_config_variable("config_file", os.devnull)
    session.set_config_variable("credentials_file", os.devnull)
    virtual = is_true("AWS_VIRTUAL_HOSTED_STYLE_REQUEST")
    config = Config(
        connect_timeout=_CONNECT_S,
        read_timeout=_ANSWER_S,
        retries={"total_max_attempts": _TRIES, "mode": "standard"},
        s3={"addressing_style": "virtual" if virtual else "path"},
        signature_version=UNSIGNED if is_true("AWS_SKIP_SIGNATURE") else "s3v4",
    )
    return session.create_client(
        "s3",
        region_name=os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1",
        endpoint_url=_endpoint(bucket, virtual=virtual),
        # Without these botocore asks where obstore does: web identity, container, instance.
        aws_access_key_id=os.environ.get("AWS_ACCESS_KEY_ID"),
        aws_secret_access_key=os.environ.get("AWS_SECRET_ACCESS_KEY"),
        aws_session_token=os.environ.get("AWS_SESSION_TOKEN") or os.environ.get("AWS_TOKEN"),
        config=config,
    )


def _endpoint(bucket: str, *, virtual: bool) -> str | None:
    """The endpoint without the bucket, which obstore wants in its host and botocore puts there itself."""
    endpoint = s3_endpoint()
    if endpoint is None or not virtual:
        return endpoint
    parts = urlsplit(endpoint)
    return urlunsplit(parts._replace(netloc=parts.netloc.removeprefix(f"{bucket}.")))
