#!/usr/bin/env bash
# the release build, as packages have it, and its size
. .ci/lib.sh

release
for binary in rooflined rooflinectl; do
    printf '%-12s %8d bytes\n' "$binary" "$(stat -c %s "target/release/$binary")"
done
