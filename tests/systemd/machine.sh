# shellcheck shell=bash
# Sourced by what boots the system at $root in a container, with an `inside` to run commands there; ends it at exit.
root=${root:?what sources this says where the system lies}
log=$(mktemp) scratch=$(mktemp -d)

nspawn='' leader=''
inside() {
    nsenter --target "$leader" --mount --uts --ipc --net --pid --root --wd -- \
        env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 "$@"
}
nobody() { inside setpriv --reuid=nobody --regid=nogroup --clear-groups "$@"; }

eventually() {
    local until=$((SECONDS + $1))
    shift
    while ! "$@"; do
        [ "$SECONDS" -lt "$until" ] || return 1
        sleep 0.1
    done
}
# shellcheck disable=SC2317  # called through eventually
boots() {
    leader=$(pgrep --parent "$nspawn" | head -1) && [ -n "$leader" ] || return 1
    system=$(inside systemctl is-system-running 2>/dev/null) || true
    [ "$system" = running ] || [ "$system" = degraded ]
}
# shellcheck disable=SC2317
gone() { ! kill -0 "$nspawn" 2>/dev/null; }

finish() {
    local status=$?
    trap - EXIT
    if [ -n "$nspawn" ] && ! gone; then
        inside systemctl poweroff >/dev/null 2>&1 || true
        if ! eventually 15 gone; then
            kill -KILL "$leader" "$nspawn" 2>/dev/null || true
        fi
    fi
    wait 2>/dev/null || true
    if [ "$status" -ne 0 ]; then
        echo "-- the boot log's end" && tail -20 "$log"
    fi
    rm -rf "$log" "$scratch"
    exit "$status"
}
trap finish EXIT

# Boots it; further arguments are those of systemd-nspawn.
boot() {
    mkdir -p "$root/var/log/journal"
    setsid systemd-nspawn --directory="$root" --boot --register=no --keep-unit --machine="rooflined-ci-$$" --link-journal=no \
        --console=pipe "$@" >"$log" 2>&1 </dev/null &
    nspawn=$!
    eventually 60 boots || fail "the container did not boot"
}

show() { inside systemctl show --value --property="$1" "${2:-rooflined.service}"; }
active() { [ "$(show ActiveState)" = active ]; }
is() { [ "$1" = "$2" ] || { echo "found '$1', expected '$2'" && return 1; }; }
