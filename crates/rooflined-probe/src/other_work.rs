//! What else the machine does, seen while the probe itself still rests.

use std::collections::HashMap;
use std::fs;
use std::thread;
use std::time::Duration;

use super::clock::cpu_ticks;
use rooflined_predict::calibration::OtherWork;

/// The counters of /proc are in ticks of 10 ms, so this is ten of them.
const LOOK: Duration = Duration::from_millis(100);
/// A process is named from this many ticks on: a fifth of a CPU.
const NAMED_TICKS: u64 = 2;

/// Other work on `cpus`, and these with the idlest first. `None` where the kernel does not count.
pub fn find_other_work(cpus: &[u32]) -> Option<(OtherWork, Vec<u32>)> {
    let (stat, processes) = (cpu_ticks(cpus)?, process_ticks());
    thread::sleep(LOOK);
    let (later, processes_later) = (cpu_ticks(cpus)?, process_ticks());
    let mut busy: Vec<(u32, f64)> = stat
        .iter()
        .zip(&later)
        .filter(|((cpu, _), (other, _))| cpu == other)
        .map(|((cpu, before), (_, after))| (*cpu, after.busy_ratio_since(before)))
        .collect();
    busy.sort_by(|a, b| a.1.total_cmp(&b.1));
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let load_average = fs::read_to_string("/proc/loadavg").ok();
    let other_work = OtherWork {
        cpus: count(busy.len()),
        busy_cpus: count(busy.iter().filter(|(_, ratio)| *ratio >= 0.5).count()),
        busy_ratio: busy.iter().map(|(_, ratio)| ratio).sum::<f64>() / f64::from(count(busy.len()).max(1)),
        load_average: load_average.and_then(|text| text.split_ascii_whitespace().next()?.parse().ok()),
        busiest: busiest(&processes, &processes_later),
    };
    Some((other_work, busy.into_iter().map(|(cpu, _)| cpu).collect()))
}

/// Name and CPU time in ticks of every process that can be seen.
fn process_ticks() -> HashMap<u32, (String, u64)> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter_map(|id| Some((id, name_and_ticks(&fs::read_to_string(format!("/proc/{id}/stat")).ok()?)?)))
        .collect()
}

/// Of a line `123 (name) S 1 …`, where the name may hold anything, user and system time are the 14th and 15th field.
fn name_and_ticks(stat: &str) -> Option<(String, u64)> {
    let (start, end) = (stat.find('(')?, stat.rfind(')')?);
    let mut fields = stat.get(end + 1..)?.split_ascii_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    Some((stat.get(start + 1..end)?.to_owned(), ticks()? + ticks()?))
}

fn busiest(before: &HashMap<u32, (String, u64)>, after: &HashMap<u32, (String, u64)>) -> Option<String> {
    let used = after.iter().filter_map(|(id, (name, ticks))| {
        // Another process may have the id by now.
        let (_, earlier) = before.get(id).filter(|(earlier, _)| earlier == name)?;
        Some((ticks.saturating_sub(*earlier), name, id))
    });
    let (_, name, id) = used.filter(|(ticks, ..)| *ticks >= NAMED_TICKS).max()?;
    Some(format!("{name} (process {id})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let stat = "12 (a) b (c) R 1 12 12 0 -1 4194304 90 0 0 0 40 2 0 0 20 0 1 0 5 6 7";
        assert_eq!(name_and_ticks(stat), Some(("a) b (c".to_owned(), 42)));
        assert_eq!(name_and_ticks("12 (a"), None);
    }

    #[test]
    fn the_busiest_process_is_the_one_that_used_most_meanwhile() {
        let at = |ticks: [u64; 3]| -> HashMap<u32, (String, u64)> {
            (1..)
                .zip(["old", "loop", "idle"].iter().zip(ticks))
                .map(|(id, (name, ticks))| (id, ((*name).to_owned(), ticks)))
                .collect()
        };
        assert_eq!(busiest(&at([900, 5, 0]), &at([901, 14, 0])).as_deref(), Some("loop (process 2)"));
        assert_eq!(busiest(&at([900, 5, 0]), &at([901, 6, 0])), None);
    }
}
