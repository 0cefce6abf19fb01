#!/usr/bin/env bash
# the unit, installed in a booted system
. .ci/lib.sh

need systemd-container mmdebstrap dbus jq curl util-linux procps
python3 -c 'import ensurepip' 2>/dev/null || need python3 python3-venv
[ -x target/release/rooflined ] || cargo build --locked --release

packages=systemd,systemd-sysv,dbus,polkitd,libpam-systemd,curl,jq,procps,python3,libgomp1
base=$CI_CACHE/base-$CODENAME-$(echo "$packages" | sha256sum | cut -c 1-12).tar
if ! tar -tf "$base" >/dev/null 2>&1; then
    mkdir -p "$CI_CACHE"
    mmdebstrap --quiet --variant=minbase --include="$packages" --format=tar "$CODENAME" "$base.new" "$(mirror)"
    mv "$base.new" "$base"
fi
tree=$CI_OUT/tree
mkdir "$tree"
tar -xf "$base" -C "$tree"

tests/systemd/install.sh "$tree" target/release
tests/systemd/engine.sh "$tree"
tests/systemd/offline.sh "$tree"
tests/systemd/booted.sh "$tree"
tests/systemd/devices.sh "$tree"
# Last: it leaves a board in the tree.
tests/systemd/control.sh "$tree"
