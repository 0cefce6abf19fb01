#!/usr/bin/env bash
# promtool has nothing against the metrics of any captured board, nor against what rooflinectl -o prom prints
. .ci/lib.sh

# Of the package prometheus only this program is wanted, and not the service that installing it starts.
promtool=$CI_CACHE/promtool-$CODENAME/usr/bin/promtool
if [ ! -x "$promtool" ]; then
    fetched=$(mktemp -d)
    cd "$fetched"
    # The lists may be older than the archive.
    apt-get -q download prometheus || { apt-get -q update && apt-get -q download prometheus; }
    dpkg -x prometheus_*.deb unpacked
    mkdir -p "$(dirname "$promtool")"
    mv unpacked/usr/bin/promtool "$promtool"
    cd - >/dev/null
    rm -rf "$fetched"
fi
# One choice of packages with the other stages, or everything would be compiled again.
PROMTOOL=$promtool cargo test --locked --workspace --test boards metrics
PROMTOOL=$promtool cargo test --locked --workspace --test processes ctl::forms
