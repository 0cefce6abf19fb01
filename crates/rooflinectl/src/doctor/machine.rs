//! Facts of the kernel that decide how well this machine can be measured.

use std::fs;
use std::path::Path;

use super::Finding;

/// What can be seen below `root` without the daemon's help.
pub fn facts(root: &Path) -> Vec<Finding> {
    let read = |path: &str| fs::read_to_string(root.join(path)).ok();
    let mut findings = Vec::new();
    if let Some(release) = read("proc/sys/kernel/osrelease") {
        findings.push(Finding::ok("kernel", release.trim().to_owned()));
    }
    findings.push(match read("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor") {
        Some(governor) if governor.trim() == "powersave" => Finding::warn(
            "cpufreq",
            "governor powersave: clocks rise late",
            "for steady measurements: cpupower frequency-set -g performance",
        ),
        Some(governor) => Finding::ok("cpufreq", format!("governor {}", governor.trim())),
        None => Finding::ok("cpufreq", "none here: clocks are measured under load instead"),
    });
    let hypervisor = read("proc/cpuinfo").is_some_and(|text| {
        text.lines()
            .any(|line| line.starts_with("flags") && line.split_whitespace().any(|flag| flag == "hypervisor"))
    });
    if hypervisor {
        findings.push(Finding::ok(
            "virtual machine",
            "other virtual machines may take bandwidth during measurements",
        ));
    }
    findings.extend(gpu(root));
    if read("proc/pressure/memory").is_none() {
        findings.push(Finding::warn(
            "pressure",
            "the kernel has no PSI",
            "boot with psi=1 to see memory pressure",
        ));
    }
    if let Some(quota) = read("sys/fs/cgroup/cpu.max").filter(|text| !text.starts_with("max")) {
        let message = format!("this control group is limited to cpu.max {}", quota.trim());
        findings.push(Finding::warn("cpu limit", message, "measure outside it, or ceilings are too low"));
    }
    findings
}

/// Each node of the GPU's driver, as this user finds it; the daemon says under `degraded` what it is denied.
fn gpu(root: &Path) -> Vec<Finding> {
    let nodes = rooflined_hw::gpu_nodes(&rooflined_hw::SysRoot::new(root));
    let finding = |node: rooflined_hw::GpuNode| match node.denied {
        None => Finding::ok("gpu node", format!("{} may be used by this user", node.path.display())),
        Some(why) => Finding::warn(
            "gpu node",
            format!("{} is denied: {why}", node.path.display()),
            "sudo usermod -aG video,render \"$USER\", and log in again",
        ),
    };
    nodes.into_iter().map(finding).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Level;
    use super::*;

    #[test]
    fn a_machine_without_anything_is_described_without_failing() {
        let empty = tempfile::tempdir().unwrap();
        assert!(facts(empty.path()).iter().all(|finding| finding.level != Level::Fail));
    }

    #[test]
    fn a_saving_governor_and_a_quota_are_named() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
        put("sys/fs/cgroup/cpu.max", "100000 100000\n");
        put("dev/nvgpu/igpu0/power", "");
        put("dev/nvmap", "");
        let warned: Vec<_> =
            facts(root.path()).into_iter().filter(|f| f.level == Level::Warn).map(|f| f.check).collect();
        assert_eq!(warned, ["cpufreq", "pressure", "cpu limit"]);
        let usable: Vec<_> =
            facts(root.path()).into_iter().filter(|f| f.check == "gpu node").map(|f| f.message).collect();
        assert_eq!(usable, ["/dev/nvmap may be used by this user"]);
    }
}
