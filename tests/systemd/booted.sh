#!/usr/bin/env bash
# Boots a system in a container and watches the unit live: booted.sh ROOT, as packaging/install.sh left it.
cd "$(dirname "$0")/../.."
. .ci/lib.sh
root=$(realpath "$1")
name=io.github.rooflined.Rooflined1
query=/run/rooflined/query.sock control=/run/rooflined-control/control.sock
. tests/systemd/machine.sh

# shellcheck disable=SC2119  # it takes options of systemd-nspawn, of which there are none here
boot

# ---- what is asked of it

refused() { if "$@"; then echo "not refused: $*" && return 1; fi; }
get() { inside curl --silent --show-error --max-time 10 --unix-socket "$query" "http://localhost$1"; }
status_of() { inside curl --silent --output /dev/null --write-out '%{http_code}' --max-time 10 --unix-socket "$query" "http://localhost$1" || true; }
on_bus() { inside busctl --system --timeout=10 "$@"; }
record() { get /v1/calibration | jq --sort-keys '.record | del(.. | .age_s?)'; }
journal() { inside journalctl --no-pager --unit=rooflined.service "$@"; }
# How often the unit was started, by any user.
invocation() { show InvocationID; }
restarted_since() { [ "$(invocation)" != "$1" ] && active; }

starts_with_boot() {
    eventually 20 active || { inside systemctl status --no-pager --lines=30 rooflined.service && return 1; }
    is "$(show NRestarts)" 0
}
says_its_status() { [ -n "$(show StatusText)" ]; }
nothing_failed() { is "$(inside systemctl list-units --failed --plain --no-legend)" ''; }

is_confined() {
    local pid
    pid=$(show MainPID)
    is "$(inside stat -c %U "/proc/$pid")" rooflined
    inside cat "/proc/$pid/status" >"$scratch/status"
    is "$(sed -nE 's/^Cap(Eff|Bnd|Prm|Amb):\s*//p' "$scratch/status" | sort -u)" 0000000000000000
    is "$(sed -nE 's/^Seccomp:\s*//p' "$scratch/status")" 2
    is "$(sed -nE 's/^NoNewPrivs:\s*//p' "$scratch/status")" 1
}
sockets_have_owners_and_modes() {
    is "$(inside stat -c '%a' "$query")" 666
    is "$(inside stat -c '%a %U:%G' "$control")" '660 root:rooflined'
}
ready() { is "$(status_of /-/ready)" 200; }
anyone_may_ask() {
    nobody curl --silent --fail --dump-header - --output /dev/null --max-time 10 --unix-socket "$query" http://localhost/v1/state |
        grep -i '^x-rooflined-serial: [0-9]'
}
strangers_stay_off_control() {
    refused nobody curl --silent --max-time 10 --unix-socket "$control" http://localhost/v1/state
}
control_answers_root() {
    inside curl --silent --fail --max-time 10 --unix-socket "$control" http://localhost/v1/state | jq --exit-status . >/dev/null
}
client_finds_the_daemon() { inside rooflinectl status; }

# Asked for, because the load gate rightly keeps a daemon from calibrating unasked while a build still echoes in the load
# average. On a machine whose neighbours take its processors every sample may be refused; asking again is all that helps.
calibrates() {
    local attempt
    for attempt in 1 2 3 4 5 6; do
        inside rooflinectl --socket /run/rooflined-control/control.sock calibrate --force --wait >/dev/null 2>&1 || true
        if calibrated; then
            echo "calibrated at attempt $attempt"
            return
        fi
        get /v1/calibration | jq .status
        sleep 5
    done
    return 1
}
calibrated() { get /v1/calibration | jq --exit-status '.record != null' >/dev/null; }
# The unit sees no home directory; the client reads the file where it lies, with the rights of its user.
predicts_a_private_file() {
    local folder=/home/somebody told absent
    inside install -d -m 700 -o nobody -g nogroup $folder
    inside sh -c "umask 077; cat >$folder/config.json" <<'JSON'
{"model_type":"llama","hidden_size":2048,"num_hidden_layers":22,"num_attention_heads":32,"num_key_value_heads":4,
 "intermediate_size":5632,"vocab_size":32000,"torch_dtype":"bfloat16"}
JSON
    inside chown nobody:nogroup $folder/config.json
    nobody rooflinectl predict $folder/config.json --engine llama.cpp -o json | jq --exit-status '.time_s.value > 0' >/dev/null
    # By its path alone the daemon tells nothing of it, not even that it is there.
    told=$(by_path $folder/config.json) absent=$(by_path $folder/absent.json)
    is "$(jq --raw-output .error.code <<<"$told")" unreadable_model
    is "$told" "$absent"
}
by_path() {
    nobody curl --silent --max-time 10 --unix-socket "$query" http://localhost/v1/predict \
        --data "{\"workload\":{\"model\":{\"path\":\"$1\"}}}"
}
journal_has_fields() {
    journal --output=json >"$scratch/journal"
    jq --exit-status --slurp 'any(.[]; ._SYSTEMD_UNIT == "rooflined.service" and has("SERIAL"))' \
        "$scratch/journal" >/dev/null || { jq '{_SYSTEMD_UNIT, MESSAGE}' "$scratch/journal" | tail -20 && return 1; }
    # A panic leaves a record too.
    refused grep -i 'panicked at' "$scratch/journal"
}

bus_answers() { on_bus get-property "$name" "/${name//.//}" "$name" Version; }
bus_starts_the_unit() {
    inside systemctl stop rooflined.service 2>/dev/null
    is "$(show ActiveState)" inactive
    bus_answers
    eventually 10 active
}
anyone_may_ask_the_bus() {
    nobody busctl --system --timeout=10 call "$name" "/${name//.//}" "$name" Query s '{"path":"/v1/state"}'
}
name_is_the_daemons_alone() {
    local request=(busctl --system call org.freedesktop.DBus /org/freedesktop/DBus org.freedesktop.DBus RequestName su "$name" 0)
    refused nobody "${request[@]}"
    refused inside "${request[@]}"
}
polkit_knows_the_actions() {
    inside test -s /usr/share/polkit-1/actions/io.github.rooflined.policy
    inside sh -c 'command -v pkaction >/dev/null' || return 0
    inside pkaction --verbose --action-id io.github.rooflined.set-mode | grep -F unix-user:rooflined
    inside pkaction --action-id io.github.rooflined.hold
}
request_starts_the_unit() {
    inside systemctl stop rooflined.service 2>/dev/null
    is "$(show ActiveState)" inactive
    is "$(status_of /-/healthy)" 200
    eventually 10 active
}

# A crash at any moment: the client that asks meanwhile is answered, and nothing measured is lost.
survives_kill() {
    local before files_before invocation
    before=$(record)
    refused is "$before" null
    files_before=$(state_files)
    invocation=$(invocation)
    inside systemctl kill --kill-whom=main --signal=KILL rooflined.service
    is "$(status_of /-/healthy)" 200
    eventually 10 restarted_since "$invocation"
    is "$(state_files)" "$files_before"
    is "$(record)" "$before"
}
# Name and content of everything kept, so that a file rewritten by the restart shows.
state_files() { inside sh -c 'cd /var/lib/rooflined && find . -type f ! -name "*.lock" -exec sha256sum {} + | sort'; }

reloads() {
    local pid
    pid=$(show MainPID)
    inside systemctl reload rooflined.service
    sleep 0.5
    is "$(show MainPID)" "$pid"
    # A broken file is refused and the old configuration kept.
    inside cp /etc/rooflined/rooflined.toml /root/rooflined.toml
    inside sh -c 'echo "[nonsense]" >>/etc/rooflined/rooflined.toml'
    inside systemctl reload rooflined.service
    eventually 10 journal --grep nonsense --lines=5 --quiet
    inside cp /root/rooflined.toml /etc/rooflined/rooflined.toml
    is "$(show MainPID)" "$pid"
    ready
}

# As after an error of the file system, or by design: the daemon works, says what it cannot keep, and is not started again and again.
works_on_a_read_only_var() {
    local restarts
    inside systemctl stop rooflined.service
    inside mount --bind /var/lib /var/lib
    inside mount -o remount,bind,ro /var/lib
    inside systemctl start rooflined.service
    eventually 10 active
    restarts=$(show NRestarts)
    get /v1/state | jq --exit-status '.degraded[] | select(startswith("state_dir: "))'
    sleep 3
    is "$(show NRestarts)" "$restarts"
    inside systemctl stop rooflined.service
    inside umount /var/lib
    # Removed by somebody, it is there again at the next start.
    inside rm -rf /var/lib/rooflined
    inside systemctl start rooflined.service
    eventually 10 active
    is "$(inside stat -c '%a %U:%G' /var/lib/rooflined)" '750 rooflined:rooflined'
    is "$(get /v1/state | jq --compact-output .degraded)" '[]'
}

survives_the_bus() {
    inside systemctl kill --kill-whom=main --signal=KILL dbus.service
    is "$(status_of /-/healthy)" 200
    inside systemctl start dbus.service
    eventually 30 bus_owner
}
# The daemon itself, not a second one that the call would start.
bus_owner() { on_bus call org.freedesktop.DBus /org/freedesktop/DBus org.freedesktop.DBus GetNameOwner s "$name" >/dev/null 2>&1; }

watchdog_is_fed() {
    inside mkdir -p /run/systemd/system/rooflined.service.d
    inside sh -c 'printf "[Service]\nWatchdogSec=2s\nTimeoutAbortSec=1s\n" >/run/systemd/system/rooflined.service.d/watchdog.conf'
    inside systemctl daemon-reload
    inside systemctl restart rooflined.service
    local invocation
    invocation=$(invocation)
    sleep 5
    is "$(invocation)" "$invocation"
}
watchdog_bites() {
    local invocation
    invocation=$(invocation)
    inside systemctl kill --kill-whom=main --signal=STOP rooflined.service
    eventually 15 restarted_since "$invocation"
    eventually 10 journal --grep watchdog --lines=3 --quiet
}
stops_cleanly() {
    local began=$SECONDS
    inside systemctl stop rooflined.service
    is "$(show Result)" success
    is "$(show ExecMainStatus)" 0
    [ $((SECONDS - began)) -le 5 ] || { echo "it took $((SECONDS - began)) s" && return 1; }
}

# ---- an unmodified server, observed for good

engine_port=$((20000 + RANDOM % 10000))
observer=rooflined-observe@$engine_port.service
of_engine() { inside curl --silent --fail --max-time 60 "$@"; }
engine_answers() { of_engine --output /dev/null "http://127.0.0.1:$engine_port/health"; }
starts_an_engine() {
    inside systemd-run --quiet --unit=engine --uid=nobody --setenv=PYTHONPATH=/opt/engine \
        /opt/engine/llama-server -m /srv/model.gguf --port "$engine_port" -np 1 -c 2048 -t 1
    eventually 60 engine_answers || { inside journalctl --no-pager --unit=engine --lines=20 && return 1; }
}
# One request after another, each long enough for some windows.
# shellcheck disable=SC2317  # run in the background
generates() {
    while engine_answers; do
        of_engine --output /dev/null "http://127.0.0.1:$engine_port/completion" --header 'content-type: application/json' \
            --data '{"prompt": [5, 6, 7, 8], "n_predict": 1800, "ignore_eos": true, "temperature": 0, "cache_prompt": false}' || true
    done
}
reports() { inside curl --silent --max-time 10 --unix-socket "$control" 'http://localhost/v1/observations?scope=all'; }
reported_for() {
    reports | jq --exit-status --argjson uid "$(inside id -u "$1")" \
        'any(.observations[]; .uid == $uid and .engine == "llama.cpp")' >/dev/null
}
# However busy the machine is: that it may look and report is asked here, not what it measures. Options are added as the unit
# says, for every instance.
add_options() {
    inside mkdir -p /run/systemd/system/rooflined-observe@.service.d
    inside tee /run/systemd/system/rooflined-observe@.service.d/options.conf >/dev/null <<CONF
[Service]
ExecStart=
ExecStart=/usr/bin/rooflinectl --socket %t/rooflined observe --from %I --count 0 --max-wait 1000 $*
CONF
    inside systemctl daemon-reload
}
told() { inside journalctl --no-pager --output=cat --unit="$observer" | grep 'on 1 thread: .*; learned'; }
# observes_for USER OPTION…: started with these options, it reports as this user, and any user may run the server.
observes_for() {
    local user=$1
    shift
    add_options "$@"
    inside systemctl restart "$observer"
    if ! eventually 150 reported_for "$user"; then
        inside systemctl status --no-pager --lines=40 "$observer"
        reports
        return 1
    fi
    # It says so after the daemon does.
    eventually 20 told || { inside journalctl --no-pager --lines=40 --unit="$observer" && return 1; }
}
observer_is_confined() {
    local pid
    pid=$(show MainPID "$observer")
    is "$(inside stat -c %U "/proc/$pid")" rooflined
    inside cat "/proc/$pid/status" >"$scratch/status"
    is "$(sed -nE 's/^Cap(Eff|Bnd|Prm|Amb):\s*//p' "$scratch/status" | sort -u)" 0000000000000000
    is "$(sed -nE 's/^Seccomp:\s*//p' "$scratch/status")" 2
    is "$(sed -nE 's/^NoNewPrivs:\s*//p' "$scratch/status")" 1
    # Not even root writes where it stands, or sees a home.
    # shellcheck disable=SC2016  # expanded inside
    is "$(inside nsenter --target "$pid" --mount sh -c \
        'for dir in /etc /usr /var /srv; do touch $dir/x 2>/dev/null && echo $dir; done; find /root /home -mindepth 1')" ''
}
observer_stops() {
    inside systemctl stop "$observer"
    is "$(show ActiveState "$observer")" inactive
    is "$(show Result "$observer")" success
    engine_answers
}
observer_waits() { [ "$(show SubState "$observer")" = auto-restart ]; }
# Nothing to observe is no failure, and the unit comes back by itself.
observer_outlives_the_engine() {
    inside systemctl start "$observer"
    inside systemctl stop engine.service
    eventually 30 observer_waits || { inside systemctl status --no-pager --lines=20 "$observer" && return 1; }
    inside systemctl stop "$observer"
    is "$(show Result "$observer")" success
    nothing_failed
}

check "the unit is ready after boot, at the first attempt" starts_with_boot
checked
check "it says its status" says_its_status
check "no unit failed" nothing_failed
check "it runs as rooflined, without capabilities, with a system call filter" is_confined
check "the sockets have their owners and modes" sockets_have_owners_and_modes
check "/-/ready answers 200" eventually 60 ready
check "anyone may ask the query socket" anyone_may_ask
check "strangers stay off the control socket" strangers_stay_off_control
check "the control socket answers root" control_answers_root
check "rooflinectl finds the daemon" client_finds_the_daemon
check "it calibrates inside the unit's limits" calibrates
check "a private file in a home directory is predicted" predicts_a_private_file
check "journald has its records with fields" journal_has_fields
check "a llama.cpp server starts as another user" starts_an_engine
generates &
check "rooflined-observe@ observes it and reports for the server's user" observes_for nobody
check "it reports for the daemon's user where the server's user is named" observes_for rooflined --server-user nobody
check "it runs as rooflined, without capabilities, with a system call filter, and writes nowhere" observer_is_confined
check "it stops and leaves the server alone" observer_stops
check "it outlives the server, and nothing has failed" observer_outlives_the_engine
wait $!
check "the bus answers" bus_answers
check "anyone may ask over the bus" anyone_may_ask_the_bus
check "the bus name is the daemon's alone" name_is_the_daemons_alone
check "polkit knows the actions" polkit_knows_the_actions
check "a call on the bus starts the unit" bus_starts_the_unit
check "a request on the socket starts the unit" request_starts_the_unit
check "after SIGKILL it is back, asked meanwhile, with its calibration" survives_kill
check "it works on a read-only /var and says what it cannot keep" works_on_a_read_only_var
check "it reloads, and keeps the old configuration when the new one is broken" reloads
check "it outlives the bus and finds the next one" survives_the_bus
check "the watchdog is fed" watchdog_is_fed
check "the watchdog ends a daemon that hangs" watchdog_bites
check "it stops cleanly" stops_cleanly
checked
