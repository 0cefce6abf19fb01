//! What a control group leaves to this process: a container sees the files of the whole machine.
//!
//! ```text
//! /proc/self/cgroup            0::/a/b (v2)      4:memory:/a/b   3:cpu,cpuacct:/a/b   2:cpuset:/a/b (v1)
//! /sys/fs/cgroup/a/b/          memory.max memory.high memory.current memory.stat cpu.max cpu.weight cpuset.cpus.effective (v2)
//! /sys/fs/cgroup/memory/a/b/   memory.limit_in_bytes memory.usage_in_bytes memory.stat                              (v1)
//! /sys/fs/cgroup/cpu/a/b/      cpu.cfs_quota_us cpu.cfs_period_us cpu.shares
//! /sys/fs/cgroup/cpuset/a/b/   cpuset.effective_cpus cpuset.cpus
//! /proc/self/status            Cpus_allowed_list
//! /proc/self/mountinfo         … / /cgroup rw - cgroup none rw,cpuset,memory        mounts that are elsewhere
//! ```
//!
//! Every level up to the root limits. A container's own mount starts at its group, whatever /proc/self/cgroup says, so levels
//! that are not there are passed over. The unit of the daemon itself is passed over too: its limits are the daemon's, and
//! engines run outside of it.

use super::SysRoot;
use rooflined_core::board::parse;

const ROOT: &str = "/sys/fs/cgroup";
const OFFLINE: &str = "/sys/devices/system/cpu/offline";
/// The daemon's own unit. Its `MemoryMax=` does not limit engines.
const OWN_UNIT: &str = "rooflined.service";
/// Usual `cpu.weight` of version 2, and `cpu.shares` of version 1.
const WEIGHT: f64 = 100.0;
const SHARES: f64 = 1024.0;
/// Most levels looked at.
const DEEPEST: usize = 64;
/// Version 1 writes "no limit" as the largest number of whole pages.
const UNLIMITED: u64 = 1 << 60;

/// A group that limits memory.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MemoryLevel {
    /// Files of limits, of which the lowest counts.
    pub limits: Vec<String>,
    pub usage: String,
    pub stat: String,
}

/// What limits this process.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Limits {
    pub memory: Vec<MemoryLevel>,
    /// CPUs that time is granted for, and the file that says so.
    pub quota: Option<(f64, String)>,
    /// Its share of CPU time beside others as a part of the usual one, and the file that says so: the lowest of the levels.
    weight: Option<(f64, String)>,
    /// CPUs that it may run on, and the file that says so.
    pub cpus: Option<(Vec<u32>, String)>,
    /// CPUs that are offline; `None` where no file tells.
    offline: Option<Vec<u32>>,
}

impl Limits {
    pub fn discover(root: &SysRoot) -> Self {
        Self::of(root, "self")
    }

    /// What limits `process`: its number, or `self`.
    fn of(root: &SysRoot, process: &str) -> Self {
        // Without /proc the mounts themselves still limit.
        let groups = root
            .read(&format!("/proc/{process}/cgroup"))
            .unwrap_or_else(|_| "0::/\n1:memory:/\n2:cpu:/\n3:cpuset:/\n".into());
        let elsewhere = Elsewhere::of(root);
        let offline = root.read(OFFLINE).ok().and_then(|text| parse::cpu_list(text.trim()));
        let mut limits = Self { offline, ..Self::default() };
        for line in groups.lines() {
            let mut fields = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            if controllers.is_empty() {
                let known = ["", "/unified"].map(|name| format!("{ROOT}{name}"));
                let mounts = known.iter().chain(&elsewhere.unified);
                for dir in mounts.flat_map(|mount| levels(root, mount, path)) {
                    limits.unified(root, &dir);
                }
            }
            for controller in controllers.split(',') {
                let mounts = mounts(root, controller, controllers)
                    .into_iter()
                    .chain(elsewhere.of_controller(controller));
                for dir in mounts.flat_map(|mount| levels(root, &mount, path)) {
                    limits.version_1(root, controller, &dir);
                }
            }
        }
        let status = format!("/proc/{process}/status");
        let allowed = root.read(&status).ok().and_then(|text| {
            let list = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
            parse::cpu_list(list.trim())
        });
        if let Some(cpus) = allowed {
            limits.allow(cpus, status);
        }
        limits
    }

    fn unified(&mut self, root: &SysRoot, dir: &str) {
        self.limit_memory(root, dir, &["memory.max", "memory.high"], "memory.current");
        let max = format!("{dir}/cpu.max");
        if let Some((quota, period)) = root.read(&max).ok().and_then(|text| {
            let (quota, period) = text.trim().split_once(' ')?;
            Some((quota.parse::<f64>().ok()?, period.trim().parse::<f64>().ok()?))
        }) {
            self.grant(quota / period, max);
        }
        self.weigh(root, format!("{dir}/cpu.weight"), WEIGHT);
        self.read_cpus(root, &[format!("{dir}/cpuset.cpus.effective"), format!("{dir}/cpuset.cpus")]);
    }

    fn version_1(&mut self, root: &SysRoot, controller: &str, dir: &str) {
        match controller {
            "memory" => self.limit_memory(root, dir, &["memory.limit_in_bytes"], "memory.usage_in_bytes"),
            "cpu" => {
                let number =
                    |file: &str| root.read(&format!("{dir}/{file}")).ok()?.trim().parse::<f64>().ok();
                if let (Some(quota), Some(period)) = (number("cpu.cfs_quota_us"), number("cpu.cfs_period_us"))
                {
                    self.grant(quota / period, format!("{dir}/cpu.cfs_quota_us"));
                }
                self.weigh(root, format!("{dir}/cpu.shares"), SHARES);
            }
            "cpuset" => {
                self.read_cpus(root, &[format!("{dir}/cpuset.effective_cpus"), format!("{dir}/cpuset.cpus")]);
            }
            _ => {}
        }
    }

    fn limit_memory(&mut self, root: &SysRoot, dir: &str, limits: &[&str], usage: &str) {
        let limits: Vec<String> = limits
            .iter()
            .map(|file| format!("{dir}/{file}"))
            .filter(|path| root.path(path).is_file())
            .collect();
        if !limits.is_empty() {
            let level =
                MemoryLevel { limits, usage: format!("{dir}/{usage}"), stat: format!("{dir}/memory.stat") };
            if !self.memory.contains(&level) {
                self.memory.push(level);
            }
        }
    }

    fn grant(&mut self, cpus: f64, file: String) {
        let lowest = self.quota.as_ref().is_none_or(|(granted, _)| cpus < *granted);
        if cpus > 0.0 && cpus.is_finite() && lowest {
            self.quota = Some((cpus, file));
        }
    }

    fn weigh(&mut self, root: &SysRoot, file: String, usual: f64) {
        let Some(weight) = root.read(&file).ok().and_then(|text| text.trim().parse::<f64>().ok()) else {
            return;
        };
        let ratio = weight / usual;
        if ratio > 0.0 && ratio.is_finite() && self.weight.as_ref().is_none_or(|(known, _)| ratio < *known) {
            self.weight = Some((ratio, file));
        }
    }

    fn read_cpus(&mut self, root: &SysRoot, files: &[String]) {
        for file in files {
            let cpus = root.read(file).ok().and_then(|text| parse::cpu_list(text.trim()));
            if let Some(cpus) = cpus.filter(|cpus| !cpus.is_empty()) {
                return self.allow(cpus, file.clone());
            }
        }
    }

    fn allow(&mut self, cpus: Vec<u32>, file: String) {
        self.cpus = Some(match self.cpus.take() {
            Some((known, source)) if known.iter().all(|cpu| cpus.contains(cpu)) => (known, source),
            Some((known, _)) => (known.into_iter().filter(|cpu| cpus.contains(cpu)).collect(), file),
            None => (cpus, file),
        });
    }

    /// Of `online` those that this process may run on.
    pub fn allowed(&self, online: Vec<u32>) -> Vec<u32> {
        let Some((cpus, _)) = &self.cpus else { return online };
        if self.renumbers(&online) {
            return online.into_iter().take(cpus.len()).collect();
        }
        online.into_iter().filter(|cpu| cpus.contains(cpu)).collect()
    }

    /// Whether `online` numbers the CPUs of this process from zero again, as lxcfs does: it may run on CPUs that are neither
    /// online nor offline.
    pub fn renumbers(&self, online: &[u32]) -> bool {
        let Some((cpus, _)) = &self.cpus else { return false };
        let is_offline = |cpu: &u32| self.offline.as_ref().is_some_and(|offline| offline.contains(cpu));
        let nowhere = cpus.iter().any(|cpu| !online.contains(cpu) && !is_offline(cpu));
        let from_zero = online.iter().enumerate().all(|(index, cpu)| u32::try_from(index) == Ok(*cpu));
        nowhere && from_zero && online.len() <= cpus.len()
    }

    /// Whether `online` leaves out some of so many CPUs that are there, as lxcfs does: those that it leaves out are not offline.
    pub fn hides_some(&self, online: &[u32], present: u32) -> bool {
        // Numbers beyond those that are there are offline as well.
        let offline = self.offline.iter().flatten().filter(|cpu| **cpu < present).count();
        let told = online.len() + offline;
        let is_told = self.offline.is_some() || self.renumbers(online);
        is_told && u32::try_from(told).is_ok_and(|told| told < present)
    }

    /// How many of so many CPUs there is time for: a part of one is one.
    pub fn granted(&self, cpus: u32) -> u32 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most as many as CPUs"
        )]
        self.quota.as_ref().map_or(cpus, |(quota, _)| (quota.ceil().min(f64::from(cpus)) as u32).max(1))
    }

    /// What limits the CPUs of a machine with those online, as a sentence.
    pub fn cpu_note(&self, online: &[u32]) -> Option<String> {
        let allowed = u32::try_from(self.allowed(online.to_vec()).len()).unwrap_or(u32::MAX);
        let (granted, all) = (self.granted(allowed), online.len());
        let by_quota = self.quota.as_ref().filter(|_| granted < allowed).map(|(_, file)| file);
        let by_set = self.cpus.as_ref().filter(|_| (allowed as usize) < all).map(|(_, file)| file);
        let file = by_quota.or(by_set)?;
        Some(format!("this process gets {granted} of {all} CPUs: {file}"))
    }
}

/// What limits the CPU time of a process.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CpuLimits {
    /// CPUs that time is granted for, and the file that says so; `None` without a quota.
    pub quota: Option<(f64, String)>,
    /// Its share of CPU time beside others as a part of the usual one, and the file that says so; `None` where nothing tells.
    pub weight: Option<(f64, String)>,
    /// CPUs it may run on; `None` where nothing tells.
    pub allowed: Option<Vec<u32>>,
}

/// What the control groups and the affinity of a process leave to it.
#[must_use]
pub fn cpu_limits(root: &SysRoot, pid: u32) -> CpuLimits {
    let Limits { quota, weight, cpus, .. } = Limits::of(root, &pid.to_string());
    CpuLimits { quota, weight, allowed: cpus.map(|(cpus, _)| cpus) }
}

/// The lowest of the limits in the texts of files; `None` where none is set.
pub(super) fn limit<'a>(texts: impl Iterator<Item = &'a str>) -> Option<u64> {
    texts.filter_map(parse::unsigned).filter(|limit| *limit < UNLIMITED).min()
}

/// Bytes that the kernel takes back when they are needed, by memory.stat: files that nothing has used lately.
pub(super) fn reclaimable(stat: &str) -> u64 {
    in_stat(stat, "total_inactive_file").or_else(|| in_stat(stat, "inactive_file")).unwrap_or(0)
}

/// The lowest limit of the levels above, some of which a container may not see; of version 1.
pub(super) fn limit_above(stat: &str) -> Option<u64> {
    in_stat(stat, "hierarchical_memory_limit").filter(|limit| *limit < UNLIMITED)
}

fn in_stat(stat: &str, key: &str) -> Option<u64> {
    stat.lines().find_map(|line| parse::unsigned(line.strip_prefix(key)?.strip_prefix(' ')?))
}

/// Places where a controller of version 1 is usually mounted.
fn mounts(root: &SysRoot, controller: &str, together: &str) -> Vec<String> {
    let names = [format!("{ROOT}/{controller}"), format!("{ROOT}/{together}")];
    let mut names: Vec<String> = names.into_iter().filter(|name| root.path(name).is_dir()).collect();
    names.dedup();
    names
}

/// Mounts of control groups outside of the usual directory: RHEL 6 and old LXC have /cgroup.
#[derive(Debug, Default)]
struct Elsewhere {
    unified: Vec<String>,
    /// With the options of each, which name its controllers.
    version_1: Vec<(String, String)>,
}

impl Elsewhere {
    fn of(root: &SysRoot) -> Self {
        let mut found = Self::default();
        let text = root.read("/proc/self/mountinfo").unwrap_or_default();
        for line in text.lines() {
            let Some((before, after)) = line.split_once(" - ") else { continue };
            let Some(dir) = before.split(' ').nth(4).filter(|dir| !dir.starts_with(ROOT)) else { continue };
            let mut after = after.split(' ');
            match (after.next(), after.nth(1)) {
                (Some("cgroup2"), _) => found.unified.push(dir.to_owned()),
                (Some("cgroup"), Some(options)) => found.version_1.push((dir.to_owned(), options.to_owned())),
                _ => {}
            }
        }
        found
    }

    fn of_controller(&self, controller: &str) -> impl Iterator<Item = String> {
        let has = move |options: &str| options.split(',').any(|option| option == controller);
        self.version_1.iter().filter(move |(_, options)| has(options)).map(|(dir, _)| dir.clone())
    }
}

/// The directories of a group and of those above it, the root of the mount last.
fn levels(root: &SysRoot, mount: &str, path: &str) -> Vec<String> {
    let parts: Vec<&str> =
        path.split('/').filter(|part| !part.is_empty() && *part != "..").take(DEEPEST).collect();
    let dirs = (0..=parts.len())
        .rev()
        .filter(|length| *length == 0 || parts.get(length - 1).is_none_or(|name| *name != OWN_UNIT));
    dirs.map(|length| {
        let below: String = parts[..length].iter().flat_map(|part| ["/", part]).collect();
        format!("{mount}{below}")
    })
    .filter(|dir| root.path(dir).is_dir())
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The weight of process 7 where the files under a root hold these texts.
    fn weight(files: &[(&str, &str)]) -> Option<(f64, String)> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        cpu_limits(&SysRoot::new(root.path()), 7).weight
    }

    #[test]
    fn the_lowest_weight_of_the_groups_around_a_process_counts_in_both_versions() {
        let unified = [
            ("proc/7/cgroup", "0::/work.slice/one\n"),
            ("sys/fs/cgroup/work.slice/cpu.weight", "50\n"),
            ("sys/fs/cgroup/work.slice/one/cpu.weight", "200\n"),
        ];
        assert_eq!(weight(&unified), Some((0.5, "/sys/fs/cgroup/work.slice/cpu.weight".to_owned())));
        let version_1 = [
            ("proc/7/cgroup", "3:cpu,cpuacct:/docker\n"),
            ("sys/fs/cgroup/cpu,cpuacct/docker/cpu.shares", "256\n"),
        ];
        let shares = "/sys/fs/cgroup/cpu,cpuacct/docker/cpu.shares".to_owned();
        assert_eq!(weight(&version_1), Some((0.25, shares)));
        for odd in ["", "0\n", "-3\n", "idle\n"] {
            assert_eq!(weight(&[unified[0], ("sys/fs/cgroup/work.slice/cpu.weight", odd)]), None, "{odd:?}");
        }
    }
}
