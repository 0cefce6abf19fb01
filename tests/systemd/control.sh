#!/usr/bin/env bash
# Switches a board's power modes through the units, and looks at who could do what on the way: control.sh ROOT, as
# packaging/install.sh left it.
#
# The board of board.sh, whose nvpmodel, asked to, tries every way out of its unit (escape.py).
cd "$(dirname "$0")/../.."
. .ci/lib.sh
root=$(realpath "$1")
name=io.github.rooflined.Rooflined1
query=/run/rooflined/query.sock control=/run/rooflined-control/control.sock
helper=rooflined-actuate.service
. tests/systemd/machine.sh

. tests/systemd/board.sh
put_file 644 usr/local/lib/escape.py <tests/systemd/escape.py

# shellcheck disable=SC2119  # it takes options of systemd-nspawn, of which there are none here
boot

refused() { if "$@"; then echo "not refused: $*" && return 1; fi; }
as() {
    local user=$1
    shift
    inside setpriv --reuid="$user" --regid="$user" --init-groups "$@"
}
mode_of() { inside curl --silent --max-time 10 --unix-socket "$query" http://localhost/v1/state | jq -r .power_mode.value.name; }
in_mode() { [ "$(mode_of)" = "$1" ]; }
ctl() { inside rooflinectl --socket "$control" "$@"; }
sets() { ctl mode set "$1" >/dev/null && eventually 10 in_mode "$1"; }
instance() { inside cat /proc/sys/kernel/random/boot_id /proc/1/stat | cut -d' ' -f22 | sha256sum; }

# ---- the directory of the control socket

control_is_roots() {
    is "$(inside stat -c '%a %U:%G' "$control" "$(dirname "$control")" | tr '\n' ' ')" '660 root:rooflined 755 root:root '
}
# Also where nothing made the directories beforehand: not the service, which systemd would hand over what lies in them.
control_is_roots_without_tmpfiles() {
    inside systemctl stop rooflined.service rooflined.socket rooflined-control.socket
    inside rm -rf /run/rooflined /run/rooflined-control
    inside systemctl start rooflined.socket rooflined-control.socket rooflined.service
    eventually 10 active
    control_is_roots
    control_works
}
control_works() { inside curl --silent --fail --max-time 10 --unix-socket "$control" http://localhost/v1/state >/dev/null; }
calibrate_over_it() {
    inside curl --silent --max-time 10 --unix-socket "$control" --data '{"plan":"none"}' http://localhost/v1/calibrate
}
a_directory_of_the_daemon_is_refused() {
    inside chown rooflined /run/rooflined-control
    inside systemctl restart rooflined.service
    calibrate_over_it | jq --exit-status '.error.code == "control_unavailable"' >/dev/null
    calibrate_over_it | grep -F '/run/rooflined-control belongs to user'
    control_works
    { inside rooflinectl doctor || true; } | grep -F 'rooflined-control belongs to user'
    inside systemd-tmpfiles --create rooflined.conf
    inside systemctl restart rooflined.service
    control_is_roots
    calibrate_over_it | jq --exit-status '.error.code != "control_unavailable"' >/dev/null
}

# ---- the helper

switches_modes() {
    sets 25W
    is "$(inside cat "/srv/board$gpu/max_freq")" 918000000
    sets 15W
    is "$(inside cat "/srv/board$gpu/max_freq" /var/lib/nvpmodel/status | tr '\n' ' ')" '612000000 pmode:0000 '
}
helper_is_confined() {
    local pid
    pid=$(show MainPID $helper)
    [ "$pid" -gt 0 ]
    inside cat "/proc/$pid/status" >"$scratch/status"
    is "$(sed -nE 's/^Cap(Eff|Bnd|Prm):\s*//p' "$scratch/status" | sort -u)" 0000000000200000
    is "$(sed -nE 's/^Seccomp:\s*//p' "$scratch/status")" 2
    is "$(sed -nE 's/^NoNewPrivs:\s*//p' "$scratch/status")" 1
    # Neither buses nor the service manager: nothing but a directory of systemd's for mounts.
    is "$(inside nsenter --target "$pid" --mount find /run -mindepth 1 ! -type d)" ''
}
# What nvpmodel does besides while it switches; all it tried is counted, so that a test that tries nothing fails.
escapes() {
    inside sh -c "echo $* >/etc/escape; rm -f /var/lib/nvpmodel/escaped"
    sets 25W
    inside rm /etc/escape
    inside cat /var/lib/nvpmodel/escaped
    sets 15W
}
nothing_escapes() {
    local before
    before=$(instance)
    escapes '' >"$scratch/escaped"
    cat "$scratch/escaped"
    refused grep '^through' "$scratch/escaped"
    [ "$(sed -n 's/^tried //p' "$scratch/escaped")" -ge 80 ]
    refused inside test -e /etc/ran
    sleep 1
    is "$(instance)" "$before"
}
# The same ways lead out of a unit that closes none, so that it is the unit and the program that close them.
all_escapes_lead_out_elsewhere() {
    inside sh -c 'cat /proc/net/unix >/etc/sockets'
    inside systemd-run --quiet --wait --pipe python3 /usr/local/lib/escape.py bus sockets files init >"$scratch/open"
    for way in systemd-run busctl 'signal 0 to init' F_SETSIG pidfd 'kill -1' tgkill sigqueue 'write /etc/through' mount \
        'socket /run/dbus/system_bus_socket' 'socket /run/systemd/private'; do
        grep -qxF "through: $way" "$scratch/open" || { echo "$way leads nowhere by itself" && return 1; }
    done
    inside rm -f /etc/through /etc/through-proc /etc/ran
}

# ---- who may: polkit, as it is

polkit_rules() {
    inside tee /etc/polkit-1/rules.d/10-test.rules >/dev/null <<'JS'
polkit.addRule(function(action, subject) {
    if (action.id != "io.github.rooflined.set-mode") return polkit.Result.NOT_HANDLED;
    if (subject.user == "ann") return polkit.Result.YES;
    if (subject.user == "ben") return polkit.Result.NO;
    if (subject.user == "cat") return polkit.Result.AUTH_ADMIN_KEEP;
});
JS
    inside systemctl try-restart polkit.service
}
asks_polkit() {
    local said
    for user in ann ben cat; do inside useradd --create-home "$user"; done
    echo 'root:open sesame' | inside chpasswd
    polkit_rules
    # By default: no session, no.
    said=$(nobody busctl --system --timeout=20 call "$name" "/${name//.//}" "$name.Power" SetMode 'sa{sv}' 7W 0 2>&1 || true)
    grep -F 'ask as root, or join the group' <<<"$said"
    as ann "${set_7w[@]}" | grep -F applied
    eventually 10 in_mode 7W
    sets 15W
    said=$(as ben "${set_7w[@]}" 2>&1 || true)
    grep -F 'ask as root, or join the group' <<<"$said"
    in_mode 15W
}
set_7w=(busctl --system --timeout=100 call "$name" "/${name//.//}" "$name.Power" SetMode 'sa{sv}' 7W 0)
set_7w_quietly=("${set_7w[@]:0:3}" --allow-interactive-authorization=no "${set_7w[@]:3}")
# auth_admin_keep: without the caller's leave nobody is asked and the answer says so; with it, and an agent, a password does.
a_password_is_asked_for_where_the_call_allows_it() {
    local said
    said=$(as cat "${set_7w_quietly[@]}" 2>&1 || true)
    grep -F 'allow interactive authorization' <<<"$said"
    # Allowed, and nobody there to answer.
    said=$(as cat "${set_7w[@]}" 2>&1 || true)
    grep -F 'NotAuthorized' <<<"$said" || grep -F 'not_authorized' <<<"$said"
    in_mode 15W
    inside tee /usr/local/lib/answer.py >/dev/null <<'PY'
import os, pty, sys, termios, time

# The agent speaks for this process, which becomes the caller; its password comes through a terminal. It closes `ready` once
# polkit knows it.
registered, ready = os.pipe()
os.set_inheritable(ready, True)
agent, terminal = pty.fork()
if agent == 0:
    os.execvp("pkttyagent", ["pkttyagent", "--process", str(os.getppid()), "--notify-fd", str(ready)])
os.close(ready)
os.read(registered, 1)
if os.fork() == 0:
    # Outlives the caller, whose output is waited for.
    null = os.open("/dev/null", os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    asked = b""
    while b"assword: " not in asked:
        asked += os.read(terminal, 4096)
    # Whatever is typed before the agent has turned the echo off, it throws away then.
    while termios.tcgetattr(terminal)[3] & termios.ECHO:
        time.sleep(0.02)
    os.write(terminal, b"open sesame\n")
    while True:
        try:
            os.read(terminal, 4096)
        except OSError:
            os._exit(0)
os.execvp(sys.argv[1], sys.argv[1:])
PY
    as cat timeout 120 python3 /usr/local/lib/answer.py "${set_7w[@]}" | grep -F applied
    eventually 10 in_mode 7W
    sets 15W
}

# ---- what is found afterwards

found_now() { inside journalctl --no-pager --quiet --output=cat --unit=rooflined.service "$@" | grep .; }
# journald takes a record after who wrote it has gone on.
found() { eventually 10 found_now "$@" || { echo "not found: $*" && return 1; }; }
every_event_is_found_by_its_fields() {
    local ann
    ann=$(inside id -u ann)
    ctl mode set 25W --confirm 60s >/dev/null
    inside curl --silent --fail --max-time 10 --unix-socket "$control" --data '{}' http://localhost/v1/mode/revert >/dev/null
    ctl hold --mode 7W -- true
    as ann curl --silent --max-time 10 --unix-socket "$query" --data '{"mode":"25W"}' http://localhost/v1/mode >/dev/null
    inside curl --silent --max-time 10 --unix-socket "$control" --request DELETE 'http://localhost/v1/observations?scope=all' >/dev/null
    found EVENT=switch FROM=15W TO=25W CAUSE=user UID=0 OUTCOME=applied
    found EVENT=switch TO=7W "UID=$ann"
    found EVENT=revert FROM=25W TO=15W CAUSE=revert UID=0
    found EVENT=switch CAUSE=hold TO=7W UID=0
    found EVENT=hold UID=0 TO=7W
    found EVENT=release UID=0 CAUSE=disconnected
    found EVENT=refusal "UID=$(inside id -u ben)" CODE=not_authorized
    found EVENT=refusal "UID=$ann" CODE=wrong_socket 'ROUTE=POST /v1/mode'
    # All of them carry the serial of what clients saw.
    inside journalctl --quiet --unit=rooflined.service --output=json EVENT=switch + EVENT=revert + EVENT=hold + EVENT=release + EVENT=refusal |
        jq --exit-status --slurp 'length > 5 and all(.[]; .SERIAL | test("^[0-9]+$"))' >/dev/null
}

eventually 20 active || fail "the daemon did not start"
check "control.sock and its directory are root's" control_is_roots
check "they are so without tmpfiles.d too" control_is_roots_without_tmpfiles
check "no command is taken over a socket in a directory of the daemon's, and it says so" a_directory_of_the_daemon_is_refused
check "root switches modes through both units" switches_modes
check "the helper is root with one capability, a system call filter and an empty /run" helper_is_confined
check "elsewhere a program gets out by systemd-run, buses, signals and files" all_escapes_lead_out_elsewhere
check "nvpmodel gets out by none of them, and switches" nothing_escapes
check "polkit is asked about others, and its yes and no are kept" asks_polkit
check "polkit asks for a password only where the call allows it" a_password_is_asked_for_where_the_call_allows_it
check "switches, reverts, holds, their ends and refusals are found by their fields" every_event_is_found_by_its_fields
checked
