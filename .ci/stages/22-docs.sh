#!/usr/bin/env bash
# the documentation builds and every link in it leads somewhere
. .ci/lib.sh

# With what only the crate's own developers read; what is published is a part of it.
RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" cargo doc --locked --workspace --no-deps --document-private-items
