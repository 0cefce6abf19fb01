//! Files that people watch: swap, compressed memory, free blocks, fans, processes on the GPU, versions.

use super::{CpuTimes, label, unsigned};
use crate::board::Reading;
use crate::board::details::{FreeBlocks, GpuProcess, SwapArea, Zram};
use crate::units::Bytes;

/// More than any machine has of anything listed here.
const MOST: usize = 256;
/// Beyond this no size in KiB is one of a machine.
const LARGEST_KIB: u64 = 1 << 50;

fn kibibytes(text: &str) -> Option<Bytes> {
    text.parse::<u64>().ok().filter(|kib| *kib <= LARGEST_KIB).map(|kib| Bytes(kib as f64 * 1024.0))
}

fn bytes(text: &str) -> Option<Bytes> {
    text.parse::<u64>().ok().filter(|bytes| bytes / 1024 <= LARGEST_KIB).map(|bytes| Bytes(bytes as f64))
}

/// /proc/swaps: `Filename Type Size Used Priority`, sizes in KiB; spaces of a name are written `\040`. `None` without
/// the heading.
#[must_use]
pub fn swaps(text: &str) -> Option<Vec<SwapArea>> {
    let mut lines = text.lines();
    lines.next().filter(|line| line.starts_with("Filename"))?;
    let area = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let name = label(fields.next()?)?;
        let kind = fields.next()?;
        let kind = if name.contains("/zram") { "zram".to_owned() } else { label(kind)? };
        let (size, used) = (kibibytes(fields.next()?)?, kibibytes(fields.next()?)?);
        let priority = fields.next()?.parse().ok()?;
        Some(SwapArea { name, kind, size, used, priority })
    };
    Some(lines.filter_map(area).take(MOST).collect())
}

/// `mm_stat` of a zram device: bytes stored, bytes compressed, bytes of memory taken, and more.
#[must_use]
pub fn zram(name: &str, text: &str) -> Option<Zram> {
    let mut fields = text.split_ascii_whitespace().map(bytes);
    let mut next = || fields.next().flatten();
    Some(Zram { name: name.to_owned(), stored: next()?, compressed: next()?, memory: next()? })
}

/// /proc/buddyinfo: the free blocks of the largest order, summed over zones, for pages of `page` bytes.
#[must_use]
pub fn buddyinfo(text: &str, page: u64) -> Option<FreeBlocks> {
    // Node 0, zone   Normal   1 2 3 …: one column for each power of two of pages.
    let columns = |line: &str| -> Option<Vec<u64>> {
        let (_, zone) = line.strip_prefix("Node")?.split_once("zone")?;
        zone.split_ascii_whitespace().skip(1).map(|count| count.parse().ok()).take(33).collect()
    };
    let zones: Vec<Vec<u64>> = text.lines().take(MOST).filter_map(columns).collect();
    let orders = zones.iter().map(Vec::len).max().filter(|orders| (1..=32).contains(orders))?;
    let largest = zones.iter().filter(|zone| zone.len() == orders).filter_map(|zone| zone.last());
    let count = largest.fold(0_u64, |sum, count| sum.saturating_add(*count));
    let size = page.checked_mul(1 << (orders - 1))?;
    Some(FreeBlocks { count, size: Bytes(size as f64) })
}

/// `NvMapMemUsed` of /proc/meminfo: what is taken for the GPU of a Jetson.
#[must_use]
pub fn nvmap_used(text: &str) -> Option<Bytes> {
    let value = text.lines().find_map(|line| line.strip_prefix("NvMapMemUsed:"))?;
    kibibytes(value.trim().trim_end_matches("kB").trim())
}

/// The times of each CPU in /proc/stat, by its number.
#[must_use]
pub fn core_times(text: &str) -> Vec<(u32, CpuTimes)> {
    let core = |line: &str| {
        let rest = line.strip_prefix("cpu")?;
        let (number, _) = rest.split_once(' ')?;
        let number = number.parse().ok().filter(|number| *number < super::cpu::MOST_CPUS)?;
        Some((number, super::ticks(&rest[rest.find(' ')?..])?))
    };
    // They stand together, above the interrupts. A line without its end was cut off.
    let whole = text.split_inclusive('\n').map_while(|line| line.strip_suffix('\n'));
    whole.take_while(|line| line.starts_with("cpu")).filter_map(core).collect()
}

/// A fan's drive: 0 to 255.
#[must_use]
pub fn pwm(text: &str) -> Option<f64> {
    unsigned(text).filter(|value| *value <= 255).map(|value| value as f64 / 255.0)
}

/// Turns per minute; beyond 100 000 no fan turns.
#[must_use]
pub fn rpm(text: &str) -> Option<f64> {
    unsigned(text).filter(|value| *value <= 100_000).map(|value| value as f64)
}

/// 0 or 1.
#[must_use]
pub fn switch(text: &str) -> Option<bool> {
    match text.trim() {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// The profile in nvfancontrol's status (`FAN_PROFILE:cool`) or configuration (`FAN_DEFAULT_PROFILE cool`); `key` is
/// the one that is looked for.
#[must_use]
pub fn fan_profile(text: &str, key: &str) -> Option<String> {
    text.lines().map(|line| line.split('#').next().unwrap_or_default()).find_map(|line| {
        let (before, rest) = line.split_once(key)?;
        // `FAN_PROFILE quiet {` opens a table, and another key may end as this one does.
        let whole = before.chars().next_back().is_none_or(|c| c == ':' || c.is_whitespace());
        let separated = rest.starts_with([':', '=', ' ', '\t']) && !rest.contains('{');
        if !whole || !separated {
            return None;
        }
        label(rest.trim_start_matches([':', '=', ' ', '\t']).split_ascii_whitespace().next()?)
    })
}

/// `iovmm/clients` of nvmap: `CLIENT PROCESS PID SIZE`, the size in KiB with a K. A process has a line for each of its
/// clients and is listed once, with the sum; one that holds nothing is left out.
#[must_use]
pub fn nvmap_clients(text: &str) -> Option<Vec<GpuProcess>> {
    let mut lines = text.lines();
    lines.next().filter(|line| line.contains("PROCESS") && line.contains("PID"))?;
    let process = |line: &str| {
        let mut fields = line.split_ascii_whitespace().rev();
        let memory = kibibytes(fields.next()?.strip_suffix('K')?)?;
        let pid = fields.next()?.parse().ok()?;
        // A name may have spaces; the first field is the client.
        let mut name: Vec<&str> = fields.collect();
        name.pop()?;
        name.reverse();
        let name = label(&name.join(" ")).map_or_else(|| Reading::absent("it has no name"), Reading::Known);
        memory.is_positive().then_some(GpuProcess { pid, name, memory: Reading::Known(memory) })
    };
    let mut listed: Vec<GpuProcess> = Vec::new();
    for process in lines.filter_map(process) {
        match listed.iter().position(|known| known.pid == process.pid) {
            Some(at) => {
                if let (Reading::Known(sum), Reading::Known(more)) = (&mut listed[at].memory, process.memory)
                {
                    *sum += more;
                }
            }
            None if listed.len() < MOST => listed.push(process),
            None => {}
        }
    }
    Some(listed)
}

/// NVML's list as files keep it: a line `PID BYTES`, or `PID -` where the driver does not tell the memory. A process that
/// is listed twice, as computing and as drawing, counts once with the larger, as those of the library do.
#[must_use]
pub fn nvml_processes(text: &str) -> Option<Vec<(u32, Option<Bytes>)>> {
    let process = |line: &str| {
        let (pid, memory) = line.trim().split_once(' ')?;
        let memory = if memory == "-" { None } else { Some(bytes(memory)?) };
        Some((pid.parse().ok()?, memory))
    };
    let mut listed: Vec<(u32, Option<Bytes>)> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()).take(MOST) {
        let (pid, memory) = process(line)?;
        match listed.iter_mut().find(|(known, _)| *known == pid) {
            Some((_, largest)) => {
                *largest = match (*largest, memory) {
                    (Some(a), Some(b)) => Some(a.max(b)),
                    (a, b) => a.or(b),
                };
            }
            None => listed.push((pid, memory)),
        }
    }
    Some(listed)
}

/// The version of CUDA in `version.json`: the first `"version"` after the key `"cuda"`.
#[must_use]
pub fn cuda_version(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("\"cuda\"")?;
    let (_, rest) = rest.split_once("\"version\"")?;
    let mut parts = rest.split('"');
    parts.next().filter(|colon| colon.trim() == ":")?;
    version(parts.next()?)
}

/// The version of CUDA in `version.txt`, which releases before 11.1 have instead: `CUDA Version 10.2.300`.
#[must_use]
pub fn old_cuda_version(text: &str) -> Option<String> {
    version(text.lines().next()?.trim().strip_prefix("CUDA Version")?.trim())
}

/// A version as it is shown: its revision in the distribution (`-1+cuda12.5`) left off.
#[must_use]
pub fn version(text: &str) -> Option<String> {
    let bare = label(text)?;
    let bare = bare.split(['-', '+']).next().unwrap_or_default().to_owned();
    bare.starts_with(|c: char| c.is_ascii_digit()).then_some(bare)
}

/// The governor's or another setting's name.
#[must_use]
pub fn word(text: &str) -> Option<String> {
    label(text).filter(|word| !word.contains(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_areas_are_told_apart_by_kind() {
        let text = "Filename\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
                    /dev/zram0                              partition\t650240\t\t256\t\t5\n\
                    /mnt/16GB.swap                          file\t\t16777212\t0\t\t-2\n";
        let areas = swaps(text).unwrap();
        assert_eq!((areas[0].kind.as_str(), areas[1].kind.as_str()), ("zram", "file"));
        assert_eq!((areas[0].size, areas[0].used), (Bytes(650_240.0 * 1024.0), Bytes(256.0 * 1024.0)));
        assert_eq!(areas[1].priority, -2);
        assert_eq!(swaps("Filename Type Size Used Priority\n"), Some(Vec::new()), "no swap is no failure");
        assert_eq!(swaps(""), None);
        assert_eq!(swaps("Filename\nx y z\n/a file 99999999999999999999 0 0\n"), Some(Vec::new()));
    }

    #[test]
    fn compressed_memory_has_three_sizes() {
        let zram = zram("zram0", "  4096 74 12288 0 12288 0 0 0 0\n").unwrap();
        assert_eq!((zram.stored, zram.compressed, zram.memory), (Bytes(4096.0), Bytes(74.0), Bytes(12288.0)));
        assert_eq!(super::zram("zram0", "4096 74"), None);
    }

    #[test]
    fn the_largest_free_blocks_are_summed_over_zones() {
        let text = "Node 0, zone      DMA      1      0      0      0      2      1      1      0      1      1      3 \n\
                    Node 0, zone   Normal   4381   2139     97     40     16      8      9      4      4      1    102 \n";
        assert_eq!(buddyinfo(text, 4096), Some(FreeBlocks { count: 105, size: Bytes(4_194_304.0) }));
        for garbage in ["", "Node 0, zone Normal", "Node 0, zone Normal x y"] {
            assert_eq!(buddyinfo(garbage, 4096), None, "{garbage:?}");
        }
        assert_eq!(buddyinfo(&format!("Node 0, zone DMA{}", " 1".repeat(40)), 4096), None);
    }

    #[test]
    fn each_core_has_its_times() {
        let text =
            "cpu  30 0 10 60 0 0 0 0 0 0\ncpu0 10 0 5 30 0 0 0 0 0 0\ncpu4 20 0 5 30 0 0 0 0 0 0\nintr 1\n";
        let cores = core_times(text);
        assert_eq!(
            cores.iter().map(|(cpu, times)| (*cpu, times.busy)).collect::<Vec<_>>(),
            [(0, 15), (4, 25)]
        );
        assert!(core_times("cpu0\ncpux 1 2 3 4\n").is_empty());
        assert_eq!(core_times("cpu0 10 0 5 30 0 0 0 0 0 0\ncpu1 10 0 5 3").len(), 1, "cut off");
    }

    #[test]
    fn the_fan_profile_is_found_in_status_and_configuration() {
        assert_eq!(fan_profile("FAN1:FAN_PROFILE:cool\n", "FAN_PROFILE").as_deref(), Some("cool"));
        assert_eq!(fan_profile("FAN_PROFILE:quiet", "FAN_PROFILE").as_deref(), Some("quiet"));
        let conf =
            "<FAN 1>\n\tFAN_PROFILE cool {\n\t}\n\t# FAN_DEFAULT_PROFILE old\n\tFAN_DEFAULT_PROFILE quiet\n";
        assert_eq!(fan_profile(conf, "FAN_DEFAULT_PROFILE").as_deref(), Some("quiet"));
        assert_eq!(fan_profile(conf, "FAN_PROFILE"), None, "tables of curves are not the choice");
        assert_eq!(fan_profile("FAN_PROFILE", "FAN_PROFILE"), None);
    }

    #[test]
    fn clients_of_the_gpu_memory_have_a_pid_and_a_size() {
        let text = "CLIENT                        PROCESS      PID        SIZE\n\
                    user                       llama server     2042   4321000K\n\
                    user                             nothing      17         0K\n\
                    total                                            4321000K\n";
        let clients = nvmap_clients(text).unwrap();
        assert_eq!(clients.len(), 1);
        assert_eq!((clients[0].pid, clients[0].name.known().unwrap().as_str()), (2042, "llama server"));
        assert_eq!(clients[0].memory, Reading::Known(Bytes(4_321_000.0 * 1024.0)));
        assert_eq!(nvmap_clients("nothing"), None);
        let twice = "CLIENT PROCESS PID SIZE\nuser python3 9 1000K\nuser x 8 1K\nuser python3 9 24K\n";
        let clients = nvmap_clients(twice).unwrap();
        assert_eq!(clients.iter().map(|client| client.pid).collect::<Vec<_>>(), [9, 8], "each once");
        assert_eq!(clients[0].memory, Reading::Known(Bytes(1024.0 * 1024.0)), "the sum");
        assert_eq!(nvml_processes("7 10\n7 -\n7 30\n"), Some(vec![(7, Some(Bytes(30.0)))]));
        assert_eq!(
            nvml_processes("77 1048576\n9 -\n"),
            Some(vec![(77, Some(Bytes(1_048_576.0))), (9, None)])
        );
        assert_eq!((nvml_processes(""), nvml_processes("x y")), (Some(Vec::new()), None));
    }

    #[test]
    fn versions_are_shown_without_their_packaging() {
        let json = r#"{"cuda" : {"name" : "CUDA SDK", "version" : "12.6.11"}, "cuda_cudart" : {"version" : "12.6.68"}}"#;
        assert_eq!(cuda_version(json).as_deref(), Some("12.6.11"));
        assert_eq!(cuda_version(r#"{"cuda": 3}"#), None);
        assert_eq!(version("10.3.0.30-1+cuda12.5").as_deref(), Some("10.3.0.30"));
        assert_eq!(version("none"), None);
        assert_eq!(old_cuda_version("CUDA Version 10.2.300\n").as_deref(), Some("10.2.300"));
        assert_eq!((old_cuda_version(""), old_cuda_version("CUDA Version x")), (None, None));
    }
}
