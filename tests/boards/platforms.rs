//! Machines of other makers, variants of cards, and containers that renumber or mask: each is a tree of this directory with the
//! few files that matter changed.

use rooflined_core::board::{Board, BoardState};
use rooflined_core::hardware::Hardware;
use rooflined_core::units::Seconds;
use rooflined_hw::{Sampler, SysRoot};

use crate::machines::said;
use crate::sensors::changed;
use crate::tree::{self, Node, nodes, put, unpack};

fn total(state: &BoardState) -> (f64, &str) {
    let total = state.total_power.known().unwrap_or_else(|| panic!("{:?}", state.total_power));
    (total.power.0, total.scope.as_str())
}

/// A board with nodes that are no plain files.
fn changed_nodes(board: &str, changes: &[(&str, Node)]) -> (Board, BoardState) {
    tree::obey_permissions();
    let dir = unpack(&nodes(board, "tree.txt"));
    for (path, node) in changes {
        put(dir.path(), path, node);
    }
    let root = SysRoot::new(dir.path());
    let (board, discovered) = rooflined_hw::discover(&root);
    let state = Sampler::new(&root, discovered).sample(Seconds(1.0));
    (board, state)
}

#[test]
fn processors_that_are_neither_x86_nor_arm_have_a_name_and_an_architecture() {
    for (text, architecture, model) in [
        ("processor\t: 0\nisa\t\t: rv64imafdc_zicsr\nuarch\t\t: sifive,u74-mc\n", "riscv64", "sifive,u74-mc"),
        ("processor\t: 0\nmodel name\t: Spacemit(R) X60\nisa\t: rv64imafdcv\n", "riscv64", "Spacemit(R) X60"),
        (
            "processor\t: 0\ncpu\t\t: POWER9, altivec supported\nclock\t: 3800MHz\n\ntimebase\t: 1\n",
            "powerpc64",
            "POWER9",
        ),
    ] {
        let (board, _) = changed("server-arm64", &[("/proc/cpuinfo", text)]);
        assert_eq!(board.cpu.architecture, architecture);
        assert_eq!(board.cpu.model.known().map(String::as_str), Some(model), "{architecture}");
    }
}

#[test]
fn efficient_cores_are_known_by_every_device_that_counts_them_and_by_their_maker() {
    let efficient = |board: &str, files: &[(&str, &str)]| -> Vec<u32> {
        let kinds = changed(board, files).0.cpu.kinds;
        kinds.into_iter().filter(|core| core.efficient).map(|core| core.first).collect()
    };
    let (atom, low) = ("/sys/devices/cpu_atom/cpus", "/sys/devices/cpu_lowpower/cpus");
    assert_eq!(efficient("laptop-x86", &[(atom, "1-2")]), [1, 2]);
    assert_eq!(efficient("laptop-x86", &[(atom, "1-2"), (low, "3")]), [1, 2, 3]);
    assert_eq!(efficient("laptop-x86", &[(low, "3")]), [3]);
    // A processor that has no others.
    let intel = |model: &str| {
        format!(
            "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: {model}\nflags\t: lm\n"
        )
    };
    assert_eq!(efficient("vm-x86", &[("/proc/cpuinfo", &intel("190"))]), [0, 1]);
    assert_eq!(efficient("vm-x86", &[("/proc/cpuinfo", &intel("151"))]), [0; 0]);
    let core = |number: u32, maker: &str, part: &str| {
        format!(
            "processor\t: {number}\nCPU implementer\t: {maker}\nCPU architecture: 8\nCPU part\t: {part}\n\n"
        )
    };
    for (maker, little, big) in [
        ("0x41", "0xd05", "0xd0b"),
        ("0x51", "0x805", "0x804"),
        ("0x61", "0x022", "0x023"),
        ("0x61", "0x032", "0x033"),
    ] {
        let text = [core(0, maker, little), core(1, maker, big)].concat();
        let cpus: Vec<String> = (2..4).map(|cpu| format!("/sys/devices/system/cpu/cpu{cpu}")).collect();
        let mut files = vec![("/proc/cpuinfo", text.as_str())];
        files.extend(cpus.iter().map(|path| (path.as_str(), "gone")));
        assert_eq!(efficient("server-arm64", &files), [0], "{maker} {little}");
    }
}

#[test]
fn a_container_that_masks_meters_is_said_to_and_not_that_there_are_none() {
    let link = |zone: &str| Node::Link(format!("../../devices/virtual/powercap/{zone}"));
    let masked = [
        ("/sys/class/powercap", Node::Gone),
        ("/sys/devices/virtual/powercap", Node::Dir),
        ("/sys/class/powercap/intel-rapl", link("intel-rapl")),
        ("/sys/class/powercap/intel-rapl:0", link("intel-rapl/intel-rapl:0")),
    ];
    for board in ["server-arm64", "vm-x86", "gpu-unknown"] {
        let (_, state) = changed_nodes(board, &masked);
        if let Some(reason) = state.rails.reason() {
            assert!(reason.contains("a container hides what is in /sys/class/powercap"), "{board}: {reason}");
        }
        let (_, state) = changed_nodes(board, &[("/sys/class/powercap", Node::Dir)]);
        let reason = state.rails.reason().unwrap_or_default();
        assert!(!reason.contains("container"), "{board}, an empty class: {reason}");
    }
    let reason = changed_nodes("vm-x86", &masked).1.total_power.reason().unwrap().to_owned();
    assert!(reason.contains("a container hides what is in /sys/class/powercap"), "{reason}");
    let counters = "/sys/devices/system/cpu/cpu0/thermal_throttle";
    let (_, state) = changed_nodes("vm-x86", &[(counters, Node::Gone), (counters, Node::Dir)]);
    let reason = state.throttle.reason().unwrap();
    assert!(
        reason.contains("a container hides what is in /sys/devices/system/cpu/cpu0/thermal_throttle"),
        "{reason}"
    );
}

#[test]
fn cpus_that_a_container_leaves_out_of_the_list_are_not_counted() {
    let present = "/sys/devices/system/cpu/present";
    let counted = |files: &[(&str, &str)]| {
        let (board, state) = changed("server-arm64", files);
        (board.cpu.logical, state.cores_online.known().copied(), board.notes)
    };
    let [online, offline] = ["online", "offline"].map(|name| format!("/sys/devices/system/cpu/{name}"));
    for (shown, off, allowed, count) in [
        // Numbered from zero again.
        ("0", "", "24", 1),
        ("0-3", "", "2,5,17,20", 4),
        // With their own numbers.
        ("8-9,24-25", "", "8-9,24-25", 4),
        ("8-9,24-25", "", "8-9", 2),
    ] {
        let status = format!("Cpus_allowed_list:\t{allowed}");
        let files = [
            (present, "0-31"),
            (online.as_str(), shown),
            (offline.as_str(), off),
            ("/proc/self/status", status.as_str()),
        ];
        let (logical, cores, notes) = counted(&files);
        assert_eq!((logical, cores), (count, Some(count)), "{shown} {allowed}");
        assert!(said(&notes, "this container shows"), "{notes:?}");
    }
    // CPUs that are off are there, and so are those of a kernel that does not say which are off.
    let files = [
        (present, "0-31"),
        (online.as_str(), "0-7"),
        (offline.as_str(), "8-31,32-511"),
        ("/proc/self/status", "x"),
    ];
    assert_eq!((counted(&files).0, counted(&files).1), (32, Some(8)));
    let files = [(present, "0-31"), (online.as_str(), "0-7"), (offline.as_str(), "gone")];
    assert_eq!(counted(&files).0, 32);
}

#[test]
fn control_groups_that_are_mounted_elsewhere_limit_as_well() {
    let version_1 = [
        ("/proc/self/mountinfo", "30 20 0:26 / /cgroup rw,relatime - cgroup none rw,cpuset,cpu,memory"),
        ("/proc/self/cgroup", "6:cpuset,cpu,memory:/lxc/test"),
        ("/cgroup/lxc/memory.limit_in_bytes", "3221225472"),
        ("/cgroup/lxc/memory.usage_in_bytes", "536870912"),
        ("/cgroup/lxc/test/cpuset.cpus", "1-3"),
        ("/cgroup/lxc/cpu.cfs_quota_us", "200000"),
        ("/cgroup/lxc/cpu.cfs_period_us", "100000"),
    ];
    let unified = [
        ("/proc/self/mountinfo", "30 20 0:26 / /cg2 rw,nosuid shared:4 - cgroup2 none rw,nsdelegate\nx"),
        ("/proc/self/cgroup", "0::/a/b"),
        ("/cg2/a/memory.max", "3221225472"),
        ("/cg2/a/memory.current", "536870912"),
        ("/cg2/a/b/cpu.max", "200000 100000"),
    ];
    for files in [version_1.as_slice(), unified.as_slice()] {
        let (board, state) = changed("laptop-x86", files);
        assert_eq!(state.memory.known().map(|memory| memory.total.get()), Some(3_221_225_472.0), "{files:?}");
        assert_eq!(state.cores_online.known(), Some(&2), "{files:?}: {:?}", board.notes);
    }
    // Of another file system at such a place nothing is said.
    let other =
        [version_1.as_slice(), &[("/proc/self/mountinfo", "30 20 0:26 / /cgroup rw - tmpfs none rw,memory")]];
    let (_, state) = changed("laptop-x86", &other.concat());
    assert_ne!(state.memory.known().map(|memory| memory.total.get()), Some(3_221_225_472.0));
}

#[test]
fn an_amd_gpu_is_the_package_where_the_cpu_is_in_it() {
    let dir = "/sys/class/hwmon/hwmon20";
    let meter = |files: &[(&str, &str)]| {
        let files: Vec<(String, &str)> =
            files.iter().map(|(name, text)| (format!("{dir}/{name}"), *text)).collect();
        let mut files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let name = format!("{dir}/name");
        files.push((name.as_str(), "amdgpu"));
        changed("vm-x86", &files).1
    };
    let apu = [
        ("in0_label", "vddgfx"),
        ("in1_label", "vddnb"),
        ("power1_label", "PPT"),
        ("power1_average", "54000000"),
    ];
    assert_eq!(total(&meter(&apu)), (54.0, "package"));
    // A handheld has two limits, and one power for each.
    let deck = [
        ("in1_label", "vddnb"),
        ("power1_label", "slowPPT"),
        ("power1_input", "5030000"),
        ("power2_label", "fastPPT"),
        ("power2_input", "6000000"),
    ];
    assert_eq!(total(&meter(&deck)), (5.03, "package"));
    // Without a label of its own, on an older kernel.
    assert_eq!(total(&meter(&[("in1_label", "vddnb"), ("power1_input", "17080000")])), (17.08, "package"));
    // A card draws for itself alone, and a microwatt is nothing that a machine draws.
    for files in [&apu[2..], &[("in1_label", "vddnb"), ("power1_input", "1000")]] {
        assert!(meter(files).total_power.known().is_none());
    }
}

#[test]
fn brakes_of_every_kernel_are_throttling_and_fans_are_not() {
    let throttled = |board: &str, device: &str, state: &str| {
        let dir = "/sys/class/thermal/cooling_device40";
        let [kind, level] = ["type", "cur_state"].map(|file| format!("{dir}/{file}"));
        let state = changed(board, &[(&kind, device), (&level, state)]).1;
        state.throttle.known().map(|throttle| throttle.active)
    };
    for board in ["agx-orin-64gb-jp5", "xavier-nx", "agx-thor-t5000", "orin-nano-8gb-super"] {
        for device in
            ["cpu-throttle-alert", "cpu_throttle_alert", "gpu-balanced", "gpu_balanced", "17000000.gpu"]
        {
            assert_eq!(throttled(board, device, "1"), Some(true), "{board} {device}");
            assert_eq!(throttled(board, device, "0"), Some(false), "{board} {device}");
        }
        for device in ["pwm-fan", "hot-surface-alert", "Fan"] {
            assert_ne!(throttled(board, device, "1"), Some(true), "{board} {device}");
        }
    }
}

/// A card with this name, compute capability, CUDA cores, width of the bus and highest memory clock.
fn card(name: &str, parts: [&str; 4]) -> Board {
    let getters = ["compute_capability", "num_gpu_cores", "memory_bus_width_bits", "max_memory_clock_mhz"];
    let paths = getters.map(|getter| format!("/rooflined/nvml/0/{getter}"));
    let mut files = vec![("/rooflined/nvml/0/name", name)];
    files.extend(paths.iter().map(String::as_str).zip(parts));
    changed("h100", &files).0
}

#[test]
fn a_card_has_the_bandwidth_of_its_own_memory() {
    for (name, parts, gigabytes) in [
        ("NVIDIA GeForce RTX 4070", ["8.9", "5888", "192", "10501"], 504.0),
        ("NVIDIA GeForce RTX 4070", ["8.9", "5888", "192", "10001"], 480.0),
        ("Tesla V100-SXM2-32GB", ["7.0", "5120", "4096", "877"], 900.0),
        ("NVIDIA H20", ["9.0", "9984", "6144", "2619"], 4000.0),
        ("NVIDIA H20-3e", ["9.0", "9984", "6144", "3201"], 4917.0),
    ] {
        let board = card(name, parts);
        let hardware = Hardware::of_board(&board).unwrap();
        assert_eq!((hardware.bandwidth.get() / 1e9).round(), gigabytes, "{name}: {:?}", board.notes);
        let is_other = said(&board.notes, "other memory is sold under this name");
        let entry = rooflined_core::hardware::registry().get(&board.key).unwrap();
        assert_eq!(is_other, hardware.bandwidth != entry.bandwidth, "{name}: {:?}", board.notes);
    }
    // It has other clocks than SXM2, whose entry says what it computes.
    let sxm3 = Hardware::of_board(&card("Tesla V100-SXM3-32GB", ["7.0", "5120", "4096", "958"])).unwrap();
    assert_eq!((sxm3.key.as_str(), (sxm3.bandwidth.get() / 1e9).round()), ("unlisted-gpu", 981.0));
    // Its tensor units are a fraction of those of the cards with the same compute capability.
    let peak = |board: &Board| {
        let hardware = Hardware::of_board(board).unwrap();
        hardware.rates[&rooflined_core::precision::Precision::Fp16]
            * f64::from(hardware.sm)
            * hardware.gpu_clock.get()
    };
    let h20 = peak(&card("NVIDIA H20", ["9.0", "9984", "6144", "2619"]));
    assert!((h20 / 148e12 - 1.0).abs() < 0.01, "{h20}");
}

#[test]
fn an_instance_that_only_its_name_tells_of_has_its_share() {
    for (name, capability, sm, share) in [
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "8.0", 14, 10.0 / 80.0),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", "8.0", 42, 40.0 / 80.0),
        ("NVIDIA H100 80GB HBM3 MIG 2g.20gb", "9.0", 32, 20.0 / 80.0),
    ] {
        // NVML has no more than the name, and the memory of the instance.
        let files = [
            ("/rooflined/nvml/0/name", name),
            ("/rooflined/nvml/0/compute_capability", capability),
            ("/rooflined/nvml/0/memory_total_bytes", "10737418240"),
        ];
        let (board, state) = changed("h100", &files);
        assert_eq!(state.sm_online.known(), Some(&sm), "{name}: {:?}", board.notes);
        assert!(said(&board.notes, &format!("it has {sm} SMs and its share")), "{:?}", board.notes);
        let (part, whole) = (
            Hardware::of_board(&board).unwrap(),
            rooflined_core::hardware::registry().get(&board.key).unwrap(),
        );
        assert_eq!(part.sm, sm);
        assert!((part.bandwidth / whole.bandwidth - share).abs() < 0.02, "{name}: {}", part.bandwidth);
    }
}

#[test]
fn a_card_in_a_board_with_a_gpu_of_its_own_is_said_to_be_left_out() {
    for board in ["agx-thor-t5000", "igx-orin"] {
        let name = if board == "igx-orin" { "NVIDIA RTX A6000" } else { "NVIDIA Thor" };
        let second =
            [("/rooflined/nvml/0/name", name), ("/rooflined/nvml/1/name", "NVIDIA RTX PRO 6000 Blackwell")];
        let (found, _) = changed(board, &second);
        assert!(said(&found.notes, "ignored"), "{board}: {:?}", found.notes);
        assert!(!said(&changed(board, &[]).0.notes, "ignored"), "{board}");
    }
}

#[test]
fn the_gpus_of_windows_are_there_of_any_maker() {
    let display = [
        ("/sys/bus/pci/devices/5582:00:00.0/vendor", "0x1414"),
        ("/sys/bus/pci/devices/5582:00:00.0/device", "0x008e"),
        ("/sys/bus/pci/devices/5582:00:00.0/class", "0x030200"),
    ];
    let with = [&display[..], &[("/dev/dxg", "")]].concat();
    let (board, _) = changed("vm-x86", &with);
    let reason = board.gpu.reason().unwrap();
    assert!(
        reason.starts_with("Windows shares its GPUs (/dev/dxg), but NVIDIA's driver does not answer"),
        "{reason}"
    );
    let (board, _) = changed("vm-x86", &display);
    assert!(board.gpu.reason().unwrap().starts_with("no NVIDIA GPU: none among"), "{:?}", board.gpu);
}

#[test]
fn what_is_read_on_tegras_only_says_so_where_another_gpu_is() {
    let files = [
        ("/sys/class/devfreq/fb000000.gpu/governor", "simple_ondemand"),
        ("/sys/class/devfreq/fb000000.gpu/cur_freq", "300000000"),
    ];
    for board in ["server-arm64", "laptop-x86"] {
        let (_, state) = changed(board, &files);
        let reason = state.details.gpu_control.reason().unwrap();
        assert!(reason.starts_with("how a GPU's clock is governed is read on Tegras only: "), "{reason}");
    }
    // A Tegra that the registry does not have is held against no data sheet.
    let nano = [
        (
            "/proc/device-tree/compatible",
            "nvidia,p3542-0000+p3448-0003\0nvidia,jetson-nano-2gb\0nvidia,tegra210",
        ),
        ("/etc/nvpmodel.conf", "gone"),
    ];
    let (_, state) = changed("orin-nano-8gb-super", &nano);
    let reason = state.sm_online.reason().unwrap();
    assert!(reason.ends_with("the hardware registry has no entry of this module"), "{reason}");
}
