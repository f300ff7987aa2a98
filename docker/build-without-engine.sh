#!/usr/bin/env bash
# Builds the image where no container engine runs: build-without-engine.sh FOLDER [BASE].
# Leaves its root file system in FOLDER/root and its configuration in FOLDER/config.json, for tests/deploy.
# BASE, where it is given, is a folder that `build-without-engine.sh --base BASE` has filled: the base and the
# environment, to which the Dockerfile's stage `build` adds the service. Several builds may share it.
# Needs root, and Debian's buildah and debootstrap; the base is made here, since no registry need be reachable.
set -euo pipefail
cd "$(dirname "$0")/.."
export BUILDAH_ISOLATION=chroot

make_base() {
    local folder=$1 base
    storage() { buildah --root "$folder/storage" --runroot "$folder/run" "$@"; }
    debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$folder/base" >"$folder/base.log"
    base=$(storage from scratch)
    storage add -q "$base" "$folder/base" / >/dev/null
    # A network may interpose its own certificate, which this machine knows.
    storage add -q "$base" /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt >/dev/null
    storage config --env PIP_CERT=/etc/ssl/certs/ca-certificates.crt "$base"
    storage commit -q --rm "$base" shardsmith-base >/dev/null
    storage bud --quiet --format docker --build-arg BASE_IMAGE=localhost/shardsmith-base --target dependencies \
        --tag shardsmith-dependencies . >"$folder/build.log"
    storage rmi --force localhost/shardsmith-base >/dev/null
    rm -rf "$folder/base" "$folder/run"
}

build() {
    local folder=$1 base=$2 driver image
    # What buildah found to work here.
    driver=$([ -d "$base/storage/overlay" ] && echo overlay || echo vfs)
    storage() {
        buildah --root "$folder/storage" --runroot "$folder/run" --storage-driver "$driver" \
            --storage-opt "$driver.imagestore=$base/storage" "$@"
    }
    storage bud --quiet --format docker --build-arg DEPENDENCIES=localhost/shardsmith-dependencies \
        --tag shardsmith . >"$folder/build.log"
    image=$(storage from localhost/shardsmith)
    storage inspect "$image" | python3 -c 'import json, sys; print(json.dumps(json.load(sys.stdin)["Docker"]["config"]))' \
        >"$folder/config.json"
    cp -a "$(storage mount "$image")" "$folder/root"
    storage umount "$image" >/dev/null
    rm -rf "$folder/storage" "$folder/run"
}

if [ "$1" = --base ]; then
    make_base "$(mkdir -p "$2" && cd "$2" && pwd)"
    exit
fi
folder=$(mkdir -p "$1" && cd "$1" && pwd)
base=${2:-}
if [ -z "$base" ]; then
    base=$folder/base
    mkdir "$base"
    make_base "$base"
fi
build "$folder" "$(cd "$base" && pwd)"
[ -n "${2:-}" ] || rm -rf "$folder/base"
