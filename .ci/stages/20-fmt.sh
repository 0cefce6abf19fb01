#!/usr/bin/env bash
# the sources are formatted, the scripts parse and are clean
. .ci/lib.sh

cargo fmt --check
cargo fmt --check --manifest-path fuzz/libfuzzer/Cargo.toml
need shellcheck
mapfile -t scripts < <(git ls-files .ci/run .ci/fetch fuzz/run packaging/build packaging/tree 'packaging/debian/p*' '*.sh')
for script in "${scripts[@]}"; do
    bash -n "$script"
done
shellcheck --external-sources "${scripts[@]}"
echo "${#scripts[@]} scripts are clean"
