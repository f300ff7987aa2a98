#!/usr/bin/env bash
# Builds the image where no container engine runs: build-without-engine.sh FOLDER.
# Leaves its root file system in FOLDER/root and its configuration in FOLDER/config.json, for tests/deploy.
# Needs root, and Debian's buildah and debootstrap; the base is made here, since no registry need be reachable.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=$(mkdir -p "$1" && cd "$1" && pwd)
export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs
storage() { buildah --root "$folder/storage" --runroot "$folder/run" "$@"; }

debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$folder/base" >"$folder/base.log"
base=$(storage from scratch)
storage add -q "$base" "$folder/base" / >/dev/null
# A network may interpose its own certificate, which this machine knows.
storage add -q "$base" /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt >/dev/null
storage config --env PIP_CERT=/etc/ssl/certs/ca-certificates.crt "$base"
storage commit -q --rm "$base" shardsmith-base >/dev/null
rm -rf "$folder/base"

storage bud --quiet --format docker --build-arg BASE_IMAGE=localhost/shardsmith-base --tag shardsmith . >"$folder/build.log"
image=$(storage from localhost/shardsmith)
storage inspect "$image" | python3 -c 'import json, sys; print(json.dumps(json.load(sys.stdin)["Docker"]["config"]))' \
    >"$folder/config.json"
cp -a "$(storage mount "$image")" "$folder/root"
storage umount "$image" >/dev/null
rm -rf "$folder/storage" "$folder/run"
