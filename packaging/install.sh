#!/bin/sh
# Installs rooflined from the directory of this script, on systems without a .deb:
#
#   ./install.sh                 installs or upgrades, and starts the daemon
#   ./install.sh --root DIR      into the system below DIR, which does not run: an image, a container's root
#   ./install.sh --files DIR     the files alone, to make a package of them
#   ./install.sh --uninstall     removes the programs; configuration and measurements stay
#   ./install.sh --purge         these too; the user and group rooflined stay
#
# /etc/rooflined/rooflined.toml is kept where it is; a new one that differs is put next to it as rooflined.toml.new.
# usr/bin/rooflined also runs in place, as any user, without installation.
set -eu

source=$(cd "$(dirname "$0")" && pwd)
root='' share=/usr/share/rooflined configuration=etc/rooflined/rooflined.toml
units='rooflined.service rooflined.socket rooflined-control.socket rooflined-actuate.socket'

fail() {
    echo "install.sh: $*" >&2
    exit 1
}

usage() {
    sed -n '2,8s/^# \{0,1\}//p' "$0"
}

# Whether the system below $root is the one that runs.
runs() { [ -z "$root" ] && [ -d /run/systemd/system ]; }

# A running program is replaced, not written over.
put() {
    mkdir -p "$(dirname "$root/$3")"
    cp "$2" "$root/$3.new"
    chmod "$1" "$root/$3.new"
    mv -f "$root/$3.new" "$root/$3"
}

# Files of an earlier version that this one does not have.
remove_the_rest() {
    while read -r file; do
        grep -qxF -- "$file" "$1" || rm -f "$root/$file"
    done <"$root$share/files"
}

files() {
    [ -d "$source/usr" ] || fail "there is nothing to install in $source"
    mkdir -p "$root$share"
    (cd "$source" && find usr -type f) >"$root$share/files.new"
    while read -r file; do
        case $file in
        usr/bin/*) put 755 "$source/$file" "$file" ;;
        *) put 644 "$source/$file" "$file" ;;
        esac
    done <"$root$share/files.new"
    if [ -e "$root$share/files" ]; then remove_the_rest "$root$share/files.new"; fi
    mv "$root$share/files.new" "$root$share/files"
    put 755 "$source/install.sh" "${share#/}/install.sh"
    if [ ! -e "$root/$configuration" ]; then
        put 644 "$source/$configuration" "$configuration"
    elif ! cmp -s "$source/$configuration" "$root/$configuration"; then
        put 644 "$source/$configuration" "$configuration.new"
    fi
}

install() {
    # Only the package manager changes files of a package.
    if dpkg-query --admindir="$root/var/lib/dpkg" -W -f '${Status}' rooflined 2>/dev/null | grep -q ' installed$'; then
        fail "the package rooflined is installed; use apt, or remove it first"
    fi
    command -v systemctl >/dev/null || fail "there is no systemd; $source/usr/bin/rooflined runs as it is"
    earlier=no
    [ ! -e "$root$share/files" ] || earlier=yes
    files
    systemd-sysusers --root="${root:-/}" rooflined.conf
    if [ $earlier = no ]; then
        systemctl --root="${root:-/}" --quiet enable rooflined.service
    fi
    runs || return 0
    systemd-tmpfiles --create rooflined.conf
    systemctl daemon-reload
    # The bus reads new policies only on request.
    systemctl reload dbus.service 2>/dev/null || true
    if [ $earlier = yes ]; then
        # systemd keeps the sockets, so clients wait instead of being refused.
        systemctl try-restart rooflined.service 'rooflined-observe@*.service'
    else
        # shellcheck disable=SC2086  # several
        systemctl start $units
    fi
}

uninstall() {
    [ -e "$root$share/files" ] || fail "nothing was installed by this script"
    if runs; then
        systemctl stop 'rooflined-observe@*.service' rooflined-gpu-nodes.path rooflined-gpu-nodes.service rooflined.service \
            rooflined.socket rooflined-control.socket rooflined-actuate.socket rooflined-actuate.service
        # systemd now and then cannot start what a unit runs after its end (status 219); the mode is then restored from here.
        if systemctl --quiet is-failed rooflined-actuate.service; then
            /usr/bin/rooflined actuate --recover || true
            systemctl reset-failed rooflined-actuate.service
        fi
    fi
    systemctl --root="${root:-/}" --quiet disable rooflined.service
    rm -f "$root"/etc/systemd/system/*.wants/rooflined-observe@*.service
    while read -r file; do rm -f "$root/$file"; done <"$root$share/files"
    rm -rf "$root$share" "$root/usr/share/doc/rooflined"
    rm -rf "$root/run/rooflined" "$root/run/rooflined-control" "$root/run/rooflined-actuate"
    if runs; then systemctl daemon-reload; fi
}

case ${1:-} in
'') install ;;
--root | --files)
    root=$(cd "${2:?$1 takes a directory}" && pwd)
    if [ "$1" = --root ]; then install; else files; fi
    ;;
--uninstall) uninstall ;;
--purge)
    if [ -e "$share/files" ]; then uninstall; fi
    rm -rf /etc/rooflined /var/lib/rooflined /var/lib/rooflined-actuate
    ;;
--help) usage ;;
*) usage >&2 && exit 2 ;;
esac
