# shellcheck shell=bash
# Sourced by the stages.
set -euo pipefail

# What is slow to make and the same for every commit: the base system that the unit is booted in.
# shellcheck disable=SC2034  # used by the stages
CI_CACHE=${ROOFLINED_CI_CACHE:-/var/tmp/rooflined-ci}
# shellcheck disable=SC2034  # used by the stages
CODENAME=$(. /etc/os-release && echo "$VERSION_CODENAME")

fail() {
    echo "$*" >&2
    exit 1
}

# One line that CI counts: check "what is claimed" COMMAND…
check() {
    local claim=$1 output status
    shift
    # Not as a condition: bash would ignore a failure in the middle of a function.
    set +e
    output=$(
        set -e
        "$@" 2>&1
    )
    status=$?
    set -e
    if [ "$status" -eq 0 ]; then
        echo "check: ok $claim"
    else
        echo "check: FAILED $claim"
        printf '%s\n' "$output" | sed 's/^/    /'
        CHECKS_FAILED=$((${CHECKS_FAILED:-0} + 1))
    fi
}

# Ends a stage that used check.
checked() {
    [ "${CHECKS_FAILED:-0}" -eq 0 ] || fail "$CHECKS_FAILED checks failed"
}

# The package lists are fetched once in a run, and only if a package is missing.
need() {
    local missing=() package
    for package; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
    done
    if [ ${#missing[@]} -eq 0 ]; then
        return
    fi
    [ "$(id -u)" -eq 0 ] || fail "missing packages: ${missing[*]}; install them, or run this as root"
    local lists=${CI_OUT:-/tmp}/apt-updated
    if [ ! -e "$lists" ]; then
        apt-get -q update
        [ -z "${CI_OUT:-}" ] || touch "$lists"
    fi
    apt-get -q install -y --no-install-recommends "${missing[@]}" >"${CI_OUT:-/tmp}/apt-install.txt" 2>&1 || {
        cat "${CI_OUT:-/tmp}/apt-install.txt"
        fail "could not install ${missing[*]}"
    }
    echo "installed ${missing[*]}"
}

# The Debian archive that this machine itself uses.
mirror() {
    local found
    # shellcheck disable=SC2016  # apt's own placeholders
    found=$(apt-get indextargets --format '$(REPO_URI) $(ORIGIN) $(CODENAME)' 'Identifier: Packages' 2>/dev/null |
        awk -v codename="$CODENAME" '$2 == "Debian" && $3 == codename {print $1; exit}')
    echo "${found:-http://deb.debian.org/debian}"
}
