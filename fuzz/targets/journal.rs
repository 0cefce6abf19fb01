//! What the privileged helper finds of a switch that was not settled, on a board in a directory without nvpmodel.
use std::fs;
use std::process::ExitCode;
use std::sync::LazyLock;

use crate::{board_tree, unpacked};
use rooflined_actuator::Options;

/// The modes are few and read back as they are written, so that nothing is waited for.
const MODES: &str = "\
< PARAM TYPE=FILE NAME=CPU_ONLINE >
CORE_1 /sys/devices/system/cpu/cpu1/online
< PARAM TYPE=CLOCK NAME=CPU_A78_0 >
FREQ_TABLE /sys/devices/system/cpu/cpu0/cpufreq/scaling_available_frequencies
MAX_FREQ /sys/devices/system/cpu/cpu0/cpufreq/scaling_max_freq
< POWER_MODEL ID=0 NAME=15W >
CPU_ONLINE CORE_1 1
CPU_A78_0 MAX_FREQ 1510400
< POWER_MODEL ID=1 NAME=25W >
CPU_ONLINE CORE_1 1
CPU_A78_0 MAX_FREQ 1344000
< PM_CONFIG DEFAULT=1 >
";

static OPTIONS: LazyLock<(tempfile::TempDir, Options)> = LazyLock::new(|| {
    let dir = unpacked(&board_tree("orin-nano-8gb-super"));
    fs::create_dir_all(dir.path().join("etc")).expect("a directory");
    fs::write(dir.path().join("etc/nvpmodel.conf"), MODES).expect("a file");
    let options = Options {
        stdio: false,
        recover: true,
        root: dir.path().to_owned(),
        state_dir: dir.path().join("state"),
        config: dir.path().join("rooflined.toml"),
        user: "0".into(),
        idle: 0.1,
        time_limit: 0.1,
    };
    fs::create_dir_all(&options.state_dir).expect("a directory");
    (dir, options)
});

pub fn run(bytes: &[u8]) {
    let (_dir, options) = &*OPTIONS;
    fs::write(options.state_dir.join("switch.json"), bytes).expect("a file");
    let _: ExitCode = rooflined_actuator::main(options);
}
