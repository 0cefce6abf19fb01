//! Which files make a board: `files.txt` lists them. `*` stands for any part of one name.

use std::collections::BTreeSet;

use super::super::SysRoot;

/// Links that are kept as links.
pub(super) const LINKS: &[&str] = &["/etc/nvpmodel.conf"];

/// Directories that count even though nothing in them can be read.
const DIRS: &[&str] = &[
    "/sys/devices/system/cpu/cpu*",
    "/sys/devices/system/cpu/cpufreq/policy*",
    "/sys/class/thermal/thermal_zone*",
    "/sys/class/hwmon/hwmon*",
    "/sys/class/powercap/*:*",
];

/// The patterns of files, beside comments.
fn patterns() -> impl Iterator<Item = &'static str> {
    include_str!("files.txt").lines().filter(|line| line.starts_with('/'))
}

/// The files that are there, each once.
pub(super) fn files(root: &SysRoot) -> BTreeSet<String> {
    // A file in the place of a directory is a fault worth keeping.
    let patterns = patterns().chain(DIRS.iter().copied());
    let mut found: BTreeSet<String> = patterns.flat_map(|pattern| expand(root, pattern)).collect();
    found.retain(|path| !root.path(path).is_dir() || !DIRS.iter().any(|dir| is_beside(dir, path)));
    for link in LINKS {
        found.extend(targets(root, link));
    }
    found
}

/// Whether a path lies in the directory that a pattern is about.
fn is_beside(pattern: &str, path: &str) -> bool {
    let parent = |path: &str| path.rsplit_once('/').map_or(String::new(), |(parent, _)| parent.to_owned());
    parent(pattern) == parent(path)
}

pub(super) fn dirs(root: &SysRoot) -> BTreeSet<String> {
    let found = DIRS.iter().flat_map(|pattern| expand(root, pattern));
    found.filter(|path| root.path(path).is_dir()).collect()
}

/// The paths that a pattern stands for.
pub(super) fn expand(root: &SysRoot, pattern: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    for part in pattern.trim_start_matches('/').split('/') {
        found = match part.contains('*') {
            false => found.into_iter().map(|dir| format!("{dir}/{part}")).collect(),
            true => found
                .iter()
                .flat_map(|dir| {
                    let names = root.names(dir).into_iter().filter(|name| matches(part, name));
                    names.map(move |name| format!("{dir}/{name}"))
                })
                .collect(),
        };
    }
    found.retain(|path| root.path(path).symlink_metadata().is_ok());
    found
}

/// Whether a name is of the form of a pattern.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut name) = name.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match name.find(part) {
            Some(at) => name = &name[at + part.len()..],
            None => return false,
        }
    }
    name.ends_with(last)
}

/// The files on the way of a link, inside the root, up to one that is not a link.
fn targets(root: &SysRoot, link: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut at = link.to_owned();
    // A ring of links ends.
    while let Ok(target) = std::fs::read_link(root.path(&at)) {
        let dir = at.rsplit_once('/').map_or("", |(dir, _)| dir);
        let target = target.to_string_lossy();
        let path = if target.starts_with('/') { target.into_owned() } else { format!("{dir}/{target}") };
        let mut parts: Vec<&str> = Vec::new();
        for part in path.split('/').filter(|part| !part.is_empty() && *part != ".") {
            if part == ".." {
                parts.pop();
            } else {
                parts.push(part);
            }
        }
        at = format!("/{}", parts.join("/"));
        if found.len() >= 8 || found.contains(&at) {
            return Vec::new();
        }
        found.push(at.clone());
    }
    found
}

/// The part of a file that counts and that tells of no person: the interrupts in /proc/stat alone can have a megabyte, and
/// a swap file may lie in somebody's home. Numbers stand for processes.
pub(super) fn part_of(path: &str, text: String) -> String {
    let lines = text.split_inclusive('\n');
    match path {
        "/proc/stat" => lines.filter(|line| line.starts_with("cpu")).collect(),
        "/proc/swaps" => {
            lines.enumerate().map(|(index, line)| with_first(line, |file| swap_area(file, index))).collect()
        }
        _ if path.starts_with("/rooflined/nvml/") && path.ends_with("/processes") => lines
            .enumerate()
            .map(|(index, line)| with_first(line, |_| Some((index + 1).to_string())))
            .collect(),
        _ => text,
    }
}

/// A line whose first word is another.
fn with_first(line: &str, other: impl FnOnce(&str) -> Option<String>) -> String {
    let first = line.split_ascii_whitespace().next().unwrap_or_default();
    match other(first).filter(|_| !first.is_empty()) {
        Some(other) => line.replacen(first, &other, 1),
        None => line.to_owned(),
    }
}

/// What stands for the path of a swap file; `None` for the heading and a device, which tell nobody.
#[must_use]
pub fn swap_area(path: &str, index: usize) -> Option<String> {
    let is_device = path.strip_prefix("/dev/").is_some_and(|name| !name.contains('/'));
    (path.starts_with('/') && !is_device).then(|| format!("/swap{index}"))
}

#[cfg(test)]
mod tests {
    use super::{matches, part_of};

    #[test]
    fn where_a_swap_file_lies_and_which_processes_run_is_not_captured() {
        let swaps = "Filename Type Size Used Priority\n/dev/zram0 partition 8 0 5\n/home/alice/swapfile file 8 0 -2\n\
                     /dev/alice-vg/swap partition 8 0 -3";
        assert_eq!(
            part_of("/proc/swaps", swaps.into()),
            "Filename Type Size Used Priority\n/dev/zram0 partition 8 0 5\n/swap2 file 8 0 -2\n/swap3 partition 8 0 -3"
        );
        assert_eq!(part_of("/rooflined/nvml/0/processes", "4711 80\n17 -\n".into()), "1 80\n2 -\n");
        assert_eq!(part_of("/proc/meminfo", "/home/alice 1\n".into()), "/home/alice 1\n");
    }

    #[test]
    fn a_pattern_stands_for_names_of_its_form() {
        for (pattern, name, expected) in [
            ("hwmon*", "hwmon12", true),
            ("hwmon*", "xhwmon1", false),
            ("*_input", "in1_input", true),
            ("*_input", "in1_label", false),
            ("*.g*", "17000000.gpu", true),
            ("*.g*", "17000000", false),
            ("*:*", "intel-rapl:0:1", true),
            ("trip_point_*_temp", "trip_point_0_type", false),
            ("a*a", "a", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
    }
}
