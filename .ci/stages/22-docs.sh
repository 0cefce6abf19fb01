#!/usr/bin/env bash
# the documentation builds and every link in it leads somewhere
. .ci/lib.sh

# First what only the crate's own developers read, then what is published.
RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --locked --workspace --no-deps --document-private-items
RUSTDOCFLAGS="-D warnings" cargo doc --locked --workspace --no-deps
