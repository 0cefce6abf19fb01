//! What people watch, where several devices are of one kind.

use std::os::unix::fs::symlink;

use super::*;

fn board(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        put(dir.path(), path, text);
    }
    dir
}

/// Has a directory of hwmon belong to a device.
fn belongs(dir: &tempfile::TempDir, hwmon: &str, device: &str) {
    let device = format!("sys/devices/{device}");
    fs::create_dir_all(dir.path().join(&device)).unwrap();
    let link = dir.path().join(format!("sys/class/hwmon/{hwmon}/device"));
    symlink(format!("/{device}"), link).unwrap();
}

const ORIN: (&str, &str) =
    ("/proc/device-tree/compatible", "nvidia,p3737-0000+p3701-0008\0nvidia,tegra234\0");

#[test]
fn a_speed_goes_with_a_duty_of_another_device_only_on_a_fan_of_a_jetson() {
    let dir = board(&[
        ("/sys/class/hwmon/hwmon0/name", "amdgpu\n"),
        ("/sys/class/hwmon/hwmon0/pwm1", "51\n"),
        ("/sys/class/hwmon/hwmon1/name", "nct6775\n"),
        ("/sys/class/hwmon/hwmon1/fan1_input", "900\n"),
        ("/sys/class/hwmon/hwmon1/fan2_input", "800\n"),
        ("/sys/class/hwmon/hwmon1/pwm2", "102\n"),
        ("/sys/class/hwmon/hwmon2/name", "pwm_tach\n"),
        ("/sys/class/hwmon/hwmon2/rpm", "1480\n"),
        ("/sys/class/hwmon/hwmon3/name", "pwmfan\n"),
        ("/sys/class/hwmon/hwmon3/pwm1", "255\n"),
    ]);
    belongs(&dir, "hwmon1", "nct6775.656");
    let fans = sampled(&SysRoot::new(dir.path()), SOURCES).details.fans;
    let fans = fans.known().unwrap().iter();
    let told: Vec<_> = fans
        .map(|fan| (fan.name.as_str(), fan.duty_ratio.known().copied(), fan.speed_rpm.known().copied()))
        .collect();
    let expected = [
        ("amdgpu", Some(0.2), None),
        ("nct6775", None, Some(900.0)),
        ("nct6775-nct6775.656.2", Some(0.4), Some(800.0)),
        ("pwmfan", Some(1.0), Some(1480.0)),
    ];
    assert_eq!(told, expected);
}

#[test]
fn drives_come_before_cores_and_what_sleeps_is_left_alone() {
    let cores: Vec<String> =
        (1..=40).map(|core| format!("/sys/class/hwmon/hwmon0/temp{core}_input")).collect();
    let mut files: Vec<(&str, &str)> = cores.iter().map(|path| (path.as_str(), "50000\n")).collect();
    files.extend([
        ("/sys/class/hwmon/hwmon0/name", "coretemp\n"),
        ("/sys/class/hwmon/hwmon1/name", "drivetemp\n"),
        ("/sys/class/hwmon/hwmon1/temp1_input", "30000\n"),
        ("/sys/class/hwmon/hwmon2/name", "nouveau\n"),
        ("/sys/class/hwmon/hwmon2/temp1_input", "31000\n"),
        ("/sys/class/hwmon/hwmon2/device/power/runtime_status", "suspended\n"),
        ("/sys/class/hwmon/hwmon3/name", "mlx5\n"),
        ("/sys/class/hwmon/hwmon3/temp1_input", "52000\n"),
        ("/sys/class/hwmon/hwmon4/name", "nvme\n"),
        ("/sys/class/hwmon/hwmon4/temp1_input", "41000\n"),
        ("/sys/class/hwmon/hwmon4/device/power/runtime_status", "active\n"),
    ]);
    let dir = board(&files);
    let root = SysRoot::new(dir.path());
    let (board, _) = discover_with(&root, SOURCES);
    let listed = &board.sources["state.device_temperatures"];
    assert!(listed.ends_with(", and 10 more, which are not read"), "{listed}");
    let temperatures = sampled(&root, SOURCES).details.device_temperatures;
    let names: Vec<&str> = temperatures.known().unwrap().iter().map(|one| one.name.as_str()).collect();
    assert_eq!((names.len(), names[0], names[1], names[2]), (32, "nvme", "mlx5", "coretemp"));
    assert!(!names.iter().any(|name| name.starts_with("drivetemp") || name.starts_with("nouveau")));
}

#[test]
fn a_meter_is_called_as_its_rail() {
    let mut files = Vec::new();
    for (hwmon, name) in
        [("hwmon5", "ina3221"), ("hwmon2", "ina3221"), ("hwmon3", "ina238"), ("hwmon4", "ina238")]
    {
        let at = |file: &str| format!("/sys/class/hwmon/{hwmon}/{file}");
        files.push((at("name"), name));
        files.push((at("in1_input"), "5000"));
        files.push((at("curr1_input"), "1000"));
        if name == "ina238" {
            files.push((at("power1_input"), "5000000"));
        } else {
            files.push((at("in1_label"), "VDD_IN"));
        }
    }
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    let dir = board(&files);
    for (hwmon, device) in
        [("hwmon2", "1-0041"), ("hwmon5", "1-0040"), ("hwmon3", "7-0045"), ("hwmon4", "7-0044")]
    {
        belongs(&dir, hwmon, device);
    }
    let state = sampled(&SysRoot::new(dir.path()), SOURCES);
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    let rails = sorted(state.rails.known().unwrap().iter().map(|rail| rail.name.clone()).collect());
    let meters = state.details.rail_meters.known().unwrap();
    assert_eq!(rails, sorted(meters.iter().map(|meter| meter.name.clone()).collect()));
    assert_eq!(rails, ["VDD_IN", "VDD_IN-1-0041.1", "ina238 power1", "ina238 power1-7-0045.power1"]);
}

#[test]
fn the_memory_is_busy_for_no_more_than_its_cycles_and_on_known_releases_alone() {
    let cap = ("/sys/kernel/nvpmodel_clk_cap/emc", "-1\n");
    let rate = ("/sys/kernel/debug/bpmp/debug/clk/emc/rate", "3200000000\n");
    let busy = |cycles: &'static str| ("/sys/kernel/debug/cactmon/mc_all", cycles);
    let read = |files: &[(&str, &str)]| {
        let dir = board(files);
        sampled(&SysRoot::new(dir.path()), SOURCES).details.emc_utilisation
    };
    assert_eq!(read(&[ORIN, cap, rate, busy("800000\n")]), Reading::Known(0.25));
    assert_eq!(read(&[ORIN, cap, rate, busy("3300000\n")]), Reading::Known(1.0), "read a moment apart");
    let beyond = read(&[ORIN, cap, rate, busy("6400000\n")]);
    assert!(matches!(&beyond, Reading::Failed { reason } if reason.contains("2.00")), "{beyond:?}");
    let older = read(&[ORIN, rate, busy("800000\n")]);
    assert!(matches!(&older, Reading::Absent { reason } if reason.contains("nvpmodel_clk_cap")), "{older:?}");
}

#[test]
fn a_card_beside_a_module_is_not_its_gpu() {
    let named = |name: &str| {
        let dir = board(&[
            ("/proc/device-tree/compatible", "nvidia,p3740-0002+p3701-0008\0nvidia,tegra234\0"),
            ("/rooflined/nvml/0/name", name),
            ("/rooflined/nvml/0/driver_version", "535.1"),
            ("/sys/class/hwmon/hwmon0/name", "pwmfan"),
        ]);
        discover_with(&SysRoot::new(dir.path()), SOURCES).0
    };
    let own = named("Orin (nvgpu)\n");
    let gpu = own.gpu.known().unwrap();
    assert_eq!(gpu.name.known().map(String::as_str), Some("Orin (nvgpu)"));
    assert!(own.notes.is_empty(), "{:?}", own.notes);
    let with_card = named("NVIDIA RTX 6000 Ada Generation\n");
    assert_eq!(with_card.key, "igx-orin");
    let gpu = with_card.gpu.known().unwrap();
    assert_eq!((gpu.name.known(), gpu.driver_version.known()), (None, None));
    assert!(with_card.notes.iter().any(|note| note.contains("RTX 6000")), "{:?}", with_card.notes);
}

#[test]
fn a_second_engine_is_called_as_its_clock() {
    let dir = board(&[
        ORIN,
        ("/sys/class/devfreq/15380000.nvjpg/cur_freq", "115200000\n"),
        ("/sys/class/devfreq/15540000.nvjpg/cur_freq", "115200000\n"),
        ("/sys/kernel/debug/clk/nvjpg/clk_rate", "115200000\n"),
        ("/sys/kernel/debug/clk/nvjpg1/clk_rate", "115200000\n"),
    ]);
    let engines = sampled(&SysRoot::new(dir.path()), SOURCES).details.engines;
    let names: Vec<&str> = engines.known().unwrap().iter().map(|engine| engine.name.as_str()).collect();
    assert_eq!(names, ["NVJPG", "NVJPG1"]);
}
