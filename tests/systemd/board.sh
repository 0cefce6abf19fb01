# shellcheck shell=bash
# Sourced: lays a board below $root, a tree that is bound over /sys of both services, with an nvpmodel that writes there and
# runs escape.py first if /etc/escape says so.
root=${root:?what sources this says where the system lies}

gpu=/sys/devices/platform/17000000.gpu/devfreq_dev cpu=/sys/devices/system/cpu/cpu0
emc=/sys/kernel/nvpmodel_clk_cap/emc
# Below the root, as they come from the archive the files of the system.
put_file() { install -D -m "$1" /dev/stdin "$root/$2"; }
in_sys() { put_file 644 "srv/board$1" <<<"$2"; }
in_sys $gpu/available_frequencies '306000000 408000000 510000000 612000000 918000000 1020000000'
in_sys $gpu/min_freq 306000000
in_sys $gpu/max_freq 612000000
in_sys $cpu/cpufreq/scaling_available_frequencies '729600 960000 1344000 1497600 1728000'
in_sys $cpu/cpufreq/cpuinfo_max_freq 1728000
in_sys $cpu/cpufreq/scaling_min_freq 729600
in_sys $cpu/cpufreq/scaling_max_freq 1497600
in_sys $emc 2133000000
in_sys /sys/kernel/uevent_helper ''
in_sys /sys/power/state mem
# ProtectControlGroups= covers it.
in_sys /sys/fs/cgroup/cgroup.procs ''
{
    printf '%s\n' '< PARAM TYPE=CLOCK NAME=CPU_A78_0 >' "FREQ_TABLE $cpu/cpufreq/scaling_available_frequencies" \
        "MAX_FREQ $cpu/cpufreq/scaling_max_freq" "MIN_FREQ $cpu/cpufreq/scaling_min_freq" \
        '< PARAM TYPE=CLOCK NAME=GPU >' "FREQ_TABLE $gpu/available_frequencies" "MAX_FREQ $gpu/max_freq" \
        "MIN_FREQ $gpu/min_freq" '<PARAM TYPE=CLOCK NAME=EMC >' "MAX_FREQ $emc"
    while read -r id mode cpu_khz gpu_hz emc_hz; do
        printf '%s\n' "< POWER_MODEL ID=$id NAME=$mode >" 'CPU_A78_0 MIN_FREQ 729600' "CPU_A78_0 MAX_FREQ $cpu_khz" \
            'GPU MIN_FREQ 0' "GPU MAX_FREQ $gpu_hz" "EMC MAX_FREQ $emc_hz"
    done <<<'0 15W 1497600 612000000 2133000000
1 25W 1344000 918000000 3199000000
2 7W 960000 408000000 2133000000'
    echo '< PM_CONFIG DEFAULT=0 >'
} | put_file 644 etc/nvpmodel.conf
put_file 644 var/lib/nvpmodel/status <<<'pmode:0000'
put_file 755 usr/sbin/nvpmodel <<EOF2
#!/bin/sh
case \$2 in
0) set -- 0 1497600 612000000 2133000000 ;;
1) set -- 1 1344000 918000000 3199000000 ;;
2) set -- 2 960000 408000000 2133000000 ;;
*) exit 2 ;;
esac
if [ -e /etc/escape ]; then python3 /usr/local/lib/escape.py \$(cat /etc/escape) >/var/lib/nvpmodel/escaped 2>&1; fi
echo \$2 >$cpu/cpufreq/scaling_max_freq
echo \$3 >$gpu/max_freq
echo \$4 >$emc
printf 'pmode:%04d\n' \$1 >/var/lib/nvpmodel/status
EOF2
for unit in rooflined.service rooflined-actuate.service; do
    put_file 644 "etc/systemd/system/$unit.d/board.conf" <<<$'[Service]\nBindPaths=/srv/board/sys:/sys'
done
put_file 644 etc/rooflined/conf.d/control.toml <<<$'[control]\nenabled = true\ndwell_s = 0\n[calibration]\nautomatic = false'
