"""Makes a container on Azure Blob Storage with the standard library alone, as obstore cannot.

    python tests/support/object_stores/azurite_container.py ENDPOINT ACCOUNT KEY CONTAINER

Signed as Microsoft's page "Authorize with Shared Key" says, which stands at
learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key.
"""

import base64
import hashlib
import hmac
import sys
import urllib.request
from datetime import UTC, datetime

_VERSION = "2023-11-03"


def create_container(endpoint: str, account: str, key: str, container: str) -> None:
    """Create it at `endpoint`, an emulator's, whose path is the account's name."""
    date = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    headers = {"x-ms-date": date, "x-ms-version": _VERSION}
    # The method, eleven headers that are all absent or empty, the x-ms- headers, the resource.
    to_sign = "PUT" + "\n" * 12
    to_sign += "".join(f"{name}:{value}\n" for name, value in headers.items())
    to_sign += f"/{account}/{account}/{container}\nrestype:container"
    digest = hmac.digest(base64.b64decode(key), to_sign.encode(), hashlib.sha256)
    headers["Authorization"] = f"SharedKey {account}:{base64.b64encode(digest).decode()}"
    headers["Content-Length"] = "0"
    url = f"{endpoint}/{container}?restype=container"
    request = urllib.request.Request(url, method="PUT", headers=headers)  # noqa: S310  # of a test's server
    urllib.request.urlopen(request, timeout=30).close()  # noqa: S310


if __name__ == "__main__":
    create_container(*sys.argv[1:])
