//! Versions of what NVIDIA installs: JetPack, CUDA, TensorRT. Looked up once.

use std::fs::File as OsFile;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::OpenOptionsExt;

use rustix::fs::OFlags;

use crate::source::{DiscoveryContext, Plan, Reader, found};
use crate::state::detail;
use crate::{SysRoot, excerpt, parsed};
use rooflined_core::board::identity::l4t_release;
use rooflined_core::board::{Reading, jetpack, parse::details as text};

const RELEASE: &str = "/etc/nv_tegra_release";
const CUDA: &str = "/usr/local/cuda/version.json";
/// Of releases before 11.1, which JetPack 4 has.
const OLD_CUDA: &str = "/usr/local/cuda/version.txt";
const DPKG: &str = "/var/lib/dpkg/status";
/// TensorRT's library, by the major version in its name, and the package that stands for all of it.
const TENSORRT: [&str; 4] = ["libnvinfer10", "libnvinfer8", "libnvinfer7", "tensorrt"];
/// The file of a desktop with every package has ten megabytes.
const LARGEST: u64 = 64 << 20;

pub(super) fn discover(context: &DiscoveryContext<'_>, plan: &mut Plan) -> Option<Reader> {
    let root = context.root;
    let (jetpack, cuda, tensorrt) = (of_release(root), of_cuda(root), of_tensorrt(root));
    let cuda_file = if root.path(&root.resolve(CUDA)).exists() { CUDA } else { OLD_CUDA };
    for (field, version, path) in
        [("jetpack", &jetpack, RELEASE), ("cuda", &cuda, cuda_file), ("tensorrt", &tensorrt, DPKG)]
    {
        if version.known().is_some() {
            plan.add_origin(field, path);
        }
    }
    found(move |_, state| {
        detail!(state.jetpack = jetpack.clone(), None);
        detail!(state.cuda = cuda.clone(), None);
        detail!(state.tensorrt = tensorrt.clone(), None);
    })
}

fn of_release(root: &SysRoot) -> Reading<String> {
    match parsed(RELEASE, root.read(RELEASE), "a release of L4T", l4t_release) {
        Reading::Known(release) => jetpack(&release).map_or_else(
            || Reading::absent(format!("no JetPack is known of L4T {release}, which {RELEASE} names")),
            |jetpack| Reading::Known(jetpack.to_owned()),
        ),
        other => other,
    }
}

fn of_cuda(root: &SysRoot) -> Reading<String> {
    // /usr/local/cuda is a link, which starts at the board's root.
    let of = |path: &str, read: fn(&str) -> Option<String>| {
        let path = root.resolve(path);
        parsed(&path, root.read(&path), "the version of CUDA", read)
    };
    match of(CUDA, text::cuda_version) {
        absent @ Reading::Absent { .. } => match of(OLD_CUDA, text::old_cuda_version) {
            Reading::Absent { .. } => absent,
            old => old,
        },
        current => current,
    }
}

fn of_tensorrt(root: &SysRoot) -> Reading<String> {
    let open = || {
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = OsFile::options()
            .read(true)
            .custom_flags(flags.bits().cast_signed())
            .open(root.path(DPKG))
            .ok()?;
        file.metadata().ok()?.is_file().then_some(file)
    };
    let Some(file) = open() else {
        return Reading::absent(format!("{DPKG} cannot be read, which lists what is installed"));
    };
    match installed(BufReader::new(file.take(LARGEST)), &TENSORRT) {
        Some(package) => text::version(&package).map_or_else(
            || Reading::failed(format!("{DPKG} holds {} as a version", excerpt(&package))),
            Reading::Known,
        ),
        None => Reading::absent(format!("{DPKG} has no {} installed", TENSORRT.join(" and no "))),
    }
}

/// The version of the first of `packages` that is installed, by the stanzas of dpkg's status file. Lines of any length
/// and any bytes are passed over.
fn installed(mut status: impl BufRead, packages: &[&str]) -> Option<String> {
    let mut best: Option<(usize, String)> = None;
    let (mut package, mut is_installed, mut line) = (None, false, Vec::new());
    loop {
        line.clear();
        let read = status.by_ref().take(LARGEST).read_until(b'\n', &mut line).unwrap_or(0);
        let field = |key: &[u8]| {
            let value = line.strip_prefix(key)?;
            std::str::from_utf8(value).ok().map(str::trim)
        };
        if read == 0 {
            return best.map(|(_, version)| version);
        }
        if line == b"\n" {
            (package, is_installed) = (None, false);
        } else if let Some(name) = field(b"Package:") {
            package = packages.iter().position(|package| *package == name);
        } else if let Some(state) = field(b"Status:") {
            is_installed = state.ends_with(" installed");
        } else if let Some(version) = field(b"Version:") {
            let found = package.filter(|_| is_installed);
            if let Some(index) = found.filter(|index| best.as_ref().is_none_or(|(best, _)| index < best)) {
                best = Some((index, version.to_owned()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_what_is_installed() {
        let status = "Package: libnvinfer8\nStatus: deinstall ok config-files\nVersion: 8.6.2.3-1+cuda12.2\n\n\
                      Package: libnvinfer-dev\nStatus: install ok installed\nVersion: 9.9\n\n\
                      Package: tensorrt\nStatus: install ok installed\nVersion: 10.3.0.30-1+cuda12.5\n\n\
                      Package: libnvinfer10\nStatus: install ok installed\nArchitecture: arm64\nVersion: 10.3.0.26-1\n\n";
        let find = |packages: &[&str]| installed(status.as_bytes(), packages);
        assert_eq!(
            find(&TENSORRT).as_deref(),
            Some("10.3.0.26-1"),
            "the library before the name for all of it"
        );
        assert_eq!(find(&["libnvinfer8"]), None, "removed");
        assert_eq!(find(&["tensorrt"]).as_deref(), Some("10.3.0.30-1+cuda12.5"));
        assert_eq!(installed(&b"\xff\xfe\0"[..], &TENSORRT), None);
    }
}
