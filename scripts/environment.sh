# Makes .venv and installs Marklight into it; sourced by the other scripts.
# The install is skipped while pyproject.toml and constraints.txt stay as they were,
# so that every script works offline after its first run.

cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf '%s\n' "$*" >&2; }

find_python() {
    local candidate
    for candidate in "${PYTHON:-}" python3 python3.14 python3.13 python3.12 python3.11 python; do
        [ -n "$candidate" ] || continue
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            printf '%s' "$candidate"
            return
        fi
    done
    say "Python 3.11 or later is missing. Install it, or name it: PYTHON=/path/to/python3 $0"
    exit 1
}

install() { # install EXTRAS: the package itself with these extras, by name only
    local extras=$1 stamp wanted log
    if [ ! -x .venv/bin/python ]; then
        local python
        python=$(find_python) || exit 1
        say "Making .venv with $("$python" --version) …"
        if ! "$python" -m venv .venv; then
            rm -rf .venv
            say "Python cannot make a virtual environment. On Debian or Ubuntu: apt install python3-venv"
            exit 1
        fi
    fi
    if ! .venv/bin/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        say "Marklight needs Python 3.11 or later; .venv has $(.venv/bin/python --version 2>&1). Delete .venv and run $0 again."
        exit 1
    fi
    stamp=.venv/installed-${extras:-none}
    wanted=$(cat pyproject.toml constraints.txt | cksum)
    if [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then return; fi
    say "Installing Marklight${extras:+ with extras: $extras} …"
    log=.venv/install.log
    if ! PIP_CONSTRAINT="$PWD/constraints.txt" .venv/bin/python -m pip install \
        --disable-pip-version-check --quiet --editable ".${extras:+[$extras]}" >"$log" 2>&1; then
        tail -n 20 "$log" >&2
        say "The install failed; the lines above say why (all of it: $log). It needs a package index once."
        exit 1
    fi
    printf '%s' "$wanted" >"$stamp"
    # More extras hold all that fewer need.
    case $extras in check | bench) printf '%s' "$wanted" >.venv/installed-test ;; esac
    printf '%s' "$wanted" >.venv/installed-none
}
