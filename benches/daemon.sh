#!/usr/bin/env bash
# What the daemon costs when nobody asks: memory, CPU, start-up, size; and one CLI call.
#
#   benches/daemon.sh [DIRECTORY OF THE BINARIES, default target/release] [SECONDS OF IDLENESS, default 60]
#
# Start-up is timed from before the process exists to its "listening on" line, which it prints once the sockets
# listen, the machine has been read and the stored calibration is loaded; right after it comes READY=1.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${1:-target/release} idle_s=${2:-60} starts=15 calls=31

home=$(mktemp -d /tmp/rlbench.XXXXXX)
daemon='' bus=''
clean() {
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
    [ -z "$bus" ] || kill "$bus" 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$home"
}
trap clean EXIT
printf '[calibration]\nautomatic = false\n' >"$home/rooflined.toml"

# start BUS: the process number in $daemon, the milliseconds until it listens in $took.
start() {
    mkfifo "$home/out"
    local before=${EPOCHREALTIME/./}
    "$bin/rooflined" --config "$home/rooflined.toml" --socket "$home/run" --state-dir "$home/state" --bus "$1" \
        >"$home/out" 2>>"$home/log" </dev/null &
    daemon=$!
    read -r _ <"$home/out" || { cat "$home/log" >&2; exit 1; }
    took=$(((${EPOCHREALTIME/./} - before + 50) / 100))
    rm "$home/out"
}
stop() { kill "$daemon" && wait "$daemon"; daemon=''; }
# Tenths of a millisecond on standard input, one a line → median and range in milliseconds.
median() { sort -n | awk '{ v[NR] = $1 / 10 } END { printf "median %.1f ms, %.1f to %.1f, of %d\n", v[int((NR + 1) / 2)], v[1], v[NR], NR }'; }
# Nanoseconds on a CPU of all threads of the daemon.
cpu_ns() { awk '{ sum += $1 } END { printf "%d\n", sum }' /proc/"$daemon"/task/*/schedstat; }
memory() { awk '/^(VmRSS|RssAnon):/ { printf "%s %.1f MB  ", $1, $2 * 1024 / 1e6 }' "/proc/$daemon/status"; }

for name in rooflined rooflinectl; do
    printf '%-34s %d bytes\n' "size of $name" "$(stat -c %s "$bin/$name")"
done

start none
for attempt in 1 2 3 4 5; do
    "$bin/rooflinectl" --socket "$home/run/control.sock" calibrate --wait >/dev/null 2>"$home/calibrate" && break
    [ "$attempt" -lt 5 ] || { echo "no calibration: $(grep -m1 error "$home/calibrate")"; }
done
[ -e "$home/state/calibration.json" ] && printf '%-34s %d bytes\n' "stored calibration" "$(stat -c %s "$home/state/calibration.json")"
stop

for _ in $(seq "$starts"); do start none; echo "$took"; stop; done | { printf '%-34s ' 'start until it listens'; median; }

start none
for _ in $(seq "$calls"); do
    before=${EPOCHREALTIME/./}
    "$bin/rooflinectl" --socket "$home/run/query.sock" status >/dev/null || true
    echo $(((${EPOCHREALTIME/./} - before + 50) / 100))
done | { printf '%-34s ' 'rooflinectl status'; median; }
stop

idle() {
    start "$2"
    sleep 5
    local before after
    before=$(cpu_ns)
    sleep "$idle_s"
    after=$(cpu_ns)
    printf '%-34s %s\n' "idle, $1: memory" "$(memory)"
    printf '%-34s %s\n' "idle, $1: CPU over $idle_s s" \
        "$(awk -v ns=$((after - before)) -v s="$idle_s" 'BEGIN { printf "%.4f %% (%.2f ms)", ns / s / 1e7, ns / 1e6 }')"
    stop
}
idle 'no bus' none
if command -v dbus-daemon >/dev/null; then
    exec 7< <(exec dbus-daemon --session --nofork --print-address=1 --address="unix:path=$home/bus")
    bus=$!
    read -r address <&7
    idle 'private bus' "$address"
else
    echo 'skipped: no dbus-daemon for a private bus'
fi
