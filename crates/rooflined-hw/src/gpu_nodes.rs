//! The device nodes that a GPU's driver is reached through, and whether this process may use them.
//!
//! Asked with access(2), which opens nothing: the permissions of the file and the device policy of the control group both
//! answer it, and no node powers a GPU on by it.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::io::Errno;

use crate::SysRoot;

/// Nodes whose presence means that an NVIDIA driver is there.
const DRIVERS: [&str; 3] = ["dev/nvgpu/igpu0/power", "dev/nvhost-ctrl-gpu", "dev/nvidiactl"];

/// What CUDA and NVML open, with what they open it for. `nvmap` belongs to root:video with mode 0440 on JetPack 6 and 7, and
/// `l3cache` exists on Xavier.
const NODES: [(&str, Access); 9] = [
    ("dev/nvmap", Access::READ_OK),
    ("dev/l3cache", Access::READ_OK),
    ("dev/host1x-fence", BOTH),
    ("dev/nvgpu/igpu0/ctrl", BOTH),
    ("dev/nvhost-ctrl", BOTH),
    ("dev/nvhost-ctrl-gpu", BOTH),
    ("dev/nvidiactl", BOTH),
    ("dev/nvidia0", BOTH),
    ("dev/nvidia-uvm", BOTH),
];

const BOTH: Access = Access::READ_OK.union(Access::WRITE_OK);

/// A node of a GPU's driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuNode {
    pub path: PathBuf,
    /// Why this process may not use it; `None` if it may.
    pub denied: Option<String>,
}

/// What is wrong with nodes that this process may not use, and what to do; `None` if nothing is.
#[must_use]
pub fn denied_nodes(nodes: &[GpuNode]) -> Option<String> {
    let denied =
        nodes.iter().filter_map(|node| Some(format!("{}: {}", node.path.display(), node.denied.as_ref()?)));
    let denied: Vec<_> = denied.collect();
    (!denied.is_empty()).then(|| {
        format!(
            "the GPU is out of reach: {}; the user has to be in the groups video and render, and a unit has to name the device \
             (systemctl cat rooflined, DeviceAllow=)",
            denied.join(", ")
        )
    })
}

/// The nodes that are there. None where there is no NVIDIA driver: render nodes alone may be another GPU's.
#[must_use]
pub fn gpu_nodes(root: &SysRoot) -> Vec<GpuNode> {
    if !DRIVERS.iter().any(|driver| root.path(driver).exists()) {
        return Vec::new();
    }
    let render = root.numbered("/dev/dri", "renderD");
    let render = render.into_iter().map(|(_, name)| (format!("dev/dri/{name}"), BOTH));
    let named = NODES.iter().map(|(path, access)| ((*path).to_owned(), *access));
    let nodes = named.chain(render).filter_map(|(path, access)| {
        let denied = denied(&root.path(&path), access)?;
        Some(GpuNode { path: Path::new("/").join(path), denied })
    });
    nodes.collect()
}

/// `None` where there is no such node, or else why it may not be used.
#[expect(clippy::option_option, reason = "absent, usable, and denied for a reason")]
fn denied(path: &Path, access: Access) -> Option<Option<String>> {
    match accessat(CWD, path, access, AtFlags::empty()) {
        Ok(()) => Some(None),
        Err(Errno::NOENT | Errno::NOTDIR) => None,
        // Only a device policy refuses with this. The call without flags is the old one, which every filter of calls knows.
        Err(Errno::PERM) => Some(Some("the control group's device policy does not allow it".into())),
        Err(Errno::ACCESS) => Some(Some("its owner and mode do not allow it".into())),
        Err(error) => Some(Some(error.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn put(root: &Path, path: &str, mode: u32) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn nodes_without_an_nvidia_driver_are_somebody_elses() {
        let dir = tempfile::tempdir().unwrap();
        put(dir.path(), "dev/dri/renderD128", 0o666);
        assert_eq!(gpu_nodes(&SysRoot::new(dir.path())), []);
    }

    #[test]
    fn an_orins_nodes_are_found_and_absent_ones_are_not_named() {
        let dir = tempfile::tempdir().unwrap();
        for (path, mode) in [
            ("dev/nvgpu/igpu0/power", 0o600),
            ("dev/nvgpu/igpu0/ctrl", 0o660),
            ("dev/nvmap", 0o440),
            ("dev/dri/renderD128", 0o660),
            ("dev/dri/card0", 0o660),
        ] {
            put(dir.path(), path, mode);
        }
        let found = gpu_nodes(&SysRoot::new(dir.path()));
        let paths: Vec<_> = found.iter().map(|node| node.path.to_str().unwrap()).collect();
        assert_eq!(paths, ["/dev/nvmap", "/dev/nvgpu/igpu0/ctrl", "/dev/dri/renderD128"]);
        // Read access suffices for the first, whose mode gives nobody more.
        assert!(found.iter().all(|node| node.denied.is_none()), "{found:?}");
    }
}
