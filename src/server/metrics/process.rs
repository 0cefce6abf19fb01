//! The daemon's own load, under the names that every program has for it.

use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System, get_current_pid};

use super::{Page, count, counter, gauge};

#[expect(clippy::cast_precision_loss, reason = "milliseconds and bytes of one process")]
pub(super) fn process(page: &mut Page) {
    let (Ok(pid), Ok(mut system)) = (get_current_pid(), System::new()) else { return };
    let wanted = ProcessRefreshKind::nothing().with_cpu().with_memory();
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[pid]), true, wanted);
    let Some(process) = system.process(pid) else { return };
    let cpu = process.accumulated_cpu_time() as f64 / 1e3;
    page.sample(counter("process_cpu_seconds_total", "Time of processors that the daemon took."), &[], cpu);
    let resident =
        gauge("process_resident_memory_bytes", "Memory that the daemon takes, pages of its file included.");
    page.sample(resident, &[], process.memory() as f64);
    let open = process.open_files().map(|open| count(open as u64));
    page.maybe(gauge("process_open_fds", "Descriptors that the daemon has open."), &[], open);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_takes_memory_and_has_descriptors() {
        let mut page = Page { text: String::new(), family: "" };
        process(&mut page);
        let value = |name: &str| -> f64 {
            let line = page.text.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
            line.split_once(' ').unwrap().1.parse().unwrap()
        };
        assert!(value("process_resident_memory_bytes") > 1e6, "{}", page.text);
        assert!(
            value("process_open_fds") >= 3.0 && value("process_cpu_seconds_total") >= 0.0,
            "{}",
            page.text
        );
    }
}
