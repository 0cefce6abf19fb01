#!/usr/bin/env bash
# the documentation builds and every link in it leads somewhere
. .ci/lib.sh

RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps
# The same for what only the crate's own developers read.
RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" \
    cargo doc --locked --no-deps --document-private-items --target-dir target/private-doc
