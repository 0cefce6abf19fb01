#!/usr/bin/env bash
# the Rust client as it would be published: packed, and built from the package with crates of crates.io alone
. .ci/lib.sh

began=$SECONDS
# What a fresh clone has is packed; what its build leaves behind is none of it.
CARGO_TARGET_DIR=$CI_OUT/rust-client
export CARGO_TARGET_DIR
crate=$CARGO_TARGET_DIR/package/rooflined-client

# With every feature, then with each alone, from the unpacked package.
packs() {
    CARGO_PROFILE_DEV_DEBUG=0 cargo package --quiet --locked --package rooflined-client --all-features
    local features
    for features in blocking tokio; do
        (cd "$crate"-*/ && CARGO_PROFILE_DEV_DEBUG=0 cargo check --quiet --no-default-features --features "$features")
    done
}
stands_alone() {
    local listed
    listed=$(tar -tf "$crate"-*.crate)
    for file in README.md LICENSE-MIT LICENSE-APACHE src/types.rs; do
        grep -q "/$file\$" <<<"$listed"
    done
    # The package's own manifest is the one that cargo wrote.
    ! tar -xOf "$crate"-*.crate --wildcards '*/Cargo.toml' | grep -nE '^path = "\.\.|rooflined-(wire|roofline)|workspace'
}
# Compiled by a newer one, the declared version would be a guess.
declares_its_compiler() {
    local declared compiler
    declared=$(tar -xOf "$crate"-*.crate --wildcards '*/Cargo.toml' | sed -n 's/^rust-version = "\(.*\)"/\1/p')
    compiler=$(rustc --version | cut -d ' ' -f 2)
    # Patches of one version take the same language.
    [[ $compiler == "$declared".* ]] || fail "it declares Rust $declared and was compiled with $compiler"
    grep -q "Rust $declared or later" clients/rust/README.md
}
check "the Rust client can be packed, and builds from its package" packs
check "its package has its licences and names no crate of this repository" stands_alone
check "the Rust that it declares is the one that compiled it" declares_its_compiler
echo "the stage took $((SECONDS - began)) s; $(stat -c '%n has %s bytes' "$crate"-*.crate | sed 's,.*/,,')"
checked
