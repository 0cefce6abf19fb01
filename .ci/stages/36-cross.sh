#!/usr/bin/env bash
# the programs and the tests that depend on the architecture compile for aarch64, by Debian's compiler
. .ci/lib.sh

arm64
need python3
cross "$CI_OUT/arm64.json"
