#!/usr/bin/env bash
# the shipped PTX is what its sources compile to, and assembles to the instructions that it claims
. .ci/lib.sh

# The compiler comes from PyPI (kernels/requirements.txt), once for a cache.
need python3 python3-venv g++
export ROOFLINED_CI_CACHE=$CI_CACHE

check "kernels/ptx is what kernels/*.cu compile to" kernels/build --check
check "every file has its opcodes on every architecture, and docs/kernels.md their table" kernels/build --sass
check "every file loads with the assemblers of older and newer drivers as docs/kernels.md says" kernels/build --assemblers
check "the descriptors of wgmma and tcgen05 are those that CUTLASS builds" kernels/build --descriptors
checked
