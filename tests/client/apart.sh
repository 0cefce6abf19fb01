#!/bin/sh
# Runs a command that sees nothing in /run, and in /tmp all but a daemon's directories: apart.sh COMMAND...
# For `unshare -m`. The command itself may lie below /tmp, as in a checkout there. Others come and go in /tmp meanwhile,
# so nothing there is looked at: a link to what has gone is no fault.
set -eu
mount -t tmpfs none /run
mkdir /run/tmp
mount --rbind /tmp /run/tmp
mount -t tmpfs -o mode=1777 none /tmp
for entry in /run/tmp/* /run/tmp/.[!.]*; do
    case ${entry##*/} in
    rooflined-[0-9]*) ;;
    *) printf '%s\0' "$entry" ;;
    esac
done | xargs -0 ln -s -t /tmp
exec "$@"
