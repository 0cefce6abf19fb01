#!/usr/bin/env bash
# Installs the program below a directory, as a package would: install.sh ROOT DIRECTORY_WITH_THE_BINARIES
set -euo pipefail
[ $# -eq 2 ] || { echo "usage: $0 ROOT DIRECTORY_WITH_THE_BINARIES" >&2 && exit 2; }
root=$(realpath "$1") binaries=$(realpath "$2")
cd "$(dirname "$0")/../.."

put() { install -D -m "$1" "$2" "$root/$3"; }
put 755 "$binaries/rooflined" usr/bin/rooflined
put 755 "$binaries/rooflinectl" usr/bin/rooflinectl
for unit in systemd/*.service systemd/*.socket systemd/*.path; do
    put 644 "$unit" "usr/lib/systemd/system/$(basename "$unit")"
done
put 644 systemd/sysusers.d/rooflined.conf usr/lib/sysusers.d/rooflined.conf
put 644 systemd/tmpfiles.d/rooflined.conf usr/lib/tmpfiles.d/rooflined.conf
name=io.github.rooflined.Rooflined1
put 644 "config/dbus/$name.conf" "usr/share/dbus-1/system.d/$name.conf"
put 644 "config/dbus/$name.service" "usr/share/dbus-1/system-services/$name.service"
put 644 config/rooflined.toml etc/rooflined/rooflined.toml
put 644 config/polkit/io.github.rooflined.policy usr/share/polkit-1/actions/io.github.rooflined.policy
