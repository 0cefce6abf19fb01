use proptest::prelude::*;

use super::*;

#[test]
fn cpu_lists_of_the_kernel() {
    for (text, expected) in [
        ("0-3,5\n", Some(vec![0, 1, 2, 3, 5])),
        ("0\n", Some(vec![0])),
        ("\n", Some(vec![])),
        ("4,0-1,0", Some(vec![0, 1, 4])),
        ("3-1", None),
        ("0-4294967295", None),
        ("0-", None),
        ("-1", None),
        ("zero", None),
    ] {
        assert_eq!(cpu_list(text), expected, "{text:?}");
    }
}

#[test]
fn meminfo_is_in_kibibytes_and_never_overflows() {
    let memory = meminfo(
        "MemTotal: 24592224 kB\nMemFree: 100 kB\nMemAvailable:  5000 kB\nSwapTotal: 10 kB\nSwapFree: 4 kB\n",
    )
    .unwrap();
    assert_eq!(memory.total, Bytes(24_592_224.0 * 1024.0));
    assert_eq!(memory.available, Bytes(5000.0 * 1024.0));
    assert_eq!(memory.swap_used, Bytes(6.0 * 1024.0));
    let huge = meminfo("MemTotal: 99999999999999999999999 kB\nMemFree: -5 kB\n").unwrap();
    assert!(huge.total.0 > 1e25 && huge.free == Bytes::ZERO);
    for none in ["", "MemTotal: 0 kB", "MemTotal: -1 kB", "MemTotal: inf kB", "MemTotal: 1e9 kB", "MemTotal:"]
    {
        assert_eq!(meminfo(none), None, "{none:?}");
    }
}

#[test]
fn available_memory_is_free_memory_where_the_kernel_does_not_tell() {
    let memory = meminfo("MemTotal: 100 kB\nMemFree: 40 kB\n").unwrap();
    assert_eq!(memory.available, Bytes(40.0 * 1024.0));
}

#[test]
fn busy_and_stolen_parts_are_ratios_of_the_ticks_between_two_reads() {
    let before = cpu_times("cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1 1 1 1\n").unwrap();
    let after = cpu_times("cpu  150 0 110 830 0 0 0 10 50 0\n").unwrap();
    let (busy, steal) = after.ratios_since(&before).unwrap();
    assert_eq!(busy, 60.0 / 100.0);
    assert_eq!(steal, 10.0 / 100.0);
    assert_eq!(after.ratios_since(&after), None);
    assert_eq!(cpu_times("cpu 1 2 3\n"), None);
    assert_eq!(stat_cpus("cpu  1 2 3 4\ncpu0 1\ncpu2 1\nintr 5\n"), [0, 2]);
    assert_eq!(stat_cpus("cpu  1 2 3 4\ncpu0 1\ncpu1"), [0], "it may have been cpu12");
}

#[test]
fn pressure_is_a_ratio() {
    let text =
        "some avg10=3.48 avg60=2.59 avg300=1.75 total=21254259\nfull avg10=9.00 avg60=0 avg300=0 total=0\n";
    assert!((pressure_some(text).unwrap() - 0.0348).abs() < 1e-12);
    assert_eq!(pressure_some("some avg10=nan total=1"), None);
    assert_eq!(pressure_some("some avg10=1e300 total=1"), None);
    assert_eq!(load_average("0.64 0.50 0.33 2/93 11812"), Some(0.64));
    assert_eq!(load_average("-1 0 0"), None);
}

#[test]
fn cache_sizes_have_a_letter() {
    for (text, expected) in [
        ("32768K\n", Some(32 << 20)),
        ("4M", Some(4 << 20)),
        ("512", Some(512)),
        ("0K", None),
        ("K", None),
        ("99999999999999999999K", None),
        ("18446744073709551615G", None),
        ("8\u{1d0a}", None),
    ] {
        assert_eq!(cache_size(text), expected, "{text:?}");
    }
}

#[test]
fn temperatures_off_and_implausible_are_told_apart() {
    assert_eq!(millidegrees("45500\n"), Some(Temperature::Known(Celsius(45.5))));
    assert_eq!(millidegrees("-256000\n"), Some(Temperature::Off));
    assert_eq!(millidegrees("2147483647"), Some(Temperature::Implausible(Celsius(2_147_483.647))));
    assert_eq!(millidegrees(""), None);
    assert_eq!(microwatts("15250000"), Some(Watts(15.25)));
    assert_eq!(microwatts("-392000\n"), Some(Watts(-0.392)));
    for none in ["", "-", "--1", "1e6", "-1000000000001", "9223372036854775807", "18446744073709159616"] {
        assert_eq!(microwatts(none), None, "{none}");
    }
    assert_eq!(kilohertz("4050000"), Some(Hertz(4.05e9)));
    assert_eq!(kilohertz("0"), None);
}

#[test]
fn x86_has_a_model_name_and_flags() {
    let info = cpuinfo(
        "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC\nflags\t\t: fpu lm avx2\n\nprocessor\t: 1\nmodel name\t: AMD EPYC\n",
    );
    assert_eq!(info.model.as_deref(), Some("AMD EPYC"));
    assert_eq!(info.features, ["fpu", "lm", "avx2"]);
    assert_eq!((info.architecture, info.processors), (Some("x86_64"), 2));
}

#[test]
fn arm64_cores_are_named_by_implementer_and_part() {
    let core = |number: u32, implementer: &str, part: &str| {
        format!(
            "processor\t: {number}\nmodel name\t: ARMv8 Processor rev 1 (v8l)\nFeatures\t: fp asimd asimddp\nCPU implementer\t: {implementer}\nCPU architecture: 8\nCPU part\t: {part}\n\n"
        )
    };
    let orin = cpuinfo(&core(0, "0x41", "0xd42"));
    assert_eq!(orin.model.as_deref(), Some("Cortex-A78AE"));
    assert_eq!((orin.architecture, orin.features.len()), (Some("aarch64"), 3));
    let xavier = cpuinfo(&core(0, "0x4e", "0x004"));
    assert_eq!(xavier.model.as_deref(), Some("Carmel"));
    let gb10 =
        cpuinfo(&[core(0, "0x41", "0xd87"), core(1, "0x41", "0xd85"), core(2, "0x41", "0xd85")].concat());
    assert_eq!(gb10.model.as_deref(), Some("1x Cortex-A725 + 2x Cortex-X925"));
    let unknown = cpuinfo(&core(0, "0x7f", "0x123"));
    assert_eq!(unknown.model.as_deref(), Some("arm core 0x7f:0x123"));
    for (part, name) in [
        ("0xd07", "Cortex-A57"),
        ("0xd08", "Cortex-A72"),
        ("0xd0b", "Cortex-A76"),
        ("0xd0c", "Neoverse-N1"),
        ("0xd49", "Neoverse-N2"),
        ("0xd4f", "Neoverse-V2"),
    ] {
        assert_eq!(cpuinfo(&core(0, "0x41", part)).model.as_deref(), Some(name));
    }
}

#[test]
fn risc_v_power_and_loongarch_name_their_core_otherwise() {
    let info = cpuinfo("processor\t: 0\nhart\t\t: 1\nisa\t\t: rv64imafdc_zicsr\nuarch\t\t: sifive,u74-mc\n");
    assert_eq!((info.architecture, info.model.as_deref()), (Some("riscv64"), Some("sifive,u74-mc")));
    assert_eq!(info.features, [""; 0]);
    let info = cpuinfo("processor\t: 0\nmodel name\t: Spacemit(R) X60\nisa\t\t: rv64imafdcv_sscofpmf\n");
    assert_eq!((info.architecture, info.model.as_deref()), (Some("riscv64"), Some("Spacemit(R) X60")));
    assert_eq!(info.features, ["v"]);
    let info = cpuinfo("processor\t: 0\nisa\t\t: rv64imac\n");
    assert_eq!(info.model.as_deref(), Some("rv64imac"));
    let power = "processor\t: 0\ncpu\t\t: POWER9, altivec supported\nclock\t\t: 3800.000000MHz\n\ntimebase\t: 512000000\n";
    let info = cpuinfo(power);
    assert_eq!((info.architecture, info.model.as_deref()), (Some("powerpc64"), Some("POWER9")));
    assert_eq!(info.features, ["altivec"]);
    let loongson = "processor\t: 0\nCPU Family\t: Loongson-64bit\nModel Name\t: Loongson-3A6000\nFeatures\t: fpu lsx lasx\n";
    let info = cpuinfo(loongson);
    assert_eq!((info.architecture, info.model.as_deref()), (Some("loongarch64"), Some("Loongson-3A6000")));
    assert_eq!(info.features, ["fpu", "lsx", "lasx"]);
    assert_eq!(cpuinfo("processor\t: 0\nisa\t: x\ncpu\t: y\n").architecture, None);
}

#[test]
fn names_lose_what_a_terminal_would_obey() {
    assert_eq!(label("NVIDIA Jetson AGX Orin\0junk").as_deref(), Some("NVIDIA Jetson AGX Orin"));
    assert_eq!(label("\u{1b}[31mred\r\n").as_deref(), Some("[31mred"));
    assert_eq!(label(" \n"), None);
    assert_eq!(dmi_string("To Be Filled By O.E.M.\n"), None);
    assert_eq!(device_tree_strings("nvidia,p3737\0nvidia,tegra234\0"), ["nvidia,p3737", "nvidia,tegra234"]);
    let release = "NAME=Debian\nPRETTY_NAME=\"Debian GNU/Linux 12\"\nVERSION='12'\n";
    assert_eq!(os_release(release, "PRETTY_NAME").as_deref(), Some("Debian GNU/Linux 12"));
    assert_eq!(os_release(release, "VERSION").as_deref(), Some("12"));
    assert_eq!(os_release(release, "ID"), None);
}

/// Texts that look like the formats, broken in places, and plain noise.
fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        proptest::collection::vec(any::<u8>(), 0..400)
            .prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        "[-0-9,. KMG]{0,40}",
        "((cpu[0-9 ]{0,4}|MemTotal:|MemFree:|SwapTotal:|some avg10=|processor:|CPU implementer:|CPU part:|flags:|PRETTY_NAME=) ?[-0-9a-fxkB\"'. ]{0,24}\n){0,8}",
    ]
}

proptest! {
    #[test]
    fn no_text_makes_a_parser_panic(text in texts(), earlier in texts()) {
        let _ = (unsigned(&text), signed(&text), label(&text), dmi_string(&text), device_tree_strings(&text));
        let _ = (os_release(&text, "PRETTY_NAME"), stat_cpus(&text), cpuinfo(&text), cache_size(&text));
        let _ = (kilohertz(&text), millidegrees(&text), microwatts(&text), load_average(&text));
        if let Some(memory) = meminfo(&text) {
            prop_assert!(memory.total.is_positive() && memory.available <= memory.total);
            prop_assert!(memory.swap_used >= Bytes::ZERO);
        }
        if let Some(pressure) = pressure(&text, Some(&earlier)) {
            prop_assert!((0.0..=1.0).contains(&pressure.memory_some_ratio));
        }
        if let (Some(now), Some(before)) = (cpu_times(&text), cpu_times(&earlier))
            && let Some((busy, steal)) = now.ratios_since(&before)
        {
            prop_assert!((0.0..=1.0).contains(&busy) && (0.0..=1.0).contains(&steal));
        }
    }

    #[test]
    fn a_cpu_list_is_ascending_and_bounded(text in "[-0-9,]{0,60}") {
        if let Some(cpus) = cpu_list(&text) {
            prop_assert!(cpus.windows(2).all(|pair| pair[0] < pair[1]));
            prop_assert!(cpus.len() <= 8192);
        }
    }
}
