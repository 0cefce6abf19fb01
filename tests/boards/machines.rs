//! Machines that hide something: containers, GPUs without their driver, cards that nobody has described, meters of several kinds.
//! Each starts from a tree of this directory and changes the few files that matter.

use rooflined_core::board::{Board, BoardState, Reading};
use rooflined_core::hardware::Hardware;
use rooflined_hw::SysRoot;

use crate::sensors::changed;
use crate::tree::{self, Node, nodes, put, unpack};

fn total(state: &BoardState) -> (f64, &str) {
    let total = state.total_power.known().unwrap_or_else(|| panic!("{:?}", state.total_power));
    (total.power.0, total.scope.as_str())
}

pub fn said(notes: &[String], words: &str) -> bool {
    notes.iter().any(|note| note.contains(words))
}

const IGX: &str = "nvidia,p3740-0002+p3834-0008\0nvidia,p3834-0008\0nvidia,tegra264";
const UNLISTED: &str = "nvidia,p4071-0000+p3834-0011\0nvidia,p3834-0011\0nvidia,tegra264";
const MASKS: &str = "< PARAM TYPE=FILE NAME=GPU_POWER_GATING >\nGPU_PG_MASK /opt/nvidia/l4t-gpusetup/gpu_pg_mask\n\
                     < PARAM TYPE=CLOCK NAME=GPU >\nMAX_FREQ /sys/class/devfreq/gpu-gpc-0/max_freq\n";

/// A Thor with two modes of its owner, in the second of them. Their clocks are the wrong way round for their SMs.
fn thor(compatible: &str, mask: &str) -> (Board, BoardState) {
    let modes = format!(
        "{MASKS}< POWER_MODEL ID=0 NAME=wide >\nGPU_POWER_GATING GPU_PG_MASK 64\nGPU MAX_FREQ 1530000000\n\
         < POWER_MODEL ID=1 NAME=mine >\nGPU_POWER_GATING GPU_PG_MASK {mask}\nGPU MAX_FREQ 1386000000\n\
         < PM_CONFIG DEFAULT=0 >"
    );
    let files = [
        ("/proc/device-tree/compatible", compatible),
        ("/etc/nv_boot_control.conf", "gone"),
        ("/etc/nvpmodel.conf", modes.as_str()),
        ("/var/lib/nvpmodel/status", "pmode:0001"),
        ("/sys/class/devfreq/gpu-gpc-0/max_freq", "1386000000"),
    ];
    changed("agx-thor-t5000", &files)
}

#[test]
fn the_sms_of_a_thor_follow_from_the_mask_of_its_mode_and_not_from_its_clock() {
    for compatible in [IGX, UNLISTED, "nvidia,p3971-0089+p3834-0008\0nvidia,p3834-0008\0nvidia,tegra264"] {
        let (board, state) = thor(compatible, "15873");
        let mode = state.power_mode.known().unwrap_or_else(|| panic!("{:?}", state.power_mode));
        assert_eq!((mode.name.as_str(), state.sm_online.known()), ("mine", Some(&12)), "{}", board.key);
        let (_, state) = thor(compatible, "64");
        assert_eq!(state.sm_online.known(), Some(&20), "{compatible}");
        // A mask that nobody has published, under a name that no data sheet has.
        let (_, state) = thor(compatible, "7");
        let reason = state.sm_online.reason().unwrap_or_else(|| panic!("{:?}", state.sm_online));
        assert!(reason.contains("the power mode mine sets no mask"), "{compatible}: {reason}");
    }
}

const GIB: u64 = 1 << 30;

#[test]
fn a_container_has_the_memory_and_the_cpus_of_its_control_groups_at_every_level() {
    let (all, before) = changed("laptop-x86", &[]);
    let (limit, high) = ((4 * GIB).to_string(), (6 * GIB).to_string());
    // The limit is two levels up, and there is a quota at the level between.
    let nested = [
        ("/proc/self/cgroup", "0::/pod/box/leaf"),
        ("/sys/fs/cgroup/pod/memory.max", limit.as_str()),
        ("/sys/fs/cgroup/pod/memory.current", "2147483648"),
        ("/sys/fs/cgroup/pod/memory.stat", "anon 1073741824\ninactive_file 1073741824"),
        ("/sys/fs/cgroup/pod/box/cpu.max", "150000 100000"),
        ("/sys/fs/cgroup/pod/box/memory.high", high.as_str()),
        ("/sys/fs/cgroup/pod/box/leaf/memory.max", "max"),
        ("/sys/fs/cgroup/pod/box/leaf/cpu.max", "max 100000"),
    ];
    // A container sees its own group at the root of the mount, whatever the host calls it.
    let own = [
        ("/proc/self/cgroup", "0::/system.slice/docker-0123.scope"),
        ("/sys/fs/cgroup/memory.max", limit.as_str()),
        ("/sys/fs/cgroup/memory.current", "1073741824"),
        ("/sys/fs/cgroup/cpuset.cpus.effective", "2-3"),
    ];
    let version_1 = [
        ("/proc/self/cgroup", "5:memory:/docker/ab\n4:cpu,cpuacct:/docker/ab\n3:cpuset:/docker/ab"),
        ("/sys/fs/cgroup/memory/docker/ab/memory.limit_in_bytes", limit.as_str()),
        ("/sys/fs/cgroup/memory/docker/ab/memory.usage_in_bytes", "2147483648"),
        ("/sys/fs/cgroup/memory/docker/ab/memory.stat", "inactive_file 1\ntotal_inactive_file 1073741824"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712"),
        ("/sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.cfs_quota_us", "200000"),
        ("/sys/fs/cgroup/cpu,cpuacct/docker/ab/cpu.cfs_period_us", "100000"),
        ("/sys/fs/cgroup/cpuset/docker/ab/cpuset.cpus", "0-5"),
    ];
    // Each controller has its limit at a level of its own, and a level between has none.
    let version_1_nested = [
        ("/proc/self/cgroup", "5:memory:/pod/box/leaf\n4:cpu,cpuacct:/pod/box/leaf\n3:cpuset:/pod/box/leaf"),
        ("/sys/fs/cgroup/memory/pod/memory.limit_in_bytes", limit.as_str()),
        ("/sys/fs/cgroup/memory/pod/memory.usage_in_bytes", "2147483648"),
        ("/sys/fs/cgroup/memory/pod/memory.stat", "inactive_file 1\ntotal_inactive_file 1073741824"),
        ("/sys/fs/cgroup/memory/pod/box/memory.limit_in_bytes", "9223372036854771712"),
        ("/sys/fs/cgroup/memory/pod/box/leaf/memory.limit_in_bytes", high.as_str()),
        ("/sys/fs/cgroup/cpu,cpuacct/pod/box/cpu.cfs_quota_us", "150000"),
        ("/sys/fs/cgroup/cpu,cpuacct/pod/box/cpu.cfs_period_us", "100000"),
        ("/sys/fs/cgroup/cpu,cpuacct/pod/box/leaf/cpu.cfs_quota_us", "-1"),
        ("/sys/fs/cgroup/cpu,cpuacct/pod/box/leaf/cpu.cfs_period_us", "100000"),
        ("/sys/fs/cgroup/cpuset/pod/cpuset.cpus", "0-5"),
        ("/sys/fs/cgroup/cpuset/pod/box/cpuset.cpus", "0-7"),
    ];
    for files in [nested.as_slice(), own.as_slice(), version_1.as_slice(), version_1_nested.as_slice()] {
        let (board, state) = changed("laptop-x86", files);
        let memory = state.memory.known().unwrap();
        let total = 4.0 * GIB as f64;
        assert!((memory.total.get() - total).abs() < 1.0, "{files:?}: {memory:?}");
        assert!((memory.available.get() - 0.75 * total).abs() < 2.0, "{files:?}: {memory:?}");
        assert_eq!(board.memory_total.known().map(|total| total.get()), Some(total));
        assert_eq!((state.cores_online.known(), board.cpu.logical), (Some(&2), 2), "{files:?}");
        assert!(said(&board.notes, "this process gets 2 of 7 CPUs"), "{:?}", board.notes);
        assert!(said(&board.notes, "of memory: /sys/fs/cgroup/"), "{:?}", board.notes);
    }
    // The daemon's own unit limits the daemon, and what engines get is the machine.
    let service = [
        ("/proc/self/cgroup", "0::/system.slice/rooflined.service"),
        ("/sys/fs/cgroup/system.slice/rooflined.service/memory.max", "5368709120"),
        ("/sys/fs/cgroup/system.slice/rooflined.service/cpu.max", "100000 100000"),
    ];
    let (board, state) = changed("laptop-x86", &service);
    assert_eq!(board.memory_total, all.memory_total);
    assert_eq!((state.memory, state.cores_online), (before.memory, before.cores_online));
}

/// The mode and the SMs are those of the machine, however few of its CPUs a process gets.
#[test]
fn a_quota_or_an_affinity_changes_no_power_mode() {
    let boards = [
        "agx-orin-32gb",
        "agx-orin-64gb",
        "agx-orin-64gb-jp5",
        "agx-thor-t4000",
        "agx-thor-t5000",
        "igx-orin",
        "orin-nano-4gb",
        "orin-nano-8gb",
        "orin-nano-8gb-super-15w",
        "orin-nx-16gb",
        "orin-nx-8gb",
        "xavier-nx",
        "agx-xavier",
    ];
    for board in boards {
        let (_, whole) = changed(board, &[]);
        for (limit, text) in [
            ("/sys/fs/cgroup/cpu.max", "200000 100000"),
            ("/sys/fs/cgroup/cpuset.cpus.effective", "0-1"),
            ("/proc/self/status", "Cpus_allowed_list:\t1"),
        ] {
            let (_, state) = changed(board, &[("/proc/self/cgroup", "0::/docker/ab"), (limit, text)]);
            assert!(state.cores_online.known() <= Some(&2), "{board}: {:?}", state.cores_online);
            assert_eq!(state.power_mode, whole.power_mode, "{board}, {limit}: {:?}", state.mode_note);
            assert_eq!(state.sm_online, whole.sm_online, "{board}, {limit}");
        }
    }
}

#[test]
fn cpus_that_a_container_numbers_from_zero_again_are_counted() {
    for (online, allowed, count) in [
        ("0-3", "2,5,17,20", 4),
        ("0-3", "3-6", 4),
        ("0-7", "4-11", 8),
        ("0", "24", 1),
        ("0-5", "1-2", 2),
        ("0-3", "2-5", 2),
    ] {
        let files = [
            ("/sys/devices/system/cpu/online", online),
            // Of the last one, two that it may run on are off.
            ("/sys/devices/system/cpu/offline", if count == 2 { "4-5" } else { "" }),
            ("/proc/self/status", &format!("Cpus_allowed_list:\t{allowed}")),
        ];
        let (_, state) = changed("server-arm64", &files);
        assert_eq!(state.cores_online.known(), Some(&count), "{online}, {allowed}");
    }
}

#[test]
fn a_limit_above_the_levels_that_a_container_sees_counts() {
    let files = [
        ("/proc/self/cgroup", "5:memory:/"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712"),
        ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "1073741824"),
        (
            "/sys/fs/cgroup/memory/memory.stat",
            "cache 0\nhierarchical_memory_limit 4294967296\ntotal_inactive_file 0",
        ),
    ];
    let (_, state) = changed("laptop-x86", &files);
    assert_eq!(state.memory.known().map(|memory| memory.total.get()), Some(4.0 * GIB as f64));
    let (_, before) = changed("laptop-x86", &[]);
    let (_, state) =
        changed("laptop-x86", &[files[0], (files[3].0, "hierarchical_memory_limit 9223372036854771712")]);
    assert_eq!(
        state.memory.known().map(|memory| memory.total),
        before.memory.known().map(|memory| memory.total)
    );
}

#[test]
fn a_gpu_that_is_there_is_found_without_a_device_tree_or_nvml() {
    // Docker hides /sys/firmware, where the device tree is.
    let (board, state) =
        changed("orin-nano-8gb-super", &[("/proc/device-tree", "gone"), ("/etc/nvpmodel.conf", "gone")]);
    assert_eq!(board.key, "jetson-orin-nx-unlisted", "{:?}", board.notes);
    assert!(said(&board.notes, "follows from /sys/class/devfreq/17000000.gpu"), "{:?}", board.notes);
    assert_eq!(state.sm_online.known(), Some(&8));
    assert!(board.module.reason().unwrap().contains("/proc/device-tree/compatible"));
    // A GB10 in a container without NVIDIA's libraries, by its bus and by its name.
    let bus = "/sys/bus/pci/devices/000f:01:00.0";
    let (vendor, class, device) = (format!("{bus}/vendor"), format!("{bus}/class"), format!("{bus}/device"));
    let on_bus = [
        ("/rooflined/nvml", "gone"),
        ("/sys/class/dmi", "gone"),
        (vendor.as_str(), "0x10de"),
        (class.as_str(), "0x030200"),
        (device.as_str(), "0x2e12"),
    ];
    let by_name = [("/rooflined/nvml", "gone"), ("/sys/class/dmi/id/product_name", "Dell Pro Max with GB10")];
    for files in [on_bus.as_slice(), by_name.as_slice()] {
        let (board, _) = changed("gb10", files);
        assert_eq!(board.key, "gb10", "{files:?}");
        assert!(said(&board.notes, "cannot be used here: no "), "{:?}", board.notes);
    }
    // Partners' names, in whichever field of DMI.
    for (file, name) in [
        ("product_name", "HP ZGX Nano G1n AI Station"),
        ("product_name", "Ascent GX10"),
        ("product_name", "EdgeXpert MS-C931"),
        ("product_name", "AI TOP ATOM"),
        ("product_name", "Veriton GN100"),
        ("product_family", "ThinkStation PGX"),
    ] {
        let file = format!("/sys/class/dmi/id/{file}");
        let named =
            [("/rooflined/nvml", "gone"), ("/sys/class/dmi/id/product_name", "30KL001"), (&file, name)];
        assert_eq!(changed("gb10", &named).0.key, "gb10", "{name}");
    }
    // Another card without its driver is said to be there, with its place.
    let card = [(vendor.as_str(), "0x10de"), (class.as_str(), "0x030000"), (device.as_str(), "0x2805")];
    let (board, _) = changed("laptop-x86", &card);
    let reason = board.gpu.reason().unwrap();
    assert!(reason.starts_with("an NVIDIA GPU is there (10de:2805 at /sys/bus/pci/devices/"), "{reason}");
}

#[test]
fn a_power_that_voltage_and_current_contradict_is_in_another_unit() {
    let dir = "/sys/class/hwmon/hwmon20";
    let paths = ["name", "in1_input", "curr1_input", "power1_input"].map(|file| format!("{dir}/{file}"));
    let meter = |device: &str, milliamperes: &str, microwatts: &str| {
        let texts = [device, "12000", milliamperes, microwatts];
        let files: Vec<(&str, &str)> = paths.iter().map(String::as_str).zip(texts).collect();
        let rails = changed("server-arm64", &files).1.rails.known().unwrap().clone();
        let power = &rails
            .iter()
            .find(|rail| rail.name.ends_with("power1") && rail.name.starts_with(device))
            .unwrap()
            .power;
        power.known().map(|watts| watts.0).ok_or_else(|| power.reason().unwrap_or_default().to_owned())
    };
    assert_eq!(meter("ina226", "1500", "18200000"), Ok(18.2));
    for microwatts in ["18200", "18200000000"] {
        let reason = meter("ina226", "1500", microwatts).unwrap_err();
        assert!(reason.ends_with("give 18.0 W: a wrong unit"), "{reason}");
    }
    // Near nothing, offsets are all that there is; of other devices the numbers need not belong together.
    assert_eq!(meter("ina226", "2", "900000"), Ok(0.9));
    assert_eq!(meter("nct6798", "1500", "18200"), Ok(0.0182));
}

#[test]
fn a_driver_that_is_not_nvidias_is_named_and_so_are_gpus_beyond_the_first() {
    let bus = "/sys/bus/pci/devices/0000:01:00.0";
    let files = ["vendor", "class", "device"].map(|file| format!("{bus}/{file}"));
    tree::obey_permissions();
    let dir = unpack(&nodes("vm-x86", "tree.txt"));
    for (file, text) in files.iter().zip(["0x10de", "0x030000", "0x2484"]) {
        put(dir.path(), file, &Node::File(text.into()));
    }
    put(dir.path(), &format!("{bus}/driver"), &Node::Link("../../../../bus/pci/drivers/nouveau".into()));
    let (board, _) = rooflined_hw::discover(&SysRoot::new(dir.path()));
    let reason = board.gpu.reason().unwrap();
    assert!(reason.contains("with the driver nouveau), but NVIDIA's driver does not answer"), "{reason}");
    // Of several GPUs it is said which one is described, and which are not.
    let names = ["1", "2", "3"].map(|index| format!("/rooflined/nvml/{index}/name"));
    let cards = ["NVIDIA RTX A2000", "NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"];
    let files: Vec<(&str, &str)> = names.iter().map(String::as_str).zip(cards).collect();
    let (board, _) = changed("h100", &files);
    let which = "NVML reports 4 GPUs: figures and predictions are those of one NVIDIA H100 80GB HBM3, and not of 2 of NVIDIA H100 \
                 80GB HBM3, NVIDIA RTX A2000; to choose another one, set CUDA_VISIBLE_DEVICES";
    assert!(said(&board.notes, which), "{:?}", board.notes);
    assert!(!said(&changed("h100", &[]).0.notes, "GPUs"));
    // Nothing measures what is said to draw nothing, or to have a clock of nothing.
    let zero =
        ["power_mw", "sm_clock_mhz", "memory_clock_mhz"].map(|getter| format!("/rooflined/nvml/0/{getter}"));
    let files: Vec<(&str, &str)> = zero.iter().map(|file| (file.as_str(), "0")).collect();
    let (_, state) = changed("h100", &files);
    for reason in [state.total_power.reason(), state.gpu_clock.reason(), state.memory_clock.reason()] {
        assert!(reason.is_some_and(|reason| reason.contains("is 0: nothing measures it")), "{reason:?}");
    }
}

#[test]
fn clocks_and_temperatures_in_another_unit_are_none() {
    let gpu = "/sys/devices/platform/bus@0/17000000.gpu/devfreq/17000000.gpu";
    let (cur, max, table) =
        (format!("{gpu}/cur_freq"), format!("{gpu}/max_freq"), format!("{gpu}/available_frequencies"));
    let cpu = "/sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq";
    let zone = "/sys/class/thermal/thermal_zone0/temp";
    let files = [
        (cur.as_str(), "306000"),
        (max.as_str(), "918000"),
        (table.as_str(), "306000 918000"),
        (cpu, "729600000"),
        (zone, "49"),
    ];
    let (board, state) = changed("orin-nano-8gb-super", &files);
    assert!(board.gpu.known().unwrap().clocks.is_empty());
    for reason in [state.gpu_clock.reason(), state.gpu_clock_cap.reason(), state.cpu_clocks.reason()] {
        assert!(reason.is_some_and(|reason| reason.contains("expected a clock in")), "{reason:?}");
    }
    let zone = &state.temperatures.known().unwrap()[0].temperature;
    assert!(
        zone.reason().is_some_and(|reason| reason.contains("is not the temperature of a machine")),
        "{zone:?}"
    );
    let (_, state) = changed("vm-x86", &[("/proc/meminfo", "MemTotal: 8000000000\nMemFree: 4000000000")]);
    assert!(state.memory.known().is_none(), "bytes are not kB: {:?}", state.memory);
}

#[test]
fn a_table_that_ends_below_the_clock_of_its_gpu_is_none() {
    let gpu = "/sys/class/devfreq/gpu-gpc-0";
    let [table, now] = ["available_frequencies", "cur_freq"].map(|file| format!("{gpu}/{file}"));
    for (clock, known) in [("315000000", 1), ("1530000000", 0)] {
        let (board, _) = changed("agx-thor-t5000", &[(&table, "315000000"), (&now, clock)]);
        assert_eq!(board.gpu.known().unwrap().clocks.len(), known, "{clock}");
        assert_eq!(said(&board.notes, "the table counts"), known == 1, "{:?}", board.notes);
    }
}

#[test]
fn of_a_divided_gpu_the_largest_instance_counts() {
    let files = [
        ("/rooflined/nvml/0/memory_total_bytes", "85520809984"),
        ("/rooflined/nvml/0/mig/0/multiprocessor_count", "16"),
        ("/rooflined/nvml/0/mig/0/memory_size_mb", "9984"),
        ("/rooflined/nvml/0/mig/1/multiprocessor_count", "60"),
        ("/rooflined/nvml/0/mig/1/memory_size_mb", "40448"),
    ];
    let (board, state) = changed("h100", &files);
    assert_eq!(board.gpu.known().unwrap().sm_total.known(), Some(&60));
    assert_eq!(state.sm_online.known(), Some(&60));
    let note = "divided (MIG) into 2 instances: they have 16, 60 SMs, and predictions are about the largest";
    assert!(said(&board.notes, note), "{:?}", board.notes);
    let (whole, part) =
        (Hardware::of_board(&changed("h100", &[]).0).unwrap(), Hardware::of_board(&board).unwrap());
    assert_eq!(part.sm, 60);
    let share = part.bandwidth / whole.bandwidth;
    assert!((share - 40448.0 * 1048576.0 / 85520809984.0).abs() < 1e-6, "{share}");
}

#[test]
fn a_variant_of_the_same_name_is_not_taken_for_the_one_that_is_known() {
    let nvml = |bits: &str, cores: &str| {
        let files = [
            ("/rooflined/nvml/0/name", "NVIDIA GeForce RTX 3080"),
            ("/rooflined/nvml/0/compute_capability", "8.6"),
            ("/rooflined/nvml/0/memory_bus_width_bits", bits),
            ("/rooflined/nvml/0/num_gpu_cores", cores),
        ];
        changed("h100", &files).0
    };
    let known = nvml("320", "8704");
    assert_eq!(known.key, "rtx-3080", "{:?}", known.notes);
    // The one with 12 GB.
    for other in [nvml("384", "8960"), nvml("320", "8960"), nvml("384", "8704")] {
        assert_ne!(other.key, known.key);
        assert!(
            said(&other.notes, "has other SMs or another memory bus than the one of that name"),
            "{:?}",
            other.notes
        );
    }
}

#[test]
fn a_card_that_nobody_described_is_what_nvml_tells_of_it() {
    let parts = [
        ("/rooflined/nvml/0/compute_capability", "8.9"),
        ("/rooflined/nvml/0/num_gpu_cores", "4352"),
        ("/rooflined/nvml/0/memory_bus_width_bits", "128"),
        ("/rooflined/nvml/0/max_memory_clock_mhz", "9001"),
        ("/rooflined/nvml/0/max_sm_clock_mhz", "2535"),
    ];
    let (board, state) = changed("gpu-unknown", &parts);
    let made = Hardware::of_board(&board).unwrap();
    assert_eq!(state.sm_online.known(), Some(&34), "{:?}", state.sm_online);
    assert_eq!((made.key.as_str(), made.sm, made.bus_bits), ("unlisted-gpu", 34, 128));
    assert!((made.bandwidth.get() - 288.0e9).abs() < 1e9, "{:?}", made.bandwidth);
    assert!(said(&board.notes, "predictions are guesses from the 34 SMs"), "{:?}", board.notes);
    assert!(said(&board.notes, "rooflinectl hardware check FILE"), "{:?}", board.notes);
    for missing in parts {
        let less: Vec<_> =
            parts.into_iter().filter(|file| *file != missing).chain([(missing.0, "gone")]).collect();
        let (board, _) = changed("gpu-unknown", &less);
        assert_eq!(Hardware::of_board(&board).unwrap().key, "cpu", "without {}", missing.0);
        assert!(said(&board.notes, "predictions are about the CPU until"), "{:?}", board.notes);
    }
}

#[test]
fn a_virtual_gpu_is_a_part_of_its_card() {
    let of = |name: &str, capability: &str| {
        let files = [
            ("/rooflined/nvml/0/name", name),
            ("/rooflined/nvml/0/compute_capability", capability),
            ("/rooflined/nvml/0/memory_total_bytes", "8589934592"),
        ];
        changed("h100", &files).0
    };
    let board = of("GRID T4-8Q", "7.5");
    assert_eq!(board.key, "t4", "{:?}", board.notes);
    assert!(board.gpu.known().unwrap().parts.share_is_unknown());
    assert!(said(&board.notes, "is a virtual GPU with 8 GiB of a card"), "{:?}", board.notes);
    let board = of("GRID A100D-3-40C", "8.0");
    assert_eq!((board.key.as_str(), Hardware::of_board(&board).unwrap().sm), ("a100-80gb", 42));
}

#[test]
fn power_modes_are_those_of_the_file_that_nvpmodel_was_started_with_last() {
    let mine = "< PARAM TYPE=CLOCK NAME=GPU >\nMAX_FREQ /sys/class/devfreq/17000000.gpu/max_freq\n\
                < POWER_MODEL ID=0 NAME=MINE >\nGPU MAX_FREQ 612000000\n";
    let source = |recorded: &str, mine: &str| {
        let files = [("/var/lib/nvpmodel/conf_file_path", recorded), ("/etc/mine.conf", mine)];
        let (board, _) = changed("orin-nano-8gb-super", &files);
        board.modes.known().map(|modes| modes.source.clone()).unwrap()
    };
    assert_eq!(source("/etc/mine.conf\n", mine), "/etc/mine.conf");
    for (recorded, file) in [("/etc/mine.conf", "gone"), ("etc/mine.conf", mine), ("", mine), ("/etc", mine)]
    {
        assert!(source(recorded, file).starts_with("/etc/nvpmodel"), "{recorded:?}");
    }
}

#[test]
fn a_memory_controller_of_devfreq_tells_the_memory_clock_of_a_board_that_is_no_tegra() {
    let files = [
        ("/sys/class/devfreq/dmc/cur_freq", "1560000000"),
        ("/sys/class/devfreq/dmc/max_freq", "2112000000"),
        ("/sys/class/devfreq/soc:cpubw/cur_freq", "2288"),
    ];
    let (_, state) = changed("server-arm64", &files);
    assert_eq!(state.memory_clock.known().map(|clock| clock.0), Some(1.56e9));
    assert_eq!(state.memory_clock_cap.known().map(|clock| clock.0), Some(2.112e9));
}

/// ACPI power meters: what each says that it sees, and its milliwatts.
fn metered(board: &str, meters: &[(&str, &str)], files: &[(&str, &str)]) -> BoardState {
    let dir = |index: usize| format!("/sys/class/hwmon/hwmon{}", 20 + index);
    let own: Vec<(String, String)> = meters
        .iter()
        .enumerate()
        .flat_map(|(index, (info, milliwatts))| {
            let dir = dir(index);
            let info = (!info.is_empty()).then(|| (format!("{dir}/power1_oem_info"), (*info).to_owned()));
            let rest = [
                (format!("{dir}/name"), "power_meter".to_owned()),
                (format!("{dir}/power1_average"), format!("{milliwatts}000")),
            ];
            info.into_iter().chain(rest)
        })
        .collect();
    let all: Vec<(&str, &str)> =
        own.iter().map(|(path, text)| (path.as_str(), text.as_str())).chain(files.iter().copied()).collect();
    changed(board, &all).1
}

#[test]
fn the_total_is_the_meter_that_sees_all_and_not_the_first() {
    // A superchip: the socket's whole module, and parts of it.
    let grace = [
        ("CPU Power Socket 0", "53000"),
        ("SysIO Power Socket 0", "6300"),
        ("Grace Power Socket 0", "101000"),
        ("Module Power Socket 0", "412000"),
        ("Module Power Socket 1", "400000"),
    ];
    assert_eq!(total(&metered("server-arm64", &grace[..4], &[])), (412.0, "module"));
    assert_eq!(total(&metered("server-arm64", &grace, &[])), (812.0, "module"));
    assert_eq!(total(&metered("server-arm64", &grace[..3], &[])), (101.0, "package"));
    assert_eq!(total(&metered("server-arm64", &[("", "228000")], &[])), (228.0, "system"));
    // Two that say nothing may feed one another.
    let unsaid = metered("server-arm64", &[("", "228000"), ("", "231000")], &[]);
    assert!(unsaid.total_power.known().is_none(), "{:?}", unsaid.total_power);
    // A battery feeds the machine only while the mains do not.
    let battery = [("/sys/class/hwmon/hwmon20/power1_is_battery", "1")];
    let state = metered("server-arm64", &[("", "9000"), ("", "228000")], &battery);
    assert_eq!(total(&state), (228.0, "system"));
}

#[test]
fn a_rail_that_sees_the_whole_machine_is_its_total_and_two_parts_of_a_chip_are_its_package() {
    let meter = |device, rails: [(&'static str, &'static str); 2]| {
        let dir = "/sys/class/hwmon/hwmon20";
        let mut files = vec![(format!("{dir}/name"), device)];
        for (index, (label, microwatts)) in rails.into_iter().enumerate() {
            let number = index + 1;
            files.push((format!("{dir}/power{number}_label"), label));
            files.push((format!("{dir}/power{number}_input"), microwatts));
        }
        let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
        let (_, state) = changed("server-arm64", &files);
        let (watts, scope) = total(&state);
        (watts, scope.to_owned())
    };
    let system = |watts| (watts, "system".to_owned());
    assert_eq!(
        meter("macsmc_hwmon", [("Heatpipe Power", "900000"), ("Total System Power", "7300000")]),
        system(7.3)
    );
    assert_eq!(
        meter("corsairpsu", [("power total", "212000000"), ("power +12v", "180000000")]),
        system(212.0)
    );
    let cores = meter("zenpower", [("SVI2_P_Core", "31000000"), ("SVI2_P_SoC", "9000000")]);
    assert_eq!(cores, (40.0, "package".to_owned()));
    assert_eq!(meter("ibmpowernv", [("System", "1120000000"), ("Fan", "40000000")]), system(1120.0));
    let package = meter("apm_xgene", [("CPU power", "61000000"), ("IO power", "12000000")]);
    assert_eq!(package, (73.0, "package".to_owned()));
    // Labels of a carrier's device tree are written by hand.
    let label = "/sys/bus/i2c/drivers/ina3221/1-0040/hwmon/hwmon1/in1_label";
    for text in ["vdd_in", "VDD IN", "VDD-IN "] {
        let (_, state) = changed("orin-nano-8gb-super", &[(label, text)]);
        assert_eq!(total(&state), total(&changed("orin-nano-8gb-super", &[]).1), "{text}");
    }
}

/// As two sensors of the boards that NVIDIA's design guide shows, and with one of the six missing.
#[test]
fn an_agx_xavier_draws_what_its_six_inputs_draw() {
    let (_, state) = changed("agx-xavier", &[]);
    let rails: f64 =
        state.rails.known().unwrap().iter().filter_map(|rail| rail.power.known()).map(|of| of.get()).sum();
    assert_eq!(total(&state), (rails, "module"));
    assert_eq!(state.total_power.known().unwrap().rails.len(), 6);
    let ddr = "/sys/bus/i2c/drivers/ina3221x/1-0041/iio:device1/rail_name_1";
    let (_, state) = changed("agx-xavier", &[(ddr, "NC")]);
    let reason = state.total_power.reason().unwrap();
    assert!(reason.contains("GPU, CPU, SOC, CV, VDDRQ, SYS5V together"), "{reason}");
}

#[test]
fn a_meter_of_an_old_driver_has_its_files_in_the_device_itself() {
    let files = [
        ("/sys/class/hwmon/hwmon20/device/name", "power_meter"),
        ("/sys/class/hwmon/hwmon20/device/power1_average", "228000000"),
        ("/sys/class/hwmon/hwmon20/device/power1_average_interval", "1000"),
    ];
    let (_, state) = changed("server-arm64", &files);
    assert_eq!(total(&state), (228.0, "system"));
}

#[test]
fn an_ina238_is_the_input_of_a_thor_alone() {
    let ina238 =
        [("/sys/class/hwmon/hwmon20/name", "ina238"), ("/sys/class/hwmon/hwmon20/power1_input", "31500000")];
    let (_, state) = changed("orin-nano-8gb-super", &ina238);
    let (_, alone) = changed("orin-nano-8gb-super", &[]);
    assert_eq!(total(&state), total(&alone));
    let (_, state) = changed("server-arm64", &ina238);
    assert!(state.total_power.known().is_none(), "{:?}", state.total_power);
    // It sees the carrier of a Thor too.
    assert_eq!(total(&changed("agx-thor-t5000", &[]).1).1, "system");
}

#[test]
fn alarms_of_processors_and_supplies_are_throttling_and_those_of_drives_are_only_told() {
    let throttle = |files: &[(&str, &str)]| {
        let throttle = changed("gb10", files).1.throttle;
        let Reading::Known(throttle) = throttle else { panic!("{throttle:?}") };
        let own = |evidence: &&String| evidence.contains("is raised") || evidence.contains("firmware");
        (throttle.active, throttle.evidence.iter().filter(own).count())
    };
    let alarm = |device: &'static str, file: &'static str, text: &'static str| {
        [("/sys/class/hwmon/hwmon20/name", device), (file, text)]
    };
    assert_eq!(throttle(&alarm("rpi_volt", "/sys/class/hwmon/hwmon20/in0_lcrit_alarm", "1")), (true, 1));
    assert_eq!(throttle(&alarm("rpi_volt", "/sys/class/hwmon/hwmon20/in0_lcrit_alarm", "0")), (false, 0));
    assert_eq!(throttle(&alarm("coretemp", "/sys/class/hwmon/hwmon20/temp1_crit_alarm", "1")), (true, 1));
    assert_eq!(throttle(&alarm("nvme", "/sys/class/hwmon/hwmon20/temp1_alarm", "1")), (false, 1));
    assert_eq!(throttle(&alarm("nct6775", "/sys/class/hwmon/hwmon20/in3_alarm", "1")), (false, 1));
    assert_eq!(throttle(&alarm("spd5118", "/sys/class/hwmon/hwmon20/temp1_max_alarm", "1")), (false, 1));
    assert_eq!(throttle(&alarm("sfp1", "/sys/class/hwmon/hwmon20/power2_lcrit_alarm", "1")), (false, 1));
    assert_eq!(throttle(&alarm("pmbus", "/sys/class/hwmon/hwmon20/in1_min_alarm", "1")), (false, 1));
    // Of a driver that nobody has listed, only danger counts.
    assert_eq!(throttle(&alarm("vrm3", "/sys/class/hwmon/hwmon20/temp1_max_alarm", "1")), (false, 1));
    assert_eq!(throttle(&alarm("vrm3", "/sys/class/hwmon/hwmon20/temp1_crit_alarm", "1")), (true, 1));
    let firmware = "/sys/devices/platform/soc@107c000000/soc@107c000000:firmware/get_throttled";
    assert_eq!(throttle(&[(firmware, "50005")]), (true, 2));
    // What has happened since the boot is not now.
    assert_eq!(throttle(&[(firmware, "50000")]), (false, 0));
}

#[test]
fn a_power_cap_that_takes_most_of_the_clock_is_throttling() {
    let at = |clock: &str| {
        let files = [
            ("/rooflined/nvml/0/sm_clock_mhz", clock),
            ("/rooflined/nvml/0/utilization_gpu_percent", "96"),
            ("/rooflined/nvml/0/throttle_reasons", "0x4"),
        ];
        changed("gb10", &files).1.throttle.known().unwrap().active
    };
    assert!(at("611"));
    assert!(!at("2400"), "as capped cards run");
}

#[test]
fn a_gpu_that_nobody_described_is_monitored_and_its_file_is_asked_for() {
    let (board, state) = changed("gpu-unknown", &[]);
    assert_eq!(board.key, "cpu");
    assert!(
        board.gpu.known().is_some() && state.gpu_clock.known().is_some() && state.gpu_load.known().is_some()
    );
    assert_eq!(total(&state).1, "gpu");
    assert!(said(&board.notes, "a file in /etc/rooflined/hardware describes it"), "{:?}", board.notes);
}

#[test]
fn a_divided_gpu_says_which_instances_there_are_and_why_it_has_no_load() {
    let files = [
        ("/proc/driver/nvidia/capabilities/gpu0/mig/gi1/access", "DeviceFileMinor: 12"),
        ("/rooflined/nvml/0/utilization_gpu_percent", "gone"),
    ];
    for board in ["h100", "agx-thor-t5000"] {
        let (found, state) = changed(board, &files);
        assert!(
            said(&found.notes, "divided (MIG) into one instance (gpu0/gi1)"),
            "{board}: {:?}",
            found.notes
        );
        assert!(state.gpu_load.reason().unwrap().contains("divided (MIG): gpu0/gi1"), "{:?}", state.gpu_load);
    }
}
