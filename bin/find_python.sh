# Sourced by the commands beside it: sets $python to an interpreter they can use, or explains and exits.
#
# $PYTHON decides where it is set. Otherwise `python3` is taken when it is new enough and all locked
# packages have wheels for it (those of the tests have none for 3.14 yet: TensorFlow), and then
# python3.13, 3.12 and 3.11 are tried.
# shellcheck shell=sh

_supported='import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))'

if [ -n "${PYTHON:-}" ]; then
    _candidates=$PYTHON
    _supported='import sys; sys.exit(sys.version_info < (3, 11))'
else
    _candidates='python3 python3.13 python3.12 python3.11'
fi

python=
for _candidate in $_candidates; do
    if "$_candidate" -I -S -c "$_supported" >/dev/null 2>&1; then
        python=$_candidate
        break
    fi
done

if [ -z "$python" ]; then
    {
        echo "Shardsmith needs Python 3.11, 3.12 or 3.13; tried: $_candidates."
        if _found=$(python3 --version 2>&1); then
            echo "Found here: $_found."
        fi
        echo "Install one (Debian, Ubuntu: apt install python3 python3-venv; macOS: brew install python@3.13),"
        echo "or name an interpreter: PYTHON=/path/to/python3.12 $0"
    } >&2
    exit 1
fi
