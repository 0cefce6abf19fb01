#!/usr/bin/env bash
# causes of slowness named on simulated boards, with faults that their own physics injects
. .ci/lib.sh

need python3
[ -x target/release/rooflined ] || release
python3 -B tests/explain/boards.py target/release
