#!/usr/bin/env bash
# the sources are formatted, the scripts parse and are clean
. .ci/lib.sh

cargo fmt --check
need shellcheck
mapfile -t scripts < <(git ls-files .ci/run '*.sh')
for script in "${scripts[@]}"; do
    bash -n "$script"
done
shellcheck --external-sources "${scripts[@]}"
echo "${#scripts[@]} scripts are clean"
