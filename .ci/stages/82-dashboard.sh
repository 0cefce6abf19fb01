#!/usr/bin/env bash
# the dashboard's page in a real browser, against the programs as they are shipped
. .ci/lib.sh

need chromium python3
# NodeSource's package of node has npm in it and does not go with Debian's.
{ command -v node && command -v npm; } >/dev/null || need nodejs npm
[ -x target/release/rooflinectl ] || release

began=$SECONDS
modules=$CI_CACHE/dashboard-$({ cat tests/dashboard/package-lock.json && node --version; } | sha256sum | cut -c 1-12)
if [ ! -e "$modules/complete" ]; then
    rm -rf "$CI_CACHE"/dashboard-*
    mkdir -p "$modules"
    cp tests/dashboard/package.json tests/dashboard/package-lock.json "$modules"
    npm ci --prefix "$modules" --no-audit --no-fund --ignore-scripts --loglevel=error
    touch "$modules/complete"
fi
ln -sfn "$modules/node_modules" tests/dashboard/node_modules
trap 'rm -f tests/dashboard/node_modules' EXIT
export ROOFLINED_BINARIES=$PWD/target/release
echo "the tools were installed after $((SECONDS - began)) s"

page() {
    local status=0
    node --test --test-reporter=spec tests/dashboard/test_page.mjs >"$CI_OUT/dashboard.txt" 2>&1 || status=$?
    ! grep SKIPPED "$CI_OUT/dashboard.txt" || status=1
    [ "$status" -ne 0 ] || return 0
    # The reasons first: of a failed check CI repeats the next lines below everything else.
    sed -n '/failing tests:$/,$p' "$CI_OUT/dashboard.txt" | grep -vE '^ *at .*node:(internal/|async_hooks)|^ *$' || true
    echo "all of it:"
    cat "$CI_OUT/dashboard.txt"
    return "$status"
}

check "what is vendored for the page is npm's own, byte for byte" node tests/dashboard/check_vendored.mjs
check "the page does what it says, in both themes, by keyboard, and on a narrow screen" page
grep -E '^figure:' "$CI_OUT/dashboard.txt" || true
echo "the stage took $((SECONDS - began)) s"
checked
