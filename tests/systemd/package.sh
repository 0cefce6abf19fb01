#!/usr/bin/env bash
# Installs, uses, upgrades and purges the package in a booted system: package.sh ROOT DEB NEXT_DEB
cd "$(dirname "$0")/../.."
. .ci/lib.sh
root=$(realpath "$1") deb=$2 next=$3
os="$(dpkg-deb --field "$deb" Architecture), $(sed -n 's/^PRETTY_NAME="\(.*\)"/\1/p' "$root/etc/os-release")"
query=/run/rooflined/query.sock control=/run/rooflined-control/control.sock
. tests/systemd/machine.sh

. tests/systemd/board.sh
board_configuration=$root/etc/rooflined/conf.d/control.toml
mv "$board_configuration" "$scratch/control.toml" && rmdir "$root/etc/rooflined/conf.d" "$root/etc/rooflined"
cp "$deb" "$root/root/rooflined.deb"
cp "$next" "$root/root/next.deb"

# Every path on the disk but what the system itself writes at any time.
paths() {
    (cd "$root" && find . -xdev ! -path './run/*' ! -path './tmp/*' ! -path './dev/*' ! -path './var/tmp/*' ! -path './var/log/*' \
        ! -path './var/lib/dpkg/*' ! -path './var/lib/systemd/*' ! -path './var/lib/private' ! -path './var/cache/*' ! -name '*.pyc' | sort)
}

# shellcheck disable=SC2119  # it takes options of systemd-nspawn, of which there are none here
boot
paths >"$scratch/before"

refused() { if "$@"; then echo "not refused: $*" && return 1; fi; }
install_package() { inside dpkg --install "/root/$1.deb" >"$scratch/dpkg" 2>&1 || { cat "$scratch/dpkg" && return 1; }; }
version() { inside dpkg-query --show rooflined | cut -f 2; }
ctl() { inside rooflinectl --socket "$control" "$@"; }
invocation() { show InvocationID; }

installs() {
    install_package rooflined
    eventually 20 active || { inside systemctl status --no-pager --lines=30 rooflined.service && return 1; }
    inside rooflinectl status
    for unit in rooflined.service rooflined.socket rooflined-control.socket rooflined-actuate.socket; do
        is "$(inside systemctl is-enabled $unit)" enabled
    done
    is "$(inside stat -c '%a %U:%G' "$query" "$control" "$(dirname "$control")" | tr '\n' ' ')" \
        '666 root:root 660 root:rooflined 755 root:root '
    is "$(show NRestarts)" 0
}
has_pages() {
    inside test -s /usr/share/man/man1/rooflinectl.1.gz
    inside test -s /usr/share/man/man8/rooflined.8.gz
}
# On a machine whose neighbours take its processors every sample may be refused; asking again is all that helps.
calibrates() {
    local attempt
    for attempt in 1 2 3 4 5 6; do
        if ctl calibrate --quick --force --wait >"$scratch/calibrated" 2>&1; then
            echo "calibrated at attempt $attempt"
            return
        fi
        sleep 3
    done
    cat "$scratch/calibrated"
    return 1
}
switches() {
    inside mkdir -p /etc/rooflined/conf.d
    cp "$scratch/control.toml" "$board_configuration"
    inside systemctl restart rooflined.service
    ctl mode set 25W
    is "$(cat "$root/srv/board$gpu/max_freq")" 918000000
    ctl mode set 15W
    is "$(cat "$root/srv/board$gpu/max_freq")" 612000000
}
# Upgrades and downgrades while eight clients ask; they connect from outside, through the directory of the container's init.
upgrades_unnoticed() {
    local clients invocation
    mkfifo "$scratch/until"
    tests/systemd/clients.py "/proc/$leader/root$query" <"$scratch/until" >"$scratch/clients" 2>&1 &
    clients=$!
    exec {until}>"$scratch/until"
    for name in next rooflined next rooflined next; do
        sleep 1
        invocation=$(invocation)
        install_package $name
        refused is "$(invocation)" "$invocation"
        eventually 20 active
    done
    sleep 1
    exec {until}>&-
    wait "$clients" || { cat "$scratch/clients" && return 1; }
    is "$(version)" "$(dpkg-deb --field "$next" Version)"
}
keeps_the_configuration() {
    inside sh -c 'echo "# mine" >>/etc/rooflined/rooflined.toml'
    install_package rooflined
    is "$(inside tail -1 /etc/rooflined/rooflined.toml)" '# mine'
    inside test -s /var/lib/rooflined/calibration.json
}
leaves_alone_what_was_disabled() {
    inside systemctl --quiet disable --now rooflined.service
    install_package next
    refused active
    refused inside systemctl --quiet is-enabled rooflined.service
    inside systemctl --quiet enable rooflined.service
    inside systemctl start rooflined.service rooflined.socket
    eventually 20 active
}
removes() {
    inside systemctl start --no-block rooflined-observe@1.service
    inside systemctl --quiet enable rooflined-observe@1.service
    inside dpkg --remove rooflined
    is "$(inside systemctl list-units --plain --no-legend 'rooflined*')" '' ||
        { inside journalctl --no-pager --lines=20 --unit='rooflined*' && return 1; }
    is "$(inside find /run -maxdepth 1 -name 'rooflined*')" ''
    # shellcheck disable=SC2016  # expanded inside
    refused inside sh -c 'grep -l ^rooflined /proc/[0-9]*/comm'
    inside tail -1 /etc/rooflined/rooflined.toml | grep -x '# mine'
    inside test -s /var/lib/rooflined/calibration.json
}
purge_leaves_the_user_alone() {
    inside dpkg --purge rooflined
    paths >"$scratch/after"
    diff "$scratch/before" "$scratch/after"
    inside id rooflined
    inside getent group rooflined
    is "$(inside sh -c 'find /var/lib/systemd /var/log -name "*rooflined*"')" ''
}
installs_again() {
    install_package rooflined
    eventually 20 active
    inside rooflinectl status
}
# Removing the package does then what systemd could not, and leaves no failed unit behind.
purges_where_nothing_runs_after_the_helper() {
    inside mkdir -p /run/systemd/system/rooflined-actuate.service.d
    inside sh -c 'printf "[Service]\nExecStopPost=\nExecStopPost=/bin/false\n" >/run/systemd/system/rooflined-actuate.service.d/broken.conf'
    inside systemctl daemon-reload
    inside systemctl start rooflined-actuate.service
    inside dpkg --purge rooflined 2>&1 | tee "$scratch/purged"
    grep 'rooflined actuate: nothing was unsettled' "$scratch/purged"
    is "$(inside systemctl list-units --failed --plain --no-legend 'rooflined*')" ''
}

check "$os: dpkg installs it, and it is asked at once" installs
checked
check "$os: the manual pages are there" has_pages
check "$os: it calibrates" calibrates
check "$os: it switches power modes" switches
check "$os: five upgrades and downgrades under eight clients, without an error" upgrades_unnoticed
echo "$os: $(head -1 "$scratch/clients")"
check "$os: an upgrade keeps the configuration and the calibration" keeps_the_configuration
check "$os: an upgrade does not start what was disabled" leaves_alone_what_was_disabled
check "$os: removing it stops everything, and keeps configuration and calibration" removes
check "$os: purging it leaves the user and group alone" purge_leaves_the_user_alone
check "$os: it can be installed again" installs_again
check "$os: purging it restores the mode where systemd cannot" purges_where_nothing_runs_after_the_helper
checked
