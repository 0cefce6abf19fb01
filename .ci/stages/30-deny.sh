#!/usr/bin/env bash
# licences, banned crates, sources and reasons of the dependencies, and the bill of materials
. .ci/lib.sh

PATH=$PATH:$CI_CACHE/tools/bin
# Unoptimised it builds in a third of the time, and checks in a few seconds.
cargo deny --version 2>/dev/null || cargo install --locked --quiet --debug --root "$CI_CACHE/tools" cargo-deny
# Everything in the lock files, other platforms' crates too, so that the check itself can stay offline.
for manifest in Cargo.toml fuzz/libfuzzer/Cargo.toml; do
    cargo fetch --locked --quiet --manifest-path "$manifest"
    cargo deny --manifest-path "$manifest" --config deny.toml --offline --log-level error check --hide-inclusion-graph \
        licenses bans sources
done

# The database of advisories is another repository. Where it was never fetched and cannot be fetched now, that is printed and fails
# nothing.
advisories=${ROOFLINED_ADVISORY_DB:-$CI_CACHE/advisory-dbs}
sed "s|^db-path = .*|db-path = \"$advisories\"|" deny.toml >"$CI_CACHE/deny.toml"
timeout 120 cargo deny --config "$CI_CACHE/deny.toml" --log-level off fetch db 2>/dev/null || true
if find "$advisories" -mindepth 2 -maxdepth 2 -name crates 2>/dev/null | grep -q .; then
    for manifest in Cargo.toml fuzz/libfuzzer/Cargo.toml; do
        cargo deny --manifest-path "$manifest" --config "$CI_CACHE/deny.toml" --offline --log-level error check \
            --hide-inclusion-graph advisories
    done
else
    echo "skipped: advisories: their database cannot be fetched from here, and none is in $advisories"
fi

need python3
.ci/dependencies --check
mkdir -p target
.ci/dependencies --bom >target/rooflined.cdx.json
printf 'target/rooflined.cdx.json: %d bytes\n' "$(stat -c %s target/rooflined.cdx.json)"
