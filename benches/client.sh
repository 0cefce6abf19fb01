#!/usr/bin/env bash
# What one call of rooflinectl costs as a whole process, beside busctl and curl with the same question to the same daemon.
#
#   benches/client.sh [DIRECTORY OF THE BINARIES, default target/release] [CALLS of each, default 101]
#
# The programs take turns, so that the machine's drift hits all; figures are medians of the wall-clock time from before the
# process exists until it has been waited for. busctl and curl are left out, aloud, where there are none.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${1:-target/release} calls=${2:-101} target_ms=4

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
address=none
if command -v dbus-daemon >/dev/null; then
    exec 7< <(exec dbus-daemon --session --nofork --print-address=1 --address="unix:path=$home/bus")
    bus=$!
    read -r address <&7
fi
mkfifo "$home/out"
"$bin/rooflined" --config "$home/rooflined.toml" --socket "$home/run" --state-dir "$home/state" --bus "$address" \
    >"$home/out" 2>"$home/log" </dev/null &
daemon=$!
exec 8<"$home/out"
read -r _ <&8 || { cat "$home/log" >&2; exit 1; }

socket=$home/run/query.sock
ctl() { "$bin/rooflinectl" --socket "$socket" -o json "$@"; }
http() { curl --silent --fail --unix-socket "$socket" "http://rooflined$1" "${@:2}"; }
dbus() { busctl --address="$address" call io.github.rooflined.Rooflined1 /io/github/rooflined/Rooflined1 "$@"; }
body='{"engine":"none","workload":{"op":{"kind":"gemv","n":4096,"k":4096},"format":"int8"}}'
query() { dbus io.github.rooflined.Rooflined1 Query s "$1"; }
names=('rooflinectl status' 'rooflinectl predict' 'rooflinectl --version')
run_0() { ctl status; }
run_1() { ctl predict gemv 4096 4096 --format int8; }
run_2() { "$bin/rooflinectl" --version; }
if command -v curl >/dev/null; then
    names+=('curl /v1/state' 'curl /v1/predict')
    run_3() { http /v1/state; }
    run_4() { http /v1/predict -H 'content-type: application/json' -d "$body"; }
    if command -v busctl >/dev/null && [ "$address" != none ]; then
        names+=('busctl Query state' 'busctl Query predict')
        run_5() { query '{"path":"/v1/state"}'; }
        run_6() { query "{\"path\":\"/v1/predict\",\"body\":$body}"; }
        for _ in $(seq 50); do run_5 >/dev/null 2>&1 && break; sleep 0.1; done
    else
        echo 'skipped: no busctl, or no bus for it'
    fi
else
    echo 'skipped: no curl'
fi

for each in "${!names[@]}"; do "run_$each" >/dev/null || { echo "${names[$each]} fails" >&2; exit 1; }; done
for _ in $(seq "$calls"); do
    for each in "${!names[@]}"; do
        before=${EPOCHREALTIME/./}
        "run_$each" >/dev/null
        echo $((${EPOCHREALTIME/./} - before)) >>"$home/times.$each"
    done
done
median() { sort -n "$1" | awk '{ v[NR] = $1 / 1000 } END { printf "%.2f %.2f %.2f\n", v[int((NR + 1) / 2)], v[int((NR + 9) / 10)], v[int(NR * 0.9 + 0.5)] }'; }
for each in "${!names[@]}"; do
    read -r middle low high < <(median "$home/times.$each")
    verdict=''
    [ "$each" -gt 1 ] || verdict=$(awk -v m="$middle" -v t="$target_ms" 'BEGIN { printf "target %d ms, %s", t, m <= t ? "ok" : "MISSED" }')
    printf '%-24s median %5.2f ms, %5.2f to %5.2f for 8 of 10  %s\n' "${names[$each]}" "$middle" "$low" "$high" "$verdict"
done
