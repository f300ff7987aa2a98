# Sourced by run: how steps run, are timed and shown. A step leaves its output in $logs/NAME.log and a line in
# $logs/steps.tsv: name, seconds, seconds of processors, exit status. One that is in $logs/begun alone was lost.
# shellcheck shell=bash

TIMEFORMAT='%R %U %S'
#: The steps at work; more wait in `begin`.
together=2

# step NAME COMMAND: now, and shown as it goes.
step() {
    local name=$1 status=0
    shift
    echo "$name" >>"$logs/begun"
    printf '\n== %s: %s\n' "$name" "$*"
    { time "$@" 2>&1 | tee "$logs/$name.log"; } 2>"$logs/$name.time" || status=$?
    record "$name" "$status"
}

# begin NAME COMMAND: next to others, and shown when it has finished.
begin() {
    local name=$1
    shift
    while (($(jobs -pr | wc -l) >= together)); do
        wait -n || true
    done
    echo "$name" >>"$logs/begun"
    printf '\n== %s, begun: %s\n' "$name" "$*"
    (
        status=0
        { time "$@" >"$logs/$name.log" 2>&1; } 2>"$logs/$name.time" || status=$?
        {
            flock 9
            printf '\n== %s\n' "$name"
            cat "$logs/$name.log"
            record "$name" "$status"
        } 9>"$logs/shown"
    ) &
}

# wait_for NAME: until a step that was begun has finished.
wait_for() {
    until grep -qs "^$1	" "$logs/steps.tsv"; do
        [ -n "$(jobs -pr)" ] || return 0
        wait -n || true
    done
}

finish() {
    wait
}

record() {
    local seconds user system
    read -r seconds user system < <(tail -n 1 "$logs/$1.time")
    printf '%s\t%s\t%s\t%s\n' "$1" "$seconds" "$(awk "BEGIN { print $user + $system }")" "$2" >>"$logs/steps.tsv"
    printf '== %s: %s after %.0f s\n' "$1" "$([ "$2" = 0 ] && echo passed || echo "FAILED, status $2")" "$seconds"
}
