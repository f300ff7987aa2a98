"""Exits 0 when the service in this container answers on /livez; the image has no curl."""

from __future__ import annotations

import os
import sys
from http.client import HTTPConnection, HTTPException

connection = HTTPConnection("127.0.0.1", int(os.environ.get("SHARDSMITH_PORT", "8000")), timeout=2)
try:
    connection.request("GET", "/livez")
    sys.exit(connection.getresponse().status != 200)
except (OSError, HTTPException) as error:
    sys.exit(f"/livez: {error}")
