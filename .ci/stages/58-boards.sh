#!/usr/bin/env bash
# what slows simulated boards down is named by explain, and healthy ones raise no alarm
. .ci/lib.sh

need python3
[ -x target/release/rooflined ] || release
python3 -B tests/explain/boards.py target/release
