#!/usr/bin/env bash
# every fuzz target compiles, and takes its seeds and kept inputs
. .ci/lib.sh

# libFuzzer is C++.
need g++
# The same for every run: what a search finds by chance is for whoever changed something, not for the next change.
# ROOFLINED_FUZZ_SECONDS=60 searches for a minute with each target.
ROOFLINED_FUZZ_SECONDS=${ROOFLINED_FUZZ_SECONDS:-0} fuzz/run
