#!/usr/bin/env bash
# Uploads the digits, publishes them as TFRecord shards, downloads and verifies every shard.
# Usage: run.sh [BASE_URL] [FOLDER]; FOLDER holds train.npz and test.npz (make_digits.py writes them).
# Needs curl, and python3 (standard library) to pick values out of JSON.
set -euo pipefail

base=${1:-http://127.0.0.1:8000}
folder=${2:-digits}
dataset=$base/v1/datasets/digits

request() { curl --silent --show-error --fail-with-body "$@"; }

ready=
for _ in $(seq 120); do
    if curl --silent --fail --output /dev/null "$base/readyz"; then
        ready=yes
        break
    fi
    sleep 0.5
done
if [ -z "$ready" ]; then
    echo "$base/readyz is not ready after a minute; is the service running?" >&2
    exit 1
fi

# The key makes a repeated upload, by a retry or a second run, count once.
for split in train test; do
    request --header 'Content-Type: application/x-npz' --header "Idempotency-Key: digits-$split" \
        --data-binary "@$folder/$split.npz" "$dataset/records?split=$split"
    echo
done

# 409 nothing_to_publish: a second run has appended nothing new, and takes the version that is there.
status=$(curl --silent --show-error --output "$folder/published.json" --write-out '%{http_code}' \
    --request POST "$dataset/versions?num_shards=4")
if [ "$status" != 201 ] && ! grep --quiet nothing_to_publish "$folder/published.json"; then
    cat "$folder/published.json" >&2
    exit 1
fi

rm -rf "$folder/shards"
mkdir -p "$folder/shards"
request --output "$folder/manifest.json" "$dataset/versions/latest"
version=$(python3 -c 'import json, sys; print(json.load(sys.stdin)["version"])' <"$folder/manifest.json")
echo "version $version"
python3 -c '
import json, sys

manifest = json.load(open(sys.argv[1], encoding="utf-8"))
for split in manifest["splits"].values():
    for shard in split["shards"]:
        print(shard["sha256"] + "  " + shard["file"])
' "$folder/manifest.json" >"$folder/shards/SHA256SUMS"

while read -r _ file; do
    request --output "$folder/shards/$file" "$dataset/versions/$version/shards/$file"
done <"$folder/shards/SHA256SUMS"

cd "$folder/shards"
if command -v sha256sum >/dev/null; then
    sha256sum --check SHA256SUMS
else
    shasum --algorithm 256 --check SHA256SUMS
fi
