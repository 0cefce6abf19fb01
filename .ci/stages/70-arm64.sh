#!/usr/bin/env bash
# what depends on the architecture, for aarch64 under emulation, and SIMD dispatch on several CPU models
. .ci/lib.sh

if ! dpkg --print-foreign-architectures | grep -qx arm64; then
    [ "$(id -u)" -eq 0 ] || fail "arm64 is no foreign architecture here; run this as root"
    dpkg --add-architecture arm64
    rm -f "$CI_OUT/apt-updated"
fi
# Debian's own compiler: the only one with a standard library for arm64 in the archive.
need rustc-web cargo-web libstd-rust-web-dev:arm64 libc6-dev:arm64 gcc-aarch64-linux-gnu libc6-dev-arm64-cross \
    qemu-user-static binfmt-support dbus

# The tests start the daemon, so the kernel must know how to run arm64 programs.
[ -e /proc/sys/fs/binfmt_misc/status ] || mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
[ -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ] || update-binfmts --enable qemu-aarch64

target=aarch64-unknown-linux-gnu
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER=qemu-aarch64-static
# No lines in backtraces, for less to compile and link.
export CARGO_PROFILE_DEV_DEBUG=0
export RUSTC=/usr/bin/rustc RUSTDOC=/usr/bin/rustdoc CARGO_TARGET_DIR=target/arm64
rustc=$($RUSTC --version)
echo "$rustc, $(qemu-aarch64-static --version | head -1)"

# What is tested here and what is not: docs/decisions/0017.
failed=0
# One round on a model of a CPU: it fails if a test does, or if no test ran.
round() {
    local cpu=$1 ran
    shift
    echo "-- $* on $cpu"
    QEMU_CPU=$cpu cargo test --locked --no-fail-fast --target "$target" "$@" | tee "$CI_OUT/round.txt" || failed=1
    ran=$(sed -n 's/^test result: .* \([0-9]*\) passed.*/\1/p' "$CI_OUT/round.txt" | sort -n | head -1)
    [ "${ran:-0}" -gt 0 ] || { echo "a program of this round ran no test" && failed=1; }
}
# Not those of the mock drivers, of the laboratory, and of the configuration, which has none.
crates=(roofline predict decide governor wire answer hw probe simulate actuator daemon ctl)
round max --lib "${crates[@]/#/--package=rooflined-}"
round max --test laws -- quantise::
for module in store daemon::lifecycle daemon::probe daemon::state; do
    round max --test processes -- "$module::"
done
# One more for each set of instructions that the kernels are dispatched over: NEON alone; fp16 and dotprod; all of it,
# i8mm and bf16 included, has just run.
for cpu in cortex-a57 cortex-a76; do
    round "$cpu" --lib --package rooflined-probe
done
exit "$failed"
