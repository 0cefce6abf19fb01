use super::*;
use crate::units::Hertz;

const SMALL: &str = "\
< PARAM TYPE=FILE NAME=CPU_ONLINE >
CORE_0 /sys/devices/system/cpu/cpu0/online
CORE_1 /sys/devices/system/cpu/cpu1/online
CORE_2 /sys/devices/system/cpu/cpu2/online
< PARAM TYPE=FILE NAME=TPC_POWER_GATING >
TPC_PG_MASK /sys/devices/gpu.0/tpc_pg_mask
TPC_PG_MASK_KNEXT /sys/devices/platform/gpu.0/tpc_pg_mask
< PARAM TYPE=FILE NAME=GPU_POWER_CONTROL_ENABLE >
GPU_PWR_CNTL_EN /sys/devices/gpu.0/power/control
< PARAM TYPE=CLOCK NAME=CPU_A78_0 >
FREQ_TABLE /sys/devices/system/cpu/cpu0/cpufreq/scaling_available_frequencies
MAX_FREQ /sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq
< PARAM TYPE=CLOCK NAME=GPU >
MAX_FREQ /sys/devices/17000000.ga10b/devfreq/17000000.ga10b/max_freq
MAX_FREQ_KNEXT /sys/devices/platform/17000000.gpu/devfreq_dev/max_freq
<PARAM TYPE=CLOCK NAME=EMC >
MAX_FREQ /sys/kernel/nvpmodel_emc_cap/emc_iso_cap
MAX_FREQ_KNEXT /sys/kernel/nvpmodel_clk_cap/emc
< POWER_MODEL ID=0 NAME=FULL >
CPU_ONLINE CORE_0 1
CPU_ONLINE CORE_1 1
CPU_ONLINE CORE_2 1
TPC_POWER_GATING TPC_PG_MASK 240
GPU_POWER_CONTROL_ENABLE GPU_PWR_CNTL_EN on
CPU_A78_0 MAX_FREQ -1
GPU MAX_FREQ -1
EMC MAX_FREQ 0
< POWER_MODEL ID=3 NAME=SMALL >
CPU_ONLINE CORE_0 1
CPU_ONLINE CORE_1 1
CPU_ONLINE CORE_2 0
TPC_POWER_GATING TPC_PG_MASK 252
GPU_POWER_CONTROL_ENABLE GPU_PWR_CNTL_EN on
CPU_A78_0 MAX_FREQ 960000
GPU MAX_FREQ 408000000
EMC MAX_FREQ 2133000000
< PM_CONFIG DEFAULT=3 >
";

/// Lines of the warnings, those of the whole file as 0.
fn lines(modes: &PowerModes) -> Vec<usize> {
    modes.warnings.iter().map(|warning| warning.line.unwrap_or(0)).collect()
}

fn small() -> PowerModes {
    let modes = parse(SMALL);
    assert_eq!(modes.warnings, []);
    modes
}

/// The small file with one piece of text replaced.
fn with(old: &str, new: &str) -> PowerModes {
    assert!(SMALL.contains(old), "{old}");
    parse(&SMALL.replacen(old, new, 1))
}

#[test]
fn caps_are_read_and_no_cap_is_none() {
    let modes = small();
    assert_eq!(modes.default, Some(3));
    let [full, small] = modes.modes.as_slice() else { panic!("{modes:?}") };
    assert_eq!((full.id, full.name.as_str(), full.cores_online), (0, "FULL", Some(3)));
    assert_eq!((full.cpu_max, full.gpu_max, full.memory_max), (None, None, None));
    assert_eq!((full.tpc_mask, full.sm_online), (Some(240), Some(8)));
    assert_eq!((small.id, small.cores_online, small.sm_online), (3, Some(2), Some(4)));
    assert_eq!(small.cpu_max, Some(Hertz(960e6)));
    assert_eq!(small.gpu_max, Some(Hertz(408e6)));
    assert_eq!(small.memory_max, Some(Hertz(2133e6)));
}

#[test]
fn a_file_reads_the_same_with_any_line_ends_tabs_comments_mark_and_padding() {
    let expected = small().modes;
    let variants = [
        SMALL.replace('\n', "\r\n"),
        SMALL.replace(' ', "\t"),
        SMALL.replace(' ', "  \t "),
        format!("\u{feff}{SMALL}"),
        SMALL.trim_end().to_owned(),
        SMALL.replace('\n', "   # said by somebody\n"),
        SMALL.replace('\n', "\n\n# < POWER_MODEL ID=9 NAME=NONE >\n"),
        format!("{SMALL}{}", "\0".repeat(512)),
        format!("{}\n{SMALL}", "\0".repeat(512)),
        SMALL.replace("< P", "<P").replace(" >", ">"),
        format!("{SMALL}< FAN_CONFIG DEFAULT=quiet >\n"),
    ];
    for text in variants {
        let modes = parse(&text);
        assert_eq!(modes.warnings, [], "{text}");
        assert_eq!(modes.modes, expected, "{text}");
        assert_eq!(modes.default, Some(3));
    }
}

#[test]
fn the_same_file_on_a_newer_kernel_is_another_path_of_the_same_setting() {
    let modes = small();
    let gpu = modes.modes[0].settings.iter().find(|setting| setting.param == "GPU").unwrap();
    let older = "/sys/devices/17000000.ga10b/devfreq/17000000.ga10b/max_freq";
    let newer = "/sys/devices/platform/17000000.gpu/devfreq_dev/max_freq";
    assert_eq!(gpu.paths, [older, newer]);
    // In whatever order they are declared, and whichever of them is assigned.
    let swapped = SMALL
        .replace(&format!("MAX_FREQ {older}"), "#")
        .replace(newer, &format!("{newer}\nMAX_FREQ {older}"))
        .replace("GPU MAX_FREQ 408000000", "GPU MAX_FREQ_KNEXT 408000000");
    let modes = parse(&swapped);
    let gpu = modes.modes[1].settings.iter().find(|setting| setting.param == "GPU").unwrap();
    assert_eq!(gpu.paths, [older, newer]);
    assert_eq!(modes.modes[1].gpu_max, Some(Hertz(408e6)));
}

#[test]
fn a_sensor_limit_names_a_file_in_a_numbered_directory() {
    let text = format!(
        "< PARAM TYPE=HWMON NAME=VDDIN_OC_LIMIT >\nWARN /sys/devices/platform/c250000.i2c/i2c-7/7-0040/hwmon curr1_max\n{}",
        SMALL.replace("EMC MAX_FREQ 2133000000", "EMC MAX_FREQ 2133000000\nVDDIN_OC_LIMIT WARN 3000")
    );
    let modes = parse(&text);
    assert_eq!(modes.warnings, []);
    let limit = modes.modes[1].settings.last().unwrap();
    assert_eq!((limit.arg.as_str(), limit.value.as_str()), ("WARN", "3000"));
    assert_eq!(limit.paths, ["/sys/devices/platform/c250000.i2c/i2c-7/7-0040/hwmon/hwmon*/curr1_max"]);
}

#[test]
fn every_way_to_write_no_cap_is_none_and_a_cap_beyond_31_bits_is_kept() {
    for value in ["0", "-1", "2147483647", "4294967295", "9223372036854775807", "18446744073709551615"] {
        let modes = with("GPU MAX_FREQ 408000000", &format!("GPU MAX_FREQ {value}"));
        assert_eq!((modes.modes[1].gpu_max, modes.warnings.len()), (None, 0), "{value}");
    }
    for value in ["3199000000", "4266000000"] {
        let modes = with("EMC MAX_FREQ 2133000000", &format!("EMC MAX_FREQ {value}"));
        assert_eq!(modes.modes[1].memory_max.map(Hertz::get), Some(value.parse().unwrap()));
    }
}

#[test]
fn a_clock_that_is_none_is_warned_about_and_limits_nothing() {
    let line = 1 + SMALL.lines().position(|line| line == "GPU MAX_FREQ 408000000").unwrap();
    let huge = "9".repeat(60);
    for value in ["-2", "-408000000", "408", "fast", "408e6", "0x18519600", "408000000000", "٤٠٨", &huge] {
        let modes = with("GPU MAX_FREQ 408000000", &format!("GPU MAX_FREQ {value}"));
        assert_eq!(modes.modes[1].gpu_max, None, "{value}");
        assert_eq!(lines(&modes), [line], "{value}: {:?}", modes.warnings);
        assert!(modes.modes[1].settings.iter().all(|setting| setting.param != "GPU"), "{value}");
        assert_eq!(modes.modes[1].memory_max, Some(Hertz(2133e6)), "{value}: the next line is kept");
    }
    // A clock of a CPU in Hz, where kHz are meant.
    let modes = with("CPU_A78_0 MAX_FREQ 960000", "CPU_A78_0 MAX_FREQ 960000000");
    assert_eq!(modes.modes[1].cpu_max, None);
    assert!(modes.warnings[0].message.contains("expected a clock in kHz"), "{:?}", modes.warnings);
}

#[test]
fn each_damage_costs_its_own_line_and_says_where() {
    let line = |text: &str| 1 + SMALL.lines().position(|line| line == text).unwrap();
    for (old, new) in [
        ("GPU MAX_FREQ -1", "GPU MAX_FREQ"),
        ("GPU MAX_FREQ -1", "NOISE MAX_FREQ -1"),
        ("GPU MAX_FREQ -1", "GPU LOUDNESS -1"),
        ("GPU MAX_FREQ -1", "GPU MAX_FREQ -1 -1"),
        ("GPU MAX_FREQ -1", "GPU \u{1} MAX_FREQ -1"),
        ("GPU MAX_FREQ -1", "GPU MAX_FREQ -1\0GPU"),
        ("CPU_A78_0 MAX_FREQ 960000", "CPU_A78_0 FREQ_TABLE 960000"),
        ("CPU_ONLINE CORE_2 0", "CPU_ONLINE CORE_2 yes"),
        ("TPC_POWER_GATING TPC_PG_MASK 252", "TPC_POWER_GATING TPC_PG_MASK -4"),
        ("< POWER_MODEL ID=3 NAME=SMALL >", "< POWER_MODEL ID=3 NAME=SMALL"),
        ("< POWER_MODEL ID=3 NAME=SMALL >", "< POWER_MODEL ID=3 >"),
        ("< POWER_MODEL ID=3 NAME=SMALL >", "< POWER_MODEL ID=3 NAME=full >"),
        ("< PM_CONFIG DEFAULT=3 >", "< PM_CONFIG DEFAULT=4 >"),
    ] {
        let modes = with(old, new);
        assert_eq!(lines(&modes), [line(old)], "{new}: {:?}", modes.warnings);
        assert_eq!(modes.modes.len(), 2, "{new}");
        assert_eq!(modes.modes[1].memory_max, Some(Hertz(2133e6)), "{new}");
    }
}

#[test]
fn a_lost_line_break_never_puts_one_mode_into_another() {
    for (old, new) in [
        ("EMC MAX_FREQ 0\n< POWER_MODEL", "EMC MAX_FREQ 0< POWER_MODEL"),
        ("EMC MAX_FREQ 0\n< POWER_MODEL", "EMC MAX_FREQ 0 < POWER_MODEL"),
        ("EMC MAX_FREQ 0\n< POWER_MODEL", "EMC MAX_FREQ 0\t<POWER_MODEL"),
        ("NAME=SMALL >\nCPU_ONLINE", "NAME=SMALL >CPU_ONLINE"),
        ("NAME=SMALL >\nCPU_ONLINE", "NAME=SMALL > CPU_ONLINE"),
        ("clk_cap/emc\n< POWER_MODEL", "clk_cap/emc< POWER_MODEL"),
        ("NAME=GPU >\nMAX_FREQ", "NAME=GPU > MAX_FREQ"),
        ("EMC MAX_FREQ 2133000000\n< PM_CONFIG", "EMC MAX_FREQ 2133000000< PM_CONFIG"),
        ("< POWER_MODEL ID=3 NAME=SMALL >", "POWER_MODEL ID=3 NAME=SMALL >"),
    ] {
        let modes = with(old, new);
        let line = 1 + SMALL[..SMALL.find(old).unwrap()].lines().count();
        assert_eq!((&modes.modes, modes.default), (&small().modes, Some(3)), "{new}");
        let [warning] = modes.warnings.as_slice() else { panic!("{new}: {:?}", modes.warnings) };
        assert!(warning.line.is_some_and(|found| found.abs_diff(line) <= 1), "{new}: {warning:?}");
    }
    // A mode of which nothing but the header is left, and the next one in the same line.
    let modes = with(
        "< POWER_MODEL ID=3 NAME=SMALL >",
        "< POWER_MODEL ID=2 NAME=NOTHING >< POWER_MODEL ID=3 NAME=SMALL >",
    );
    assert_eq!(modes.modes.iter().map(|mode| mode.id).collect::<Vec<_>>(), [0, 2, 3]);
    assert_eq!((modes.modes[1].settings.len(), &modes.modes[2]), (0, &small().modes[1]));
    // What is said in a comment is no header.
    for comment in
        ["EMC MAX_FREQ 0 # < POWER_MODEL ID=9 NAME=X >", "EMC MAX_FREQ 0\n#< POWER_MODEL ID=9 NAME=X >"]
    {
        let modes = with("EMC MAX_FREQ 0", comment);
        assert_eq!((&modes.modes, modes.warnings.len()), (&small().modes, 0), "{comment}");
    }
}

#[test]
fn a_cap_on_the_memory_clock_counts_whatever_its_type_and_name() {
    let declared = "<PARAM TYPE=CLOCK NAME=EMC >\nMAX_FREQ /sys/kernel/nvpmodel_emc_cap/emc_iso_cap\n\
                    MAX_FREQ_KNEXT /sys/kernel/nvpmodel_clk_cap/emc\n";
    for (param, arg, path) in [
        ("EMC", "MAX_FREQ", "/sys/kernel/nvpmodel_emc_cap/emc_iso_cap"),
        ("EMC", "MAX_FREQ", "/sys/kernel/another"),
        ("MEMORY", "CAP", "/sys/kernel/nvpmodel_emc_cap/emc_iso_cap"),
        ("MEMORY", "MAX_FREQ", "/sys/kernel/nvpmodel_clk_cap/emc"),
        ("BWMGR", "MAX_FREQ", "/sys/class/devfreq/bwmgr/max_freq"),
    ] {
        for kind in ["FILE", "CLOCK"] {
            let text = SMALL
                .replace(declared, &format!("< PARAM TYPE={kind} NAME={param} >\n{arg} {path}\n"))
                .replace("EMC MAX_FREQ", &format!("{param} {arg}"));
            let modes = parse(&text);
            assert_eq!(modes.warnings, [], "{kind} {param} {arg}");
            let caps: Vec<_> = modes.modes.iter().map(|mode| mode.memory_max).collect();
            assert_eq!(caps, [None, Some(Hertz(2133e6))], "{kind} {param} {arg} {path}");
        }
    }
    // No cap at all is none, and so is a value of a file that caps nothing.
    let modes = parse(
        &SMALL.replace(declared, "").replace("EMC MAX_FREQ 0\n", "").replace("EMC MAX_FREQ 2133000000\n", ""),
    );
    assert_eq!((modes.modes[1].memory_max, modes.warnings.len()), (None, 0));
    let modes = with("TYPE=FILE NAME=GPU_POWER_CONTROL_ENABLE", "TYPE=FILE NAME=MAX_FREQ");
    assert_eq!(
        (modes.modes[1].memory_max, modes.modes[1].gpu_max),
        (Some(Hertz(2133e6)), Some(Hertz(408e6)))
    );
}

#[test]
fn a_cluster_that_is_left_open_leaves_the_cpu_open_unless_its_cores_are_off() {
    let cluster = |number: u32, cpu: u32| {
        format!(
            "< PARAM TYPE=CLOCK NAME=CPU_A78_{number} >\nMAX_FREQ /sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_max_freq\n"
        )
    };
    let head: String = std::iter::once("< PARAM TYPE=FILE NAME=CPU_ONLINE >\n".to_owned())
        .chain((0..6).map(|cpu| format!("CORE_{cpu} /sys/devices/system/cpu/cpu{cpu}/online\n")))
        .chain([cluster(0, 0), cluster(1, 4), "< POWER_MODEL ID=0 NAME=X >\n".to_owned()])
        .collect();
    let cpu_max = |online: [u32; 6], caps: [&str; 2]| {
        let cores = online.iter().enumerate().map(|(cpu, on)| format!("CPU_ONLINE CORE_{cpu} {on}\n"));
        let caps = caps.iter().enumerate().filter(|(_, cap)| !cap.is_empty());
        let caps = caps.map(|(number, cap)| format!("CPU_A78_{number} MAX_FREQ {cap}\n"));
        let text = head.clone() + &cores.chain(caps).collect::<String>() + "< PM_CONFIG DEFAULT=0 >\n";
        let modes = parse(&text);
        assert_eq!(modes.warnings, [], "{text}");
        modes.modes[0].cpu_max.map(|clock| clock.get() / 1e3)
    };
    let all = [1; 6];
    let first_only = [1, 1, 1, 1, 0, 0];
    assert_eq!(cpu_max(all, ["1497600", "1344000"]), Some(1_497_600.0));
    assert_eq!(cpu_max(first_only, ["1344000", "1497600"]), Some(1_344_000.0), "the other is offline");
    for open in ["-1", "0", "2147483647", "9223372036854775807"] {
        assert_eq!(cpu_max(all, ["1497600", open]), None, "{open}");
        assert_eq!(cpu_max(all, [open, "1497600"]), None, "{open}");
        assert_eq!(cpu_max([1, 1, 1, 1, 0, 1], ["1497600", open]), None, "{open}");
        assert_eq!(cpu_max(first_only, ["1497600", open]), Some(1_497_600.0), "{open}");
        assert_eq!(cpu_max(first_only, [open, "1497600"]), None, "{open}");
    }
    assert_eq!(cpu_max(first_only, ["1497600", ""]), Some(1_497_600.0));
}

#[test]
fn what_stands_below_a_damaged_header_is_nobodys() {
    for header in [
        "< POWER_MODEL NAME=SMALL >",
        "< POWER_MODEL ID=-3 NAME=SMALL >",
        "< POWER_MODEL ID=three NAME=SMALL >",
        "< POWER_MODEL ID=99999999999 NAME=SMALL >",
        "< POWER_MODEL ID=0 NAME=FULL >",
        "< POWR_MODEL ID=3 NAME=SMALL >",
        "< /POWER_MODEL >",
        "<>",
        "<",
    ] {
        let modes = with("< POWER_MODEL ID=3 NAME=SMALL >", header);
        assert_eq!(modes.modes, small().modes[..1], "{header}");
        let line = 1 + SMALL.lines().position(|line| line.contains("ID=3")).unwrap();
        assert!(lines(&modes).contains(&line), "{header}: {:?}", modes.warnings);
    }
}

#[test]
fn without_a_default_or_modes_the_file_says_so() {
    let modes = with("< PM_CONFIG DEFAULT=3 >\n", "");
    assert_eq!((modes.default, lines(&modes)), (None, vec![0]));
    let modes = parse("");
    assert_eq!((modes.default, modes.modes.len(), modes.warnings.len()), (None, 0, 2));
    let modes = parse("GPU MAX_FREQ 612000000\n< PM_CONFIG DEFAULT=x >\n");
    assert_eq!(lines(&modes), [1, 2, 0, 0]);
}

#[test]
fn two_modes_of_one_number_are_kept_with_a_word_about_it() {
    let modes = with("ID=3 NAME=SMALL", "ID=0 NAME=SMALL");
    let keys: Vec<_> = modes.modes.iter().map(|mode| (mode.id, mode.name.as_str())).collect();
    assert_eq!(keys, [(0, "FULL"), (0, "SMALL")]);
    assert_ne!(modes.modes[0].gpu_max, modes.modes[1].gpu_max);
    assert_eq!(modes.find("small").unwrap().name, "SMALL");
    assert_eq!(modes.find("0"), None);
    assert!(modes.warnings.iter().any(|warning| warning.message.contains("ask for it by name")));
}

#[test]
fn names_are_free_text_but_harmless_on_a_terminal() {
    for (name, expected) in [
        ("MY_MODE-1.2%", "MY_MODE-1.2%"),
        ("a=b>c", "a=b>c"),
        ("My Mode", "My Mode"),
        ("größer", "größer"),
        ("#1", "#1"),
        ("x\u{1b}[31my", "x[31my"),
    ] {
        let modes = with("NAME=SMALL", &format!("NAME={name}"));
        assert_eq!(modes.by_id(3).map(|mode| mode.name.as_str()), Some(expected));
    }
    let modes = with("NAME=SMALL", &format!("NAME={}", "n".repeat(1000)));
    assert_eq!(modes.by_id(3).map(|mode| mode.name.len()), Some(128));
}

#[test]
fn a_core_that_no_line_names_is_the_first_one() {
    // Files for the TX2 begin with CORE_1, because core 0 cannot be taken offline.
    let text: String =
        SMALL.lines().filter(|line| !line.contains("CORE_0")).fold(String::new(), |t, l| t + l + "\n");
    let modes = parse(&text);
    assert_eq!(modes.warnings, []);
    assert_eq!(modes.modes.iter().map(|mode| mode.cores_online).collect::<Vec<_>>(), [Some(3), Some(2)]);
    let text: String =
        SMALL.lines().filter(|line| !line.contains("CORE_")).fold(String::new(), |t, l| t + l + "\n");
    assert_eq!(parse(&text).modes[0].cores_online, None);
}

#[test]
fn a_mask_that_cannot_be_the_chips_leaves_the_number_of_sms_open() {
    for (mask, sm) in [("0", Some(16)), ("128", Some(14)), ("248", Some(6)), ("0xf0", Some(8))] {
        let modes = with("TPC_PG_MASK 252", &format!("TPC_PG_MASK {mask}"));
        assert_eq!((modes.modes[1].sm_online, modes.warnings.len()), (sm, 0), "{mask}");
    }
    for mask in ["255", "256", "4294967295"] {
        let modes = with("TPC_PG_MASK 252", &format!("TPC_PG_MASK {mask}"));
        assert_eq!((modes.modes[1].sm_online, modes.warnings.len()), (None, 1), "{mask}");
    }
}

#[test]
fn a_path_that_climbs_or_is_relative_is_no_path() {
    for path in ["/sys/../etc/shadow", "sys/max_freq", "../x"] {
        let modes = with("/sys/kernel/nvpmodel_emc_cap/emc_iso_cap", path);
        assert_eq!(modes.warnings.len(), 1, "{path}");
        let paths = &modes.modes[0].settings.last().unwrap().paths;
        assert_eq!(paths, &["/sys/kernel/nvpmodel_clk_cap/emc"], "{path}");
    }
}

#[test]
fn warnings_modes_and_settings_are_bounded() {
    let modes = parse(&"rubbish\n".repeat(100_000));
    assert_eq!(modes.warnings.len(), MOST_WARNINGS + 1);
    // The lines themselves, and that there is neither a mode nor a default.
    assert_eq!(modes.warnings.last().unwrap().message, format!("and {} more", 100_002 - MOST_WARNINGS));
    let many: String = (0..10_000).map(|id| format!("< POWER_MODEL ID={id} NAME=m{id} >\n")).collect();
    assert_eq!(parse(&many).modes.len(), MOST_MODES);
    let long = format!("{SMALL}< POWER_MODEL ID=7 NAME=LONG >\n{}", "GPU MAX_FREQ -1\n".repeat(10_000));
    assert_eq!(parse(&long).modes[2].settings.len(), MOST_SETTINGS);
    let params: String =
        (0..100_000).map(|n| format!("< PARAM TYPE=CLOCK NAME=P{n} >\nMAX_FREQ /sys/{n}\n")).collect();
    assert!(parse(&params).warnings.len() <= MOST_WARNINGS + 1);
    let line = parse(&format!("{SMALL}{}", "x".repeat(1 << 20)));
    assert_eq!(line.warnings.len(), 1);
    assert!(line.warnings[0].message.contains("1048576 bytes"));
}

#[test]
fn the_saved_mode_is_four_digits_with_or_without_a_fan_mode() {
    for (text, expected) in [
        ("pmode:0002", Some(2)),
        ("pmode:0002\n", Some(2)),
        ("pmode:0008 fmode:quiet\n", Some(8)),
        ("fmode:fanmode_quiet pmode:0010\n", Some(10)),
        ("pmode:0001\0\0\0", Some(1)),
        ("pmode:", None),
        ("pmode:-001", None),
        ("pmode:+1", None),
        ("pmode:99999999999", None),
        ("fmode:quiet", None),
        ("", None),
        ("\0\0\0\0", None),
    ] {
        assert_eq!(parse_status(text), expected, "{text:?}");
    }
}

#[test]
fn only_masks_gate() {
    let modes = small();
    let args: Vec<_> = gating_settings(&modes.modes[0]).map(|setting| setting.arg.as_str()).collect();
    assert_eq!(args, ["TPC_PG_MASK"]);
    let thor = "< PARAM TYPE=FILE NAME=GPU_POWER_GATING >\nGPU_PG /opt/nvidia/l4t-gpusetup/gpu_pg_mask\n\
                < POWER_MODEL ID=1 NAME=120W >\nGPU_POWER_GATING GPU_PG 512\n< PM_CONFIG DEFAULT=1 >\n";
    let modes = parse(thor);
    assert_eq!(gating_settings(&modes.modes[0]).count(), 1);
    assert_eq!(modes.modes[0].sm_online, None);
}

#[test]
fn writes_go_to_the_newest_file_that_exists_in_the_order_of_the_mode() {
    let modes = small();
    let newest = expected_writes(&modes.modes[1], |_| true);
    let expected = [
        ("/sys/devices/system/cpu/cpu0/online", "1"),
        ("/sys/devices/system/cpu/cpu1/online", "1"),
        ("/sys/devices/system/cpu/cpu2/online", "0"),
        ("/sys/devices/platform/gpu.0/tpc_pg_mask", "252"),
        ("/sys/devices/gpu.0/power/control", "on"),
        ("/sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq", "960000"),
        ("/sys/devices/platform/17000000.gpu/devfreq_dev/max_freq", "408000000"),
        ("/sys/kernel/nvpmodel_clk_cap/emc", "2133000000"),
    ];
    assert_eq!(newest, expected.map(|(path, value)| (path.to_owned(), value.to_owned())));
    let older =
        expected_writes(&modes.modes[1], |path| !path.contains("platform") && !path.contains("clk_cap"));
    assert_eq!(older[3].0, "/sys/devices/gpu.0/tpc_pg_mask");
    assert_eq!(older[7].0, "/sys/kernel/nvpmodel_emc_cap/emc_iso_cap");
    assert_eq!(expected_writes(&modes.modes[1], |_| false), newest);
}

#[test]
fn only_an_orin_of_release_39_that_lowers_its_memory_clock_is_in_danger() {
    let modes = small();
    let (full, small) = (&modes.modes[0], &modes.modes[1]);
    let highest = Some(Hertz(3199e6));
    for (l4t, danger) in [
        (Some("39.2"), true),
        (Some("R39.2.0"), true),
        (Some("40.1"), true),
        (Some("36.4.3"), false),
        (None, false),
    ] {
        assert_eq!(persists_dangerously(small, l4t, highest), danger, "{l4t:?}");
        assert!(!persists_dangerously(full, l4t, highest), "{l4t:?}: it leaves the memory clock alone");
    }
    assert!(persists_dangerously(small, Some("39.2"), None));
    assert!(!persists_dangerously(small, Some("39.2"), Some(Hertz(2133e6))), "nothing is lowered");
    let thor = parse(
        &SMALL
            .replace("CPU_A78_0", "CPU")
            .replace("17000000.ga10b", "gpu-gpc-0")
            .replace("17000000.gpu", "gpu-gpc-0"),
    );
    assert!(!persists_dangerously(&thor.modes[1], Some("39.2"), highest));
}
