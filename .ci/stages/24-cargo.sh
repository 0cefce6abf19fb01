#!/usr/bin/env bash
# the crates as cargo packs and installs them: each is complete in itself, and the command line answers
. .ci/lib.sh

# In the profile of tests, for what is asked is whether they are complete.
work=$(mktemp -d /tmp/rl-cargo.XXXXXX)
trap 'rm -rf "$work"' EXIT
target=$(realpath --canonicalize-missing "${CARGO_TARGET_DIR:-target}")
shipped=(core models predict governor api client advice config hw probe actuator simulate)

pack_crates() {
    local left_out=(--exclude rooflined-kernel-tests --exclude rooflined-benches --exclude rooflined-fuzz --exclude rooflined-lab)
    left_out+=(--exclude fake-cuda --exclude fake-nvml --exclude ptx)
    cargo package --quiet --workspace "${left_out[@]}" --no-verify --allow-dirty --target-dir "$work"
    mkdir "$work/crates"
    # Dated now: packed files are all from one day of 2006, and what an earlier run compiled would be taken for them.
    for crate in "$work"/package/*.crate; do tar --extract --touch --file "$crate" --directory "$work/crates"; done
}
# From what is packed alone, and the other crates from there too, as they would come from a registry. Both programs are members of one
# workspace there, with one lock file, which is freed of what only tests need.
from_packed() {
    local name patches=() version
    version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
    for name in "${shipped[@]/#/rooflined-}"; do patches+=(--config "patch.crates-io.$name.path='$work/crates/$name-$version'"); done
    printf '[workspace]\nresolver = "3"\nmembers = ["rooflined-%s", "rooflinectl-%s"]\n' "$version" "$version" >"$work/crates/Cargo.toml"
    cp Cargo.lock "$work/crates/"
    cd "$work/crates"
    cargo metadata --offline --format-version 1 "${patches[@]}" >/dev/null
    cargo "$@" --quiet --locked --target-dir "$target" "${patches[@]}"
}
installs() { from_packed install --debug --path "$work"/crates/rooflinectl-[0-9]* --root "$work/installed"; }
# What the daemon does is tested elsewhere; here it is asked whether anything is missing.
compiles() { from_packed check --package rooflined; }
answers() { env -i "$work/installed/bin/rooflinectl" recommend Qwen/Qwen3-4B --hardware orin-nano | grep '^Use '; }

check "cargo packs every crate" pack_crates
check "cargo installs the program of the command line from what is packed" installs
check "it is asked and answers" answers
check "the daemon compiles from what is packed" compiles
checked
