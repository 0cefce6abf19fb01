//! Where a process runs and where its memory lies: slow and fast cores, near and far memory.
//!
//! /sys/devices/system/cpu/cpuN/cpu_capacity (1024 = the fastest), else cpufreq/cpuinfo_max_freq (kHz)
//! /sys/devices/system/node/nodeN/cpulist, distance (10 = its own memory); /proc/PID/numa_maps (pages by node)

use std::collections::BTreeMap;

use rooflined_core::board::parse;

use super::SysRoot;

const CPUS: &str = "/sys/devices/system/cpu";
const NODES: &str = "/sys/devices/system/node";
/// A thread with less of the busiest one's CPU time does not compute.
const AS_BUSY: f64 = 0.5;

/// How fast the cores are that a process may use.
#[derive(Debug, Clone, PartialEq)]
pub struct CoreSpeed {
    /// Mean speed of the fastest allowed cores over that of the fastest of the machine, 1 at most.
    pub ratio: f64,
    /// Files that tell the speeds.
    pub source: String,
}

/// The speed of the best `threads` of the `allowed` cores; `None` where no file tells it.
#[must_use]
pub fn core_speed(root: &SysRoot, allowed: &[u32], threads: u32) -> Option<CoreSpeed> {
    let online = parse::cpu_list(root.read(&format!("{CPUS}/online")).ok()?.trim())?;
    ["cpu_capacity", "cpufreq/cpuinfo_max_freq"].iter().find_map(|file| {
        let speed = |cpu: &u32| {
            let text = root.read(&format!("{CPUS}/cpu{cpu}/{file}")).ok()?;
            text.trim().parse().ok().filter(|speed: &f64| *speed > 0.0)
        };
        let best = |cpus: &[u32]| {
            let mut speeds: Vec<f64> = cpus.iter().map(speed).collect::<Option<_>>()?;
            speeds.sort_by(|a, b| b.total_cmp(a));
            speeds.truncate((threads.max(1) as usize).min(allowed.len()));
            mean(&speeds)
        };
        let ratio = best(allowed)? / best(&online)?;
        Some(CoreSpeed { ratio: ratio.min(1.0), source: format!("{CPUS}/cpu*/{file}") })
    })
}

#[expect(clippy::cast_precision_loss, reason = "a count of cores")]
fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Memory of a process that lies on other nodes than the threads that compute.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FarMemory {
    /// Part of its bytes, 0 to 1.
    pub ratio: f64,
    /// Mean distance of its memory over that of near memory, 1 or more.
    pub distance: f64,
}

/// Number of nodes with memory; 1 where nothing tells.
#[must_use]
pub fn memory_nodes(root: &SysRoot) -> usize {
    let nodes = root.read(&format!("{NODES}/has_memory")).ok();
    nodes.and_then(|text| parse::cpu_list(text.trim())).map_or(1, |nodes| nodes.len().max(1))
}

/// Where the memory of a process lies; `None` on one node, and where its files may not be read.
#[must_use]
pub fn far_memory(root: &SysRoot, pid: u32) -> Option<FarMemory> {
    if memory_nodes(root) < 2 {
        return None;
    }
    let bytes = bytes_by_node(&root.read(&format!("/proc/{pid}/numa_maps")).ok()?);
    let threads = threads_by_node(root, pid);
    let (all, count) = (bytes.values().sum::<f64>(), threads.values().sum::<f64>());
    let (mut far, mut distance, mut near) = (0.0, 0.0, 0.0);
    for (node, threads) in &threads {
        let text = root.read(&format!("{NODES}/node{node}/distance")).ok()?;
        let distances: Vec<f64> = text.split_whitespace().map_while(|part| part.parse().ok()).collect();
        for (of, bytes) in &bytes {
            let part = threads / count * bytes / all;
            far += if of == node { 0.0 } else { part };
            distance += part * distances.get(*of as usize)?;
            near += part * distances.get(*node as usize)?;
        }
    }
    (near > 0.0).then(|| FarMemory { ratio: far, distance: (distance / near).max(1.0) })
}

/// Bytes on each node: lines such as `7f00 default file=/m.gguf mapped=9 N0=4 N1=5 kernelpagesize_kB=4`.
fn bytes_by_node(maps: &str) -> BTreeMap<u32, f64> {
    let mut all = BTreeMap::new();
    for line in maps.lines() {
        let page_kib = line
            .split_whitespace()
            .find_map(|word| word.strip_prefix("kernelpagesize_kB=")?.parse::<f64>().ok())
            .unwrap_or(4.0);
        let nodes = line.split_whitespace().filter_map(|word| {
            let (node, pages) = word.strip_prefix('N')?.split_once('=')?;
            Some((node.parse::<u32>().ok()?, pages.parse::<f64>().ok()?))
        });
        for (node, pages) in nodes {
            *all.entry(node).or_insert(0.0) += pages * page_kib * 1024.0;
        }
    }
    all.retain(|_, bytes| *bytes > 0.0);
    all
}

/// How many of the threads that compute ran last on the CPUs of each node.
fn threads_by_node(root: &SysRoot, pid: u32) -> BTreeMap<u32, f64> {
    let tasks: Vec<(f64, u32)> = root
        .names(&format!("/proc/{pid}/task"))
        .iter()
        .filter_map(|task| {
            let stat = root.read(&format!("/proc/{pid}/task/{task}/stat")).ok()?;
            let fields: Vec<&str> = stat.get(stat.rfind(')')? + 1..)?.split_whitespace().collect();
            // Fields 14, 15 and 39 of proc(5); the first here is field 3.
            let number = |field: usize| fields.get(field - 3)?.parse::<u32>().ok();
            Some((f64::from(number(14)?) + f64::from(number(15)?), number(39)?))
        })
        .collect();
    let most = tasks.iter().map(|(time, _)| *time).fold(0.0, f64::max);
    let mut all = BTreeMap::new();
    for node in root.names(NODES).iter().filter_map(|name| name.strip_prefix("node")?.parse::<u32>().ok()) {
        let text = root.read(&format!("{NODES}/node{node}/cpulist")).unwrap_or_default();
        let cpus = parse::cpu_list(text.trim()).unwrap_or_default();
        let count = tasks.iter().filter(|(time, cpu)| *time >= AS_BUSY * most && cpus.contains(cpu)).count();
        if count > 0 {
            #[expect(clippy::cast_precision_loss, reason = "a count of threads")]
            all.insert(node, count as f64);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, SysRoot) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let root = SysRoot::new(dir.path());
        (dir, root)
    }

    #[test]
    fn the_best_allowed_cores_are_held_against_the_best_of_all() {
        let capacities = ["1024", "1024", "400", "400"];
        let paths: Vec<String> =
            (0..4).map(|cpu| format!("sys/devices/system/cpu/cpu{cpu}/cpu_capacity")).collect();
        let mut files = vec![("sys/devices/system/cpu/online", "0-3\n")];
        files.extend(paths.iter().map(String::as_str).zip(capacities));
        let (_dir, root) = tree(&files);
        let ratio = |allowed: &[u32], threads| core_speed(&root, allowed, threads).unwrap().ratio;
        assert!((ratio(&[0, 1, 2, 3], 2) - 1.0).abs() < 1e-12);
        assert!((ratio(&[2, 3], 2) - 400.0 / 1024.0).abs() < 1e-12);
        assert!((ratio(&[1, 2], 2) - 712.0 / 1024.0).abs() < 1e-12);
        // The fastest of all are as many as are allowed: too few cores are another cause.
        assert!((ratio(&[0], 4) - 1.0).abs() < 1e-12);
        assert_eq!(core_speed(&root, &[9], 1), None);
        assert_eq!(core_speed(&SysRoot::new("/nowhere"), &[0], 1), None);
    }

    #[test]
    fn threads_of_one_core_count_once() {
        let file = |cpu: u32| format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        let (_dir, root) =
            tree(&[(&file(0), "0,2\n"), (&file(1), "1,3\n"), (&file(2), "0,2\n"), (&file(3), "1,3\n")]);
        assert_eq!(crate::count_cores(&root, &[0, 2]), Some(1));
        assert_eq!(crate::count_cores(&root, &[0, 1, 2, 3]), Some(2));
        assert_eq!(crate::count_cores(&root, &[9]), None);
    }

    #[test]
    fn memory_on_the_other_node_is_far() {
        let node = "sys/devices/system/node";
        let stat = |time: u32, cpu: u32| {
            let fields: Vec<String> = (3..=40)
                .map(|field| match field {
                    14 => time.to_string(),
                    39 => cpu.to_string(),
                    _ => "0".to_owned(),
                })
                .collect();
            format!("7 (llama) {}", fields.join(" "))
        };
        let maps = "7f00 default file=/m.gguf mapped=9 N0=25 N1=75 kernelpagesize_kB=4\n7f01 default heap\n";
        let (first, second, idle) = (stat(100, 0), stat(90, 1), stat(3, 2));
        let (_dir, root) = tree(&[
            (&format!("{node}/has_memory"), "0-1\n"),
            (&format!("{node}/node0/cpulist"), "0-1\n"),
            (&format!("{node}/node1/cpulist"), "2-3\n"),
            (&format!("{node}/node0/distance"), "10 21\n"),
            (&format!("{node}/node1/distance"), "21 10\n"),
            ("proc/7/numa_maps", maps),
            ("proc/7/task/7/stat", &first),
            ("proc/7/task/8/stat", &second),
            ("proc/7/task/9/stat", &idle),
        ]);
        let far = far_memory(&root, 7).unwrap();
        assert!((far.ratio - 0.75).abs() < 1e-12, "{far:?}");
        assert!((far.distance - (0.25 * 10.0 + 0.75 * 21.0) / 10.0).abs() < 1e-12, "{far:?}");
        assert_eq!(far_memory(&root, 8), None);
    }
}
