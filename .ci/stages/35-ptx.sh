#!/usr/bin/env bash
# the shipped PTX is what its sources compile to, and assembles to the instructions that it claims
. .ci/lib.sh

# The compiler comes from PyPI (kernels/requirements.txt), once for a cache.
need python3 python3-venv g++
export ROOFLINED_CI_CACHE=$CI_CACHE

# Checking every file takes ten minutes of a processor, and nothing but these inputs decides the answer. kernels/checked names
# those that passed whole. While they are the same, each commit checks three files, chosen by its own hash.
inputs=$(find kernels docs/internals/kernels.md -type f ! -name README.md ! -path kernels/checked -print0 | sort -z |
    xargs -0 sha256sum | sha256sum | cut -d ' ' -f 1)
files=()
if [ "$(cat kernels/checked)" = "$inputs" ]; then
    commit=$(git rev-parse HEAD 2>/dev/null || echo none)
    mapfile -t files < <(cd kernels/ptx && for file in *.ptx; do echo "$(echo "$commit $file" | sha256sum) ${file%.ptx}"; done |
        sort | head -n 3 | cut -d ' ' -f 4)
    [ "${#files[@]}" -eq 3 ]
    echo "the inputs are those of kernels/checked; of the files, this commit checks ${files[*]}"
fi

check "kernels/ptx is what kernels/*.cu compile to" kernels/build --check "${files[@]}"
check "every file has its opcodes on every architecture, and docs/internals/kernels.md their table" kernels/build --sass "${files[@]}"
check "every file loads with the assemblers of older and newer drivers as docs/internals/kernels.md says" \
    kernels/build --assemblers "${files[@]}"
check "the descriptors of wgmma and tcgen05 are those that CUTLASS builds" kernels/build --descriptors
checked
if [ ${#files[@]} -eq 0 ]; then
    echo "all files passed: commit kernels/checked with this one line, and later commits check three of them"
    echo "$inputs"
fi
