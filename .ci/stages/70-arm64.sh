#!/usr/bin/env bash
# what depends on the architecture, for aarch64 under emulation, and SIMD dispatch on several CPU models
. .ci/lib.sh

arm64
need dbus python3

# The programs are compiled once; the stage `package` packs them. With zig from another place all would be compiled again.
export ROOFLINED_CI_CACHE=$CI_CACHE
arm64_programs
echo "programs compiled after $SECONDS s"

target=aarch64-unknown-linux-gnu
rustc=$(/usr/bin/rustc --version)
echo "$rustc, $(qemu-aarch64-static --version | head -1)"

# What is tested here and what is not: docs/decisions/0017.
crates=(rooflined-{core,probe,actuator})
# As the programs are compiled, whose dependencies these share.
RUSTC=/usr/bin/rustc packaging/build --cargo arm64 test --config .ci/arm64.toml --no-run --message-format=json-render-diagnostics \
    "${crates[@]/#/--package=}" --lib --test quantise >"$CI_OUT/arm64.json"
# The tests that start the programs are those of this machine; what they start is not.
cargo test --locked --workspace --no-run --message-format=json-render-diagnostics --test processes >"$CI_OUT/native.json"
echo "tests compiled after $SECONDS s"

# Directory and path of a test program: find_test FILE NAME KIND
find_test() {
    python3 - "$@" <<'PY'
import json, os, sys
for line in open(sys.argv[1]):
    one = json.loads(line)
    target = one.get("target", {})
    if one["reason"] == "compiler-artifact" and one["executable"] and (target["name"], target["kind"][0]) == tuple(sys.argv[2:]):
        print(os.path.dirname(one["manifest_path"]), one["executable"])
PY
}
# What ran is printed at its end, in one piece; fails if a test does, or if none ran.
report() {
    local title=$1 log status=0
    log=$(mktemp "$CI_OUT/round.XXXXXX")
    shift
    "$@" >"$log" 2>&1 || status=1
    grep -qE '^test result: ok. [1-9]' "$log" || { echo "no test ran, or one failed" >>"$log" && status=1; }
    { echo "-- $title" && cat "$log"; } | flock "$CI_OUT/print" cat
    return "$status"
}
# One test program on a model of a CPU.
emulate() {
    local cpu=$1 name=$2 kind=$3 directory program
    read -r directory program < <(find_test "$CI_OUT/arm64.json" "$name" "$kind")
    cd "$directory"
    CARGO_MANIFEST_DIR=$directory QEMU_CPU=$cpu report "$name on $cpu" qemu-aarch64-static "$program"
}
# The tests look for the programs two directories above themselves.
programs() {
    local directory program beside=$CI_OUT/arm64
    read -r directory program < <(find_test "$CI_OUT/native.json" processes test)
    mkdir -p "$beside/deps"
    cp "$program" "$beside/deps/processes"
    cp "target/$target/release/rooflined" "target/$target/release/rooflinectl" "$beside"
    cd "$directory"
    CARGO_MANIFEST_DIR=$directory report "the programs" "$beside/deps/processes" daemon::lifecycle:: daemon::probe:: daemon::state::
}
export -f find_test report emulate

rounds=(rooflined_probe.lib.cortex-a57 rooflined_probe.lib.cortex-a76 rooflined_probe.lib.max quantise.test.max)
for crate in core actuator; do rounds+=("rooflined_$crate.lib.max"); done
# The kernels are dispatched over sets of instructions: NEON alone; fp16 and dotprod; all of it, i8mm and bf16 included.
# An emulator is one thread, so as many run at once as there are processors.
failed=0
# shellcheck disable=SC2016  # the inner shell's own argument
printf '%s\n' "${rounds[@]}" | xargs -P "$(nproc)" -I{} bash -euo pipefail -c 'IFS=. read -r name kind cpu <<<"$1" && emulate "$cpu" "$name" "$kind"' _ {} ||
    failed=1
echo "emulated after $SECONDS s"
programs || failed=1
[ "$failed" -eq 0 ]
