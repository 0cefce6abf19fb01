//! Who keeps the machine busy.

use std::time::Duration;

use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System};

use super::SysRoot;
use crate::board::Reading;

/// Time over which the CPU use of processes is measured; /proc counts in ticks of 10 ms.
const WINDOW: Duration = Duration::from_millis(250);

/// A process that uses the CPU.
#[derive(Debug, Clone, PartialEq)]
pub struct BusyProcess {
    /// Process id.
    pub pid: u32,
    /// Name of the program, as the kernel keeps it.
    pub name: String,
    /// CPU time used over time passed; 1 is one whole CPU.
    pub cpu_ratio: f64,
}

/// The `limit` processes, other than this one, that use most CPU time right now, busiest first. Takes a quarter of a
/// second, so it is for a person's question and for a reason to be told, never for a sample. Absent under a root that
/// is not this machine.
#[must_use]
pub fn busy_processes(root: &SysRoot, limit: usize) -> Reading<Vec<BusyProcess>> {
    if !root.is_host() {
        return Reading::absent("processes are only known of the machine itself, not of a captured tree");
    }
    let mut system = match System::new() {
        Ok(system) => system,
        Err(error) => return Reading::failed(format!("/proc: {error}")),
    };
    let mut refresh = || {
        let kind = ProcessRefreshKind::nothing().with_cpu().without_tasks();
        system.refresh_processes_specifics(ProcessesToUpdate::All, true, kind)
    };
    refresh();
    std::thread::sleep(WINDOW);
    refresh();
    let own = std::process::id();
    let mut busy: Vec<BusyProcess> = system
        .processes()
        .values()
        .filter(|process| process.pid().as_u32() != own && process.cpu_usage() >= 1.0)
        .map(|process| BusyProcess {
            pid: process.pid().as_u32(),
            name: crate::board::parse::label(&process.name().to_string_lossy()).unwrap_or_default(),
            cpu_ratio: f64::from(process.cpu_usage()) / 100.0,
        })
        .collect();
    busy.sort_by(|a, b| b.cpu_ratio.total_cmp(&a.cpu_ratio));
    busy.truncate(limit);
    Reading::Known(busy)
}
