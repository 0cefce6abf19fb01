#!/usr/bin/env bash
# Boots a system with a read-only root and an empty /var: readonly.sh ROOT, as packaging/install.sh left it.
cd "$(dirname "$0")/../.."
. .ci/lib.sh
root=$(realpath "$1")
query=/run/rooflined/query.sock control=/run/rooflined-control/control.sock
. tests/systemd/machine.sh

boot --volatile=state

is_read_only() { if inside touch /etc/x /usr/x 2>/dev/null; then return 1; fi; }
state() { inside curl --silent --fail --max-time 10 --unix-socket "$query" http://localhost/v1/state; }
starts() {
    eventually 20 active || { inside systemctl status --no-pager --lines=30 rooflined.service && return 1; }
    is "$(show NRestarts)" 0
    is "$(state | jq --compact-output .degraded)" '[]'
}
calibrates() {
    for _ in 1 2 3 4 5 6; do
        inside rooflinectl --socket "$control" calibrate --quick --force --wait && return
        sleep 3
    done
    return 1
}
keeps_it() {
    inside test -s /var/lib/rooflined/calibration.json
    inside systemctl restart rooflined.service
    inside rooflinectl predict gemv 4096 4096 --format int8
}

check "the root is read-only" is_read_only
check "the daemon starts, and nothing is degraded" starts
check "it calibrates" calibrates
check "it keeps the calibration in /var" keeps_it
checked
