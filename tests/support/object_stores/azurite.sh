#!/usr/bin/env bash
# Azure Blob Storage on loopback: Azurite, Microsoft's own emulator, data in memory, up in about 1 s.
#
#   tests/support/object_stores/azurite.sh PATH/TO/azurite-blob [PORT]        (npm install azurite)
#
# The endpoint is http://127.0.0.1:PORT/testaccount, PORT being 9500 if not given; the key of that account
# is below. It stays in the foreground. azurite_container.py makes a container, which obstore cannot.
set -euo pipefail

AZURITE_ACCOUNTS="testaccount:$(printf 0123456789abcdef0123456789abcdef | base64)"
export AZURITE_ACCOUNTS
exec "$1" --silent --inMemoryPersistence --disableTelemetry --blobHost 127.0.0.1 --blobPort "${2:-9500}"
