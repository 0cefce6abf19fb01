#!/usr/bin/env bash
# every shipped TOML is accepted, and a misspelt key is not
. .ci/lib.sh

[ -x target/release/rooflined ] || release
rooflined=target/release/rooflined

refuses() {
    if "$rooflined" --check-config --config "$1" >"$CI_OUT/refused.txt" 2>&1; then
        echo "accepted:" && cat "$1" && return 1
    fi
    grep -q -- "$2" "$CI_OUT/refused.txt" || { cat "$CI_OUT/refused.txt" && return 1; }
}

check "config/rooflined.toml is accepted" "$rooflined" --check-config --config config/rooflined.toml
# The file explains every key by showing its default: uncommented, it must still be accepted.
sed -E 's/^# ?([a-z_]+ *=)/\1/' config/rooflined.toml >"$CI_OUT/uncommented.toml"
check "config/rooflined.toml with every key set is accepted" "$rooflined" --check-config --config "$CI_OUT/uncommented.toml"
printf '[sampling]\nintervall_s = 1\n' >"$CI_OUT/misspelt.toml"
check "an unknown key is refused by name" refuses "$CI_OUT/misspelt.toml" intervall_s
printf '[sampling\n' >"$CI_OUT/broken.toml"
check "broken TOML is refused with the file's name" refuses "$CI_OUT/broken.toml" broken.toml
checked
