//! What a kernel does when its files are written: clocks are rounded down to their table, CPUs go away with their
//! frequency policy. Files keep their inode, and a reader never finds an empty file. A read in the very nanoseconds
//! in which the text is copied can still see both texts mixed, as plain files offer no more.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

use super::spec::{Cluster, Spec};

/// Where a board's path lies below the root.
pub(super) fn place(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}

/// The text of a file without the white space around it; `None` where there is none or none to be read.
pub(super) fn read(root: &Path, path: &str) -> Option<String> {
    let text = fs::read_to_string(place(root, path)).ok()?;
    let text = text.trim_matches(['\n', ' ', '\t', '\0']);
    (!text.is_empty()).then(|| text.to_owned())
}

pub(super) fn number(root: &Path, path: &str) -> Option<f64> {
    read(root, path)?.parse().ok()
}

/// Replaces what `file` holds, which was `before` bytes. One write has all of the new text, and line ends over what is
/// left of the old: white space to a reader that comes before the rest is cut off.
pub(super) fn replace(file: &File, before: u64, text: &str) -> io::Result<()> {
    let mut bytes = text.as_bytes().to_vec();
    let end = bytes.len() as u64;
    bytes.resize(usize::try_from(before.max(end)).unwrap_or(bytes.len()), b'\n');
    file.write_all_at(&bytes, 0)?;
    if before > end {
        file.set_len(end)?;
    }
    Ok(())
}

/// Writes a line to a file that exists.
pub(super) fn write(root: &Path, path: &str, value: &str) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(place(root, path))?;
    let before = file.metadata()?.len();
    replace(&file, before, &format!("{value}\n"))
}

/// What the kernel makes of `value` written to `path`; `None` where it takes it as it stands.
fn taken(spec: &Spec, root: &Path, path: &str, value: &str) -> Option<u64> {
    let name = path.rsplit('/').next()?;
    let asked = value.parse::<i128>().ok()?;
    // No cap: -1, and what programs make of it.
    let asked = u64::try_from(asked).ok().filter(|asked| *asked < (1 << 62)).unwrap_or(u64::MAX);
    let is_emc = path.contains("nvpmodel_clk_cap/emc") || path.contains("/bwmgr/");
    match name {
        "scaling_max_freq" | "scaling_min_freq" => {
            let cpu = path.split("/cpu/cpu").nth(1).or_else(|| path.split("/policy").nth(1))?;
            let cpu: u32 = cpu.split('/').next()?.parse().ok()?;
            Some(spec.cluster_of(cpu)?.clocks.down(asked))
        }
        "max_freq" | "min_freq" if path.contains("gpu-nvd") => Some(asked.min(1_692_000_000)),
        _ if is_emc && name != "min_freq" => Some(asked.min(spec.emc_max)),
        // Without a table the kernel only clamps.
        "max_freq" | "min_freq"
            if number(root, &sibling(path, "available_frequencies")).is_none()
                && read(root, &sibling(path, "available_frequencies")).is_none() =>
        {
            Some(asked.clamp(spec.gpu.min, spec.gpu.max))
        }
        "max_freq" | "min_freq" => Some(spec.gpu.down(asked)),
        _ => None,
    }
}

fn sibling(path: &str, name: &str) -> String {
    format!("{}/{name}", path.rsplit_once('/').map_or("", |(dir, _)| dir))
}

/// What a file holds after `value` was written to it.
pub(super) fn accepted(spec: &Spec, root: &Path, path: &str, value: &str) -> String {
    taken(spec, root, path, value).map_or_else(|| value.to_owned(), |taken| taken.to_string())
}

/// Writes `value` as a program would, with all that follows from it.
pub(super) fn store(spec: &Spec, root: &Path, path: &str, value: &str) -> io::Result<()> {
    // The first CPU cannot go offline; the kernel refuses it and the file keeps its value.
    let boot_cpu = path == "/sys/devices/system/cpu/cpu0/online" && value == "0";
    if boot_cpu {
        return Err(io::Error::from_raw_os_error(rustix::io::Errno::BUSY.raw_os_error()));
    }
    write(root, path, &accepted(spec, root, path, value))?;
    if path.starts_with("/sys/devices/system/cpu/cpu") && path.ends_with("/online") {
        settle_cpus(spec, root)?;
    }
    Ok(())
}

/// The CPUs whose own file says that they are online.
pub(super) fn online(spec: &Spec, root: &Path) -> Vec<u32> {
    let is_on = |cpu: &u32| {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/online");
        *cpu == 0 || read(root, &path).is_none_or(|text| text != "0")
    };
    (0..spec.cpus()).filter(is_on).collect()
}

/// `0-3,6` for a list in order.
pub(super) fn list(cpus: &[u32]) -> String {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => ranges.push((cpu, cpu)),
        }
    }
    let range = |(first, last): &(u32, u32)| {
        if first == last { first.to_string() } else { format!("{first}-{last}") }
    };
    ranges.iter().map(range).collect::<Vec<_>>().join(",")
}

const CPUFREQ: &str = "/sys/devices/system/cpu/cpufreq";

/// Makes the lists and the frequency policies fit the CPUs that are online. Done twice at once it comes to the same.
pub(super) fn settle_cpus(spec: &Spec, root: &Path) -> io::Result<()> {
    let online = online(spec, root);
    let offline: Vec<u32> = (0..spec.cpus()).filter(|cpu| !online.contains(cpu)).collect();
    for (path, cpus) in [("online", &online), ("offline", &offline)] {
        let path = format!("/sys/devices/system/cpu/{path}");
        if read(root, &path).unwrap_or_default() != list(cpus) {
            write(root, &path, &list(cpus))?;
        }
    }
    for cluster in &spec.clusters {
        let members: Vec<u32> = cluster.cpus.iter().copied().filter(|cpu| online.contains(cpu)).collect();
        settle_policy(root, cluster, &members)?;
    }
    Ok(())
}

fn settle_policy(root: &Path, cluster: &Cluster, members: &[u32]) -> io::Result<()> {
    let first = cluster.cpus.first().copied().unwrap_or_default();
    let policy = format!("{CPUFREQ}/policy{first}");
    let exists = place(root, &policy).is_dir();
    if members.is_empty() {
        if exists {
            ignore(fs::remove_dir_all(place(root, &policy)), io::ErrorKind::NotFound)?;
        }
    } else if !exists {
        // Made beside and renamed, so that nobody sees half of it.
        let making = place(root, &format!("{CPUFREQ}/.making-{}-{}", std::process::id(), first));
        fs::create_dir_all(&making)?;
        for (name, text) in policy_files(cluster, members) {
            fs::write(making.join(name), text)?;
        }
        if fs::rename(&making, place(root, &policy)).is_err() {
            // Somebody else was faster.
            ignore(fs::remove_dir_all(&making), io::ErrorKind::NotFound)?;
        }
    } else {
        write(root, &format!("{policy}/affected_cpus"), &spaced(members))?;
    }
    for cpu in &cluster.cpus {
        let link = place(root, &format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq"));
        if members.contains(cpu) {
            ignore(symlink(format!("../cpufreq/policy{first}"), &link), io::ErrorKind::AlreadyExists)?;
        } else {
            ignore(fs::remove_file(&link), io::ErrorKind::NotFound)?;
        }
    }
    Ok(())
}

fn ignore(outcome: io::Result<()>, kind: io::ErrorKind) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == kind => Ok(()),
        outcome => outcome,
    }
}

fn spaced(cpus: &[u32]) -> String {
    cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(" ")
}

fn policy_files(cluster: &Cluster, members: &[u32]) -> Vec<(&'static str, String)> {
    let clocks = cluster.clocks;
    let low = clocks.down(729_600);
    let table: String = clocks.all().map(|clock| format!("{clock} ")).collect();
    [
        ("affected_cpus", spaced(members)),
        ("related_cpus", spaced(&cluster.cpus)),
        ("cpuinfo_cur_freq", low.to_string()),
        ("cpuinfo_max_freq", clocks.max.to_string()),
        ("cpuinfo_min_freq", clocks.min.to_string()),
        ("cpuinfo_transition_latency", "400000".to_owned()),
        ("scaling_available_frequencies", table),
        (
            "scaling_available_governors",
            "conservative ondemand userspace powersave performance schedutil".to_owned(),
        ),
        ("scaling_cur_freq", low.to_string()),
        ("scaling_driver", "tegra194".to_owned()),
        ("scaling_governor", "schedutil".to_owned()),
        ("scaling_max_freq", clocks.max.to_string()),
        ("scaling_min_freq", low.to_string()),
    ]
    .map(|(name, text)| (name, format!("{text}\n")))
    .into()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn lists_of_cpus_read_like_the_kernels() {
        assert_eq!(list(&[0, 1, 2, 3, 6, 8, 9]), "0-3,6,8-9");
        assert_eq!(list(&[]), "");
    }

    #[test]
    fn a_reader_never_sees_an_empty_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("value");
        fs::write(&path, "918000000\n").unwrap();
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let writer = OpenOptions::new().write(true).open(&path).unwrap();
                let mut before = 10;
                for turn in 0..20_000 {
                    let text = if turn % 2 == 0 { "0\n" } else { "918000000\n" };
                    replace(&writer, before, text).unwrap();
                    before = text.len() as u64;
                }
                stop.store(true, std::sync::atomic::Ordering::Relaxed);
            });
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let mut text = String::new();
                File::open(&path).unwrap().read_to_string(&mut text).unwrap();
                assert!(!text.trim().is_empty(), "{text:?}");
            }
        });
    }
}
