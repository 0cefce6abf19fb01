#!/usr/bin/env bash
# Installs the package of another architecture in a system that is not booted, asks it, and purges it: emulated.sh ROOT DEB
#
# Units are not tried: under qemu there is no network namespace and no filter of system calls.
cd "$(dirname "$0")/../.."
. .ci/lib.sh
root=$(realpath "$1") deb=$2
arch=$(dpkg-deb --field "$deb" Architecture)
cp "$deb" "$root/root/rooflined.deb"

inside() {
    timeout --kill-after=5 180 systemd-nspawn --quiet --directory="$root" --register=no --keep-unit --pipe --setenv=LC_ALL=C.UTF-8 \
        sh -euc "$1"
}
installs() { inside 'dpkg --install /root/rooflined.deb && id rooflined && rooflined --version && rooflinectl --version'; }
# As its user, and as the unit has it but for the bus.
answers_and_measures() {
    # shellcheck disable=SC2016  # expanded inside
    inside '
        install -d -o rooflined -g rooflined /run/rooflined /var/lib/rooflined
        echo "[calibration]\nautomatic = false" >/root/rooflined.toml
        chmod 755 /root
        setpriv --reuid=rooflined --regid=rooflined --clear-groups \
            rooflined --config /root/rooflined.toml --bus none --socket /run/rooflined --state-dir /var/lib/rooflined &
        daemon=$!
        for _ in $(seq 100); do [ ! -S /run/rooflined/query.sock ] || break; sleep 0.2; done
        rooflinectl --socket /run/rooflined predict gemv 4096 4096 --format int8 --hardware agx-orin-64gb
        rooflinectl --socket /run/rooflined status
        # What an emulator makes of time is no clock: samples may be refused for that, all of them at each try. Whether the probe runs
        # and the daemon judges what it says is asked here, not what it measures.
        calibrated=no
        for _ in 1 2 3; do
            if said=$(rooflinectl --socket /run/rooflined/control.sock calibrate --quick --force --wait 2>&1); then
                calibrated=yes && break
            fi
        done
        echo "$said"
        test $calibrated = yes || echo "$said" | grep "no usable .* among [1-9][0-9]* samples .* rejected, most for [a-z_]*"
        kill $daemon
        wait $daemon'
}
purges() {
    inside '
        dpkg --purge rooflined && id rooflined
        ! ls -d /etc/rooflined /var/lib/rooflined /run/rooflined /usr/bin/rooflined* 2>/dev/null'
}

check "$arch: dpkg installs it" installs
check "$arch: it answers, measures and judges what it measured under emulation" answers_and_measures
check "$arch: purging it leaves the user alone" purges
checked
