#!/usr/bin/env bash
# the unit, installed in a booted system
. .ci/lib.sh

need systemd-container mmdebstrap dbus jq curl util-linux procps
python3 -c 'import ensurepip' 2>/dev/null || need python3 python3-venv
[ -x target/release/rooflined ] || release

tree=$CI_OUT/tree
tree "$tree" "$CODENAME" "$BOOTED"

# As the tarball does it.
packaging/tree target/release "$CI_OUT/unpacked"
cp packaging/install.sh "$CI_OUT/unpacked/"
"$CI_OUT/unpacked/install.sh" --root "$tree"
# An emulator beside systems that mostly wait.
tests/systemd/groups.sh target/release >"$CI_OUT/groups.txt" 2>&1 &
groups=$!
tests/systemd/engine.sh "$tree"
tests/systemd/offline.sh "$tree"
tests/systemd/booted.sh "$tree"
tests/systemd/devices.sh "$tree"
tests/systemd/readonly.sh "$tree"
# Last: they leave a board in the tree, and another bus.
tests/systemd/control.sh "$tree"
tests/systemd/broker.sh "$tree"

status=0
wait "$groups" || status=$?
cat "$CI_OUT/groups.txt"
[ "$status" -eq 0 ]
