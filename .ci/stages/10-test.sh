#!/usr/bin/env bash
# every test of the workspace, those of the README's test command among them
. .ci/lib.sh

# The bus tests start their own dbus-daemon; rustc links with cc; completions are tried in the shells they are for.
need dbus gcc libc6-dev strace zsh fish bash-completion

# What judges our metrics. Of the package prometheus only this program is wanted, and not the service that installing it starts.
export PROMTOOL=$CI_CACHE/promtool-$CODENAME/usr/bin/promtool
if [ ! -x "$PROMTOOL" ]; then
    fetched=$(mktemp -d)
    cd "$fetched"
    # The lists may be older than the archive.
    apt-get -q download prometheus || { apt-get -q update && apt-get -q download prometheus; }
    dpkg -x prometheus_*.deb unpacked
    mkdir -p "$(dirname "$PROMTOOL")"
    mv unpacked/usr/bin/promtool "$PROMTOOL"
    cd - >/dev/null
    rm -rf "$fetched"
fi
# How many run at a time: .cargo/config.toml.
cargo test --workspace --locked --no-fail-fast
