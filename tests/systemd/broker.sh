#!/usr/bin/env bash
# The daemon on dbus-broker, which delivers what dbus-daemon drops: broker.sh ROOT, as packaging/install.sh left it.
#
# The package takes the place of dbus-daemon, as on systems that come with it. The board is that of board.sh.
cd "$(dirname "$0")/../.."
. .ci/lib.sh
root=$(realpath "$1")
name=io.github.rooflined.Rooflined1
query=/run/rooflined/query.sock
. tests/systemd/machine.sh

. tests/systemd/board.sh
put_file 755 usr/local/lib/forge.py <tests/systemd/forge.py
put_file 644 etc/polkit-1/rules.d/05-broker.rules <<'JS'
polkit.addRule(function(action, subject) {
    if (action.id != "io.github.rooflined.set-mode") return polkit.Result.NOT_HANDLED;
    if (subject.user == "eve") return polkit.Result.AUTH_ADMIN;
    if (subject.user == "ada") return polkit.Result.YES;
});
JS
broker
cp "$BROKER" "$root/root/broker.deb"
chroot "$root" dpkg --install /root/broker.deb >"$scratch/installed" 2>&1 || { cat "$scratch/installed"; exit 1; }
for user in ada eve; do chroot "$root" useradd --create-home "$user"; done

# shellcheck disable=SC2119  # it takes options of systemd-nspawn, of which there are none here
boot

as() {
    local user=$1
    shift
    inside setpriv --reuid="$user" --regid="$user" --init-groups "$@"
}
in_mode() { is "$(inside curl --silent --max-time 10 --unix-socket "$query" http://localhost/v1/state | jq -r .power_mode.value.name)" "$1"; }
runs_dbus_broker() {
    is "$(inside cat "/proc/$(show MainPID dbus.service)/comm")" dbus-broker-lau
    inside busctl --system --timeout=10 get-property "$name" "/${name//.//}" "$name" Version
}
forges() {
    as eve timeout 60 python3 /usr/local/lib/forge.py 10 >"$scratch/forged" 2>&1 ||
        { cat "$scratch/forged" && return 1; }
    grep -xF 'this bus delivers signals with the serial of a reply' "$scratch/forged"
    in_mode 15W
}
asks_polkit() {
    as ada busctl --system --timeout=20 call "$name" "/${name//.//}" "$name.Power" SetMode 'sa{sv}' 7W 0 | grep -F applied
    eventually 10 in_mode 7W
}

eventually 20 active || fail "the daemon did not start"
check "the system bus is dbus-broker, and the daemon answers on it" eventually 20 runs_dbus_broker
check "answers forged in polkit's name are refused there" forges
cat "$scratch/forged"
check "polkit's own yes counts there" asks_polkit
checked
