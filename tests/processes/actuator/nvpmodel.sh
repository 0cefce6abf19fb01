#!/bin/sh
# A fake nvpmodel that parses its file by its own means (awk) and misbehaves as the file "behaviour" says.
# calls: one line for each run; writes: one line for each write; hold: "ID:N" stops it before its Nth write of that mode.
root=${ROOFLINED_ROOT:?}
behaviour=$(cat "$root/behaviour" 2>/dev/null)
echo "$*" >>"$root/calls"
if [ "$1" != -m ] || [ $# -ne 2 ]; then echo "NVPM ERROR: bad usage"; exit 2; fi
id=$2

question() {
    echo "NVPM WARN: Golden image context is already created"
    echo "NVPM WARN: Reboot required for changing to this power mode: $id"
    echo "NVPM WARN: DO YOU WANT TO REBOOT NOW? enter YES/yes to confirm: "
    read -r reply
    case $reply in
    YES | yes) echo rebooted >>"$root/calls"; exit 0 ;;
    esac
    echo "NVPM ERROR: bad input!"
    echo "NVPM ERROR: optMask is 1, no request for power mode"
}
status() { printf 'pmode:%04d\n' "$id" >"$root/var/lib/nvpmodel/status"; }

case $behaviour in
question) question; exit 1 ;;
hang) sleep 600 & echo $! >"$root/sleeper"; wait ;;
nothing) exit 0 ;;
status_only) status; exit 0 ;;
fail) echo "NVPM ERROR: failed to write PARAM GPU"; exit 1 ;;
garbage) head -c 300000 /dev/urandom; exit 0 ;;
endless) yes 'NVPM WARN: again' ;;
esac

# What the kernel makes of a clock: the highest of its table that is not above.
kernel() {
    for table in "${1%/*}/available_frequencies" "${1%/*}/scaling_available_frequencies"; do
        [ -e "$table" ] && tr ' ' '\n' <"$table" | awk -v cap="$2" '
            /^[0-9]+$/ && (cap < 0 || $1 <= cap) && $1 > best { best = $1 } END { printf "%d", best }' && return
    done
    if [ "$2" = -1 ]; then echo 9223372036854775807; else echo "$2"; fi
}

n=0
awk -v id="$id" '
    { gsub(/[<>]/, " ") }
    $1 == "PARAM" { sub(/.*NAME=/, ""); name = $1; mode = ""; next }
    $1 == "POWER_MODEL" { for (i = 2; i <= NF; i++) if ($i ~ /^ID=/) mode = substr($i, 4); name = ""; next }
    $1 == "PM_CONFIG" { mode = name = ""; next }
    name != "" && $1 != "" { path[name, $1] = $2 }
    mode != "" && mode == id && NF == 3 { print $2 ~ /FREQ/ ? "clock" : "text", path[$1, $2 "_KNEXT"] "", path[$1, $2], $3 }
' "$root/etc/nvpmodel/nvpmodel_board.conf" | sed 's/  / /' | while read -r kind a b c; do
    if [ -n "$c" ]; then value=$c; else value=$b b=''; fi
    file=$a
    [ -z "$b" ] || [ -e "$root$a" ] || file=$b
    n=$((n + 1))
    if [ "$(cat "$root/hold" 2>/dev/null)" = "$id:$n" ]; then
        echo $$ >"$root/held.new" && mv "$root/held.new" "$root/held"
        while [ -e "$root/hold" ]; do sleep 0.01; done
    fi
    case $behaviour:$n in
    half:5) echo fail >"$root/behaviour"; exit 1 ;;
    half_once:5) echo works >"$root/behaviour"; exit 1 ;;
    late_question:8) question; exit 1 ;;
    esac
    [ "$kind" = text ] && shown=$value || shown=$(kernel "$root$file" "$value")
    echo "$file $value" >>"$root/writes"
    # In place, as in sysfs, where nothing can be made.
    [ -e "$root$file" ] && printf '%s\n' "$shown" >"$root$file"
done
case $behaviour in half | half_once | late_question) exit 1 ;; esac
status
[ "$behaviour" != lingers ] || { sleep 600 & echo $! >"$root/sleeper"; }
exit 0
