#!/usr/bin/env bash
# what depends on the architecture, for aarch64 under emulation, and SIMD dispatch on several CPU models
. .ci/lib.sh

arm64
need dbus python3

target=aarch64-unknown-linux-gnu
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
# No lines in backtraces, for less to compile and link.
export CARGO_PROFILE_DEV_DEBUG=0
export RUSTC=/usr/bin/rustc RUSTDOC=/usr/bin/rustdoc CARGO_TARGET_DIR=target/arm64
rustc=$($RUSTC --version)
echo "$rustc, $(qemu-aarch64-static --version | head -1)"

# What is tested here and what is not: docs/decisions/0017.
# Unit tests, but not those of the mock drivers, of the laboratory, and of the configuration, which has none.
crates=(roofline predict decide governor wire answer hw probe simulate temporary actuator daemon ctl)
# All in one build: cargo would compile shared dependencies again for each choice of packages. What only the tests of GPU kernels
# compute with is linked here and not run.
cargo test --locked --no-run --message-format=json-render-diagnostics --target "$target" \
    --config profile.dev.package.ptx.opt-level=0 --config profile.dev.package.fake-cuda.opt-level=0 \
    --package rooflined "${crates[@]/#/--package=rooflined-}" --lib --test laws --test processes >"$CI_OUT/arm64.json"
echo "compiled after $SECONDS s"

failed=0
# One test program on a model of a CPU: it fails if a test does, or if no test ran.
run() {
    local cpu=$1 name=$2 kind=$3 found directory program ran
    shift 3
    found=$(python3 - "$CI_OUT/arm64.json" "$name" "$kind" <<'PY'
import json, os, sys
for line in open(sys.argv[1]):
    one = json.loads(line)
    target = one.get("target", {})
    if one["reason"] == "compiler-artifact" and one["executable"] and (target["name"], target["kind"][0]) == tuple(sys.argv[2:]):
        print(os.path.dirname(one["manifest_path"]), one["executable"])
PY
    )
    read -r directory program <<<"$found"
    echo "-- $name $* on $cpu"
    (cd "$directory" && CARGO_MANIFEST_DIR=$directory QEMU_CPU=$cpu qemu-aarch64-static "$program" "$@") | tee "$CI_OUT/round.txt" || failed=1
    ran=$(sed -n 's/^test result: .* \([0-9]*\) passed.*/\1/p' "$CI_OUT/round.txt")
    [ "${ran:-0}" -gt 0 ] || { echo "no test ran" && failed=1; }
}
for crate in "${crates[@]}"; do
    run max "$crate" lib
done
run max laws test quantise::
run max processes test store:: daemon::lifecycle:: daemon::probe:: daemon::state::
# One more for each set of instructions that the kernels are dispatched over: NEON alone; fp16 and dotprod; all of it,
# i8mm and bf16 included, has just run.
for cpu in cortex-a57 cortex-a76; do
    run "$cpu" probe lib
done
exit "$failed"
