"""Exits 0 when the service in this container answers on /livez; the image has no curl."""

from __future__ import annotations

import os
import sys
from http.client import HTTPConnection, HTTPException

# Kubernetes sets SHARDSMITH_PORT=tcp://... for a Service of that name, which the service ignores as well.
port = os.environ.get("SHARDSMITH_PORT", "")
connection = HTTPConnection("127.0.0.1", int(port) if port.isdecimal() else 8000, timeout=2)
try:
    connection.request("GET", "/livez")
    sys.exit(connection.getresponse().status != 200)
except (OSError, HTTPException) as error:
    sys.exit(f"/livez: {error}")
