#!/bin/sh
# A client of Shardsmith for the shell: curl and coreutils. Run it, or copy its functions into a script of yours.
#
#   shardsmith.sh put DATASET FILE|- [MEDIA-TYPE [KEY [PARAMETERS]]]    publish DATASET [KEY [PARAMETERS]]
#                 wait DATASET VERSION    rows DATASET VERSION [SPLIT]   get DATASET VERSION FOLDER
#
# PARAMETERS are those of docs/http.md, as 'split=test&evolve=widen' or 'num_shards=8&shuffle=true'.
#
# SHARDSMITH_CLIENT_URL is the service (http://127.0.0.1:8000), SHARDSMITH_CLIENT_TOKEN its token, if it asks for one.
set -eu

service=${SHARDSMITH_CLIENT_URL:-http://127.0.0.1:8000}
datasets=${service%/}/v1/datasets
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# Append a file to a dataset. It is sent while it is read; `-` is standard input, of which there is one try alone.
# After a failure the same may be repeated with the same key: what is sent under a key is stored once.
put() { # DATASET FILE|- [MEDIA-TYPE [KEY [PARAMETERS]]]
    to="$datasets/$1/records?${5:-}" file=$2 type=${3:-application/x-ndjson} key=${4:-$(new_key)}
    set -- -X POST -T "$file" -H "Content-Type: $type" -H "Idempotency-Key: $key"
    if [ "$file" = - ]; then
        most=1
    else # the service compares this with what arrives
        set -- "$@" -H "Content-Digest: sha-256=:$(sha256 "$file" | base64_of_hex):"
    fi
    call "$to" "$@" || { echo "(key $key)" >&2 && return 1; }
    echo "$(member num_records) rows"
}

# Make a version of all that was appended, and print its number once it can be read. While it is not done the same
# is asked again, which also takes over from a server that has died in the middle of it.
publish() { # DATASET [KEY [PARAMETERS]]
    call "$datasets/$1/versions?${3:-}" -X POST -H "Idempotency-Key: ${2:-$(new_key)}" && member version
}

# Print the number of a version, or of "latest", once it can be read. Somebody else publishes it.
wait_for() { # DATASET VERSION
    call "$datasets/$1/versions/$2" && member version
}

# Print the rows of a split, as lines of JSON. They come a few thousand at a time, each time all or none.
rows() { # DATASET VERSION [SPLIT]
    version=$(wait_for "$1" "$2") # "latest" may become another one
    offset=0 damaged=0
    while call "$datasets/$1/versions/$version/records?split=${3:-train}&offset=$offset&length=5000" || return 1; do
        count=$(header record-count)
        if [ "$count" != "$(wc -l <"$tmp/body" | tr -d ' ')" ]; then
            damaged=$((damaged + 1))
            [ "$damaged" -lt 10 ] || { echo 'The rows were damaged on their way.' >&2 && return 1; }
        elif [ "$count" = 0 ]; then
            return
        else
            cat "$tmp/body"
            offset=$((offset + count)) damaged=0
        fi
    done
}

# Download a version into a folder: shards, and the files that describe them. What is there is not downloaded again,
# and what is there in part is completed. A file gets its name once its checksum is right.
get() { # DATASET VERSION FOLDER
    version=$(wait_for "$1" "$2")
    call "$datasets/$1/versions/$version/SHA256SUMS"
    mkdir -p "$3"
    while read -r sum name; do
        case $name in */* | .*) echo "This is no name of a file: $name" >&2 && return 1 ;; esac
        download "$datasets/$1/versions/$version/files/$name" "$sum" "$3/$name" </dev/null
    done <"$tmp/body"
}

download() { # URL SUM FILE
    part=$3.$(echo "$2" | cut -c1-16).part pause=1 tries=0
    if [ -f "$3" ] && [ "$(sha256 "$3")" = "$2" ]; then
        return
    fi
    until [ -f "$part" ] && [ "$(sha256 "$part")" = "$2" ]; do
        tries=$((tries + 1))
        # A file's ETag is its checksum. What `once` took as whole was damaged, if it is still here.
        if once "$part" "$1" -f -C - -H "If-Range: \"$2\"" || [ "$status" = 416 ]; then
            [ -f "$part" ] && [ "$(sha256 "$part")" = "$2" ] || rm -f "$part"
        elif [ "$tries" -ge 10 ] || [ "$status" = 404 ]; then
            cat "$tmp/error" >&2
            return 1
        else
            rest
        fi
    done
    mv "$part" "$3"
}

# Send a request until there is a whole answer, or one that refuses it for good. The answer is in $tmp/body.
call() { # URL OPTION-OF-CURL...
    pause=1 tries=0
    while :; do
        tries=$((tries + 1))
        if once "$tmp/body" "$@"; then
            case $status in
            202) tries=0 ;; # a publication is under way
            2*) is_whole && return ;;
            *)
                echo "$(member code) ($status): $(member detail)" >"$tmp/error"
                case "$status $(member code) $after" in
                408* | 429* | 50[2347]* | *' digest_mismatch '* | *[0-9]) ;;
                *) tries=10 ;;
                esac
                ;;
            esac
        fi
        if [ "$tries" -ge "${most:-10}" ]; then
            cat "$tmp/error" >&2
            return 1
        fi
        rest
    done
}

# Neither a stalled connection nor one that is cut off is an answer.
once() { # FILE URL OPTION-OF-CURL...
    : >"$tmp/head"
    into=$1 status=0 failed=0
    shift
    status=$(curl -gsS --connect-timeout 10 --speed-limit 1 --speed-time 120 -D "$tmp/head" -o "$into" \
        -w '%{http_code}' ${SHARDSMITH_CLIENT_TOKEN:+-H "Authorization: Bearer $SHARDSMITH_CLIENT_TOKEN"} "$@" \
        2>"$tmp/error") || failed=1
    after=$(header retry-after)
    return $failed
}

is_whole() {
    said=$(header repr-digest | sed 's/^sha-256=:\(.*\):$/\1/')
    if [ "${said:-$(sha256 "$tmp/body" | base64_of_hex)}" = "$(sha256 "$tmp/body" | base64_of_hex)" ]; then
        [ -n "$said" ] || [ -s "$tmp/body" ] && return
    fi
    echo 'The answer was damaged on its way.' >"$tmp/error"
    return 1
}

rest() {
    [ ! -s "$tmp/error" ] || echo "$(cat "$tmp/error") (again in ${after:-$pause} s)" >&2
    sleep "${after:-$pause}"
    pause=$((pause < 16 ? pause * 2 : 30))
}

new_key() { od -An -N16 -tx1 /dev/urandom | tr -d ' \n'; }
sha256() { sha256sum "$1" | cut -d' ' -f1; }
base64_of_hex() { for byte in $(sed 's/../0x& /g'); do printf "\\$(printf %03o "$byte")"; done | base64; }
header() { tr -d '\r' <"$tmp/head" | sed -n "s/^$1: //Ip" | tail -n 1; }
member() { # of an object of JSON: a text or a number
    grep -oE "\"$1\": (\"([^\"\\\\]|\\\\.)*\"|[0-9]+)" "$tmp/body" | head -n 1 | sed "s/^\"$1\": //; s/^\"//; s/\"\$//"
}

case "${1:-} $#" in
put\ [3456] | publish\ [234] | rows\ [34] | get\ 4) "$@" ;;
wait\ 3) wait_for "$2" "$3" ;;
*) sed -n '4,9s/^# \{0,1\}//p' "$0" >&2 && exit 2 ;;
esac
