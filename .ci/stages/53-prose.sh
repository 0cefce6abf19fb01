#!/usr/bin/env bash
# the English of documents, help texts and the configuration: phrases, long sentences, reading ease, spelling
. .ci/lib.sh

need hunspell hunspell-en-gb
[ -x target/release/rooflinectl ] || release
venv prose tests/prose/requirements.txt
check "documents, help and configuration are plain English" "$VENV/bin/python" tests/prose/check.py
checked
