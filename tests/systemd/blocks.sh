#!/usr/bin/env bash
# Runs every command of a document in a booted system, block by block and in order: blocks.sh ROOT DOCUMENT FILES
#
# A block is what stands between ```sh and ```, and one with a name, as in ```yaml fleet.yml, is put into that file. They are
# run in a directory with a copy of FILES. A block that fails ends it, because those below build on it.
cd "$(dirname "$0")/../.."
. .ci/lib.sh
root=$(realpath "$1") document=$2 files=$3
. tests/systemd/machine.sh

# What the document takes for granted: power modes, a web server, an inventory, a user's processes, an image to install into.
. tests/systemd/board.sh
rm -r "$root/etc/rooflined"
# Installed from a directory or from a repository of the document's own; nothing of the archive is needed.
rm -f "$root"/etc/apt/sources.list "$root"/etc/apt/sources.list.d/*
echo '127.0.0.1 localhost apt.example.com' >"$root/etc/hosts"
mkdir -p "$root/srv/image/etc/systemd/system" "$root/srv/apt" "$root/srv/files"
cp -r "$files/." "$root/srv/files/"
put_file 644 srv/files/boards.ini <<<$'[boards]\nlocalhost ansible_connection=local ansible_python_interpreter=/usr/bin/python3'
# A container in this container has no control groups of its own.
put_file 644 etc/containers/containers.conf <<<$'[containers]\ncgroups = "disabled"\ndefault_sysctls = []\n[engine]\ncgroup_manager = "cgroupfs"\nevents_logger = "file"'

# shellcheck disable=SC2119  # it takes options of systemd-nspawn, of which there are none here
boot
inside systemd-run --quiet --unit=web python3 -m http.server --directory /srv/apt 80
# The image's name in the document means the system itself, which has what the client needs.
inside sh -c 'tar --create --one-file-system --directory / bin lib lib64 usr/bin/dash usr/lib64 usr/lib/x86_64-linux-gnu etc/debian_version |
    podman import --quiet - docker.io/library/debian:12-slim'

run() { inside sh -euc "cd /srv/files && . /dev/stdin" <"$1"; }
fence='```' heading='' kind='' number=0
while IFS= read -r line; do
    case $kind,$line in
    ,'## '*) heading=${line#'## '} ;;
    ,"${fence}sh") kind=sh number=$((number + 1)) && : >"$scratch/block" ;;
    ,"$fence"*' '*) kind=${line##* } && : >"$scratch/block" ;;
    ,"$fence"*) kind=other ;;
    ,*) ;;
    sh,"$fence")
        kind=''
        check "$document, $heading: $(head -1 "$scratch/block" | cut -c 1-60)" run "$scratch/block"
        checked
        ;;
    *,"$fence")
        if [ "$kind" != other ]; then put_file 644 "srv/files/$kind" <"$scratch/block"; fi
        kind=''
        ;;
    *) printf '%s\n' "$line" >>"$scratch/block" ;;
    esac
done <"$document"
[ "$number" -gt 10 ] || fail "only $number blocks were found in $document"
check "$document: nothing is left" is "$(inside sh -c 'ls -d /etc/rooflined /var/lib/rooflined /usr/bin/rooflined* /usr/share/rooflined 2>/dev/null || true')" ''
checked
