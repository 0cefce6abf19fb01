//! Files under the root: links are resolved inside it, and a few that only root may read are handed over.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::OFlags;

use rooflined_core::board::OrderFailure;
use rooflined_hw::SysRoot;

/// More links in one path than the kernel follows.
const MOST_LINKS: usize = 40;
/// A longer file is none that is read here; a file of modes has 20 KiB.
const LONGEST: u64 = 4 << 20;
/// Readable by root alone, and of use to the daemon: clocks and activity of the memory on Orin and Thor.
const HANDED_OVER: [&str; 6] = [
    "/sys/kernel/debug/bpmp/debug/clk/emc/rate",
    "/sys/kernel/debug/bpmp/debug/clk/emc/min_rate",
    "/sys/kernel/debug/bpmp/debug/clk/emc/max_rate",
    "/sys/kernel/debug/cactmon/mc_all",
    "/sys/kernel/debug/bpmp/debug/actmon/mc_all_avg_activity",
    "/sys/kernel/actmon_avg_activity/mc_all",
];
/// Energy counters of the CPU packages, closed to others since they leak secrets of other processes.
const RAPL: &str = "/sys/class/powercap/intel-rapl:";

/// Where `logical` lies under the root with every symbolic link followed inside it: one to `/etc/x` leads to
/// `ROOT/etc/x`, and `..` never leads out. The file itself need not exist.
pub(super) fn resolve(root: &SysRoot, logical: &str) -> io::Result<PathBuf> {
    let base = root.path("/");
    let mut parts: Vec<_> = parts_of(Path::new(logical));
    let (mut resolved, mut links) = (base.clone(), 0);
    while let Some(part) = parts.pop() {
        if part == ".." {
            if resolved != base {
                resolved.pop();
            }
            continue;
        }
        let next = resolved.join(&part);
        match fs::read_link(&next) {
            Ok(target) => {
                links += 1;
                if links > MOST_LINKS {
                    return Err(io::Error::other(format!("{logical} has too many symbolic links")));
                }
                if target.is_absolute() {
                    resolved.clone_from(&base);
                }
                parts.extend(parts_of(&target));
            }
            // No link, or nothing at all: opening it will say so.
            Err(_) => resolved = next,
        }
    }
    Ok(resolved)
}

/// The components in reverse, ready to be popped.
fn parts_of(path: &Path) -> Vec<std::ffi::OsString> {
    let named = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    let mut parts: Vec<_> = named.collect();
    parts.reverse();
    parts
}

/// The bytes of a plain file, if they are not beyond reason. Never waits.
pub(super) fn read(root: &SysRoot, logical: &str) -> io::Result<Vec<u8>> {
    let file = open_plain(&resolve(root, logical)?)?;
    let mut bytes = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST { Err(io::Error::other("it is longer than 4 MiB")) } else { Ok(bytes) }
}

fn open_plain(path: &Path) -> io::Result<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC).bits() as i32;
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is not a regular file")) }
}

/// Opens one of the files that are handed over, for reading.
pub(super) fn open(root: &SysRoot, logical: &str) -> Result<File, OrderFailure> {
    if !HANDED_OVER.contains(&logical) && !is_rapl(logical) {
        let message = format!("{logical:?} is not one of the files that are handed over");
        return Err(OrderFailure::with_hint(message, "read it yourself"));
    }
    resolve(root, logical).and_then(|path| open_plain(&path)).map_err(|error| {
        let message = format!("{logical} cannot be opened ({error})");
        OrderFailure::with_hint(message, "this kernel may not have it")
    })
}

/// `/sys/class/powercap/intel-rapl:0/energy_uj`, `…intel-rapl:0:1/energy_uj`.
fn is_rapl(logical: &str) -> bool {
    let zone = logical.strip_prefix(RAPL).and_then(|rest| rest.strip_suffix("/energy_uj"));
    let numbers = |zone: &str| {
        zone.split(':').all(|n| matches!(n.len(), 1..=3) && n.bytes().all(|b| b.is_ascii_digit()))
    };
    zone.is_some_and(numbers)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_lead_nowhere_but_inside_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let (root, at) = (SysRoot::new(dir.path()), |name: &str| dir.path().join(name));
        fs::create_dir_all(at("etc/nvpmodel")).unwrap();
        fs::write(at("etc/nvpmodel/a.conf"), "").unwrap();
        symlink("/etc/nvpmodel/a.conf", at("etc/absolute")).unwrap();
        symlink("../../../../../etc/nvpmodel/a.conf", at("etc/climbing")).unwrap();
        symlink("absolute", at("etc/twice")).unwrap();
        symlink("loop", at("etc/loop")).unwrap();
        for name in ["/etc/absolute", "/etc/climbing", "/etc/twice", "/../etc/nvpmodel/./a.conf"] {
            assert_eq!(resolve(&root, name).unwrap(), at("etc/nvpmodel/a.conf"), "{name}");
        }
        assert!(resolve(&root, "/etc/loop").is_err());
        assert_eq!(resolve(&root, "/etc/none").unwrap(), at("etc/none"));
    }

    #[test]
    fn only_listed_files_are_opened() {
        let dir = tempfile::tempdir().unwrap();
        let root = SysRoot::new(dir.path());
        for (path, text) in [("sys/kernel/debug/cactmon/mc_all", "1"), ("etc/shadow", "secret")] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        assert!(open(&root, "/sys/kernel/debug/cactmon/mc_all").is_ok());
        for path in ["/etc/shadow", "/sys/kernel/debug/cactmon/../cactmon/mc_all", "", "sys/kernel"] {
            assert!(open(&root, path).unwrap_err().message.contains("not one of the files"), "{path}");
        }
        let missing = open(&root, "/sys/kernel/debug/bpmp/debug/clk/emc/rate").unwrap_err();
        assert!(missing.message.contains("cannot be opened"), "{missing}");
    }

    #[test]
    fn energy_counters_are_known_by_their_pattern() {
        assert!(is_rapl("/sys/class/powercap/intel-rapl:0/energy_uj"));
        assert!(is_rapl("/sys/class/powercap/intel-rapl:0:12/energy_uj"));
        for path in ["intel-rapl:0/../x/energy_uj", "intel-rapl:/energy_uj", "intel-rapl:0:/energy_uj"] {
            assert!(!is_rapl(&format!("/sys/class/powercap/{path}")), "{path}");
        }
    }
}
