//! The machine's condition beside a sample: how fast the cores run, what memory gives, who else is there.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::sched_yield;
use rustix::time::{ClockId, clock_gettime};

use super::pool::{Pool, nanoseconds, thread_time};
use super::stream;
use rooflined_core::units::{BytesPerSecond, Celsius, Hertz, Seconds};
use rooflined_predict::calibration::{Clock, Conditions, Reference};

/// Length of the memory reference run.
const REFERENCE: Duration = Duration::from_micros(1_500);
/// Runs that it is split into.
const REFERENCE_RUNS: u32 = 3;
/// Runs at most, where other processes disturb them.
const REFERENCE_TRIES: u32 = 12;
/// Bursts of the ping-pong, and round trips of each.
const PING_PONG_BURSTS: u32 = 5;
const PING_PONG_ROUNDS: u32 = 40;
/// What a reference run reads between two looks at the time.
const REFERENCE_PIECE: usize = 256 << 10;
/// Additions in one clock reading: some 5 to 10 µs.
const CHAIN: u64 = 20_480;
/// The best of a few readings is free of interrupts.
const CHAIN_READINGS: usize = 5;

/// CLOCK_BOOTTIME, the clock of every stamp that leaves this process.
pub fn boot_time() -> Seconds {
    let time = clock_gettime(ClockId::Boottime);
    #[expect(clippy::cast_precision_loss, reason = "whole seconds since the start, and less than 2^30 ns")]
    let (seconds, nanoseconds) = (time.tv_sec as f64, time.tv_nsec as f64);
    Seconds(seconds + nanoseconds / 1e9)
}

/// Runs `additions` dependent register additions, one cycle each on every current core.
fn dependent_additions(additions: u64) -> u64 {
    let loops = additions / 32;
    let mut a = 1_u64;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: touches only the registers named.
    unsafe {
        let mut b = 1_u64;
        std::arch::asm!(
            "2:",
            ".rept 16",
            "add {a}, {b}",
            "add {b}, {a}",
            ".endr",
            "dec {n}",
            "jnz 2b",
            a = inout(reg) a, b = inout(reg) b, n = inout(reg) loops.max(1) => _,
            options(nomem, nostack),
        );
        std::hint::black_box(b);
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: touches only the registers named.
    unsafe {
        let mut b = 1_u64;
        std::arch::asm!(
            "2:",
            ".rept 16",
            "add {a}, {a}, {b}",
            "add {b}, {b}, {a}",
            ".endr",
            "subs {n}, {n}, #1",
            "b.ne 2b",
            a = inout(reg) a, b = inout(reg) b, n = inout(reg) loops.max(1) => _,
            options(nomem, nostack),
        );
        std::hint::black_box(b);
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    for _ in 0..loops * 32 {
        a = std::hint::black_box(a.wrapping_add(1));
    }
    std::hint::black_box(a)
}

/// Cycles per second of this core, now.
pub fn effective_clock() -> Hertz {
    let mut best = Duration::MAX;
    for _ in 0..CHAIN_READINGS {
        let start = Instant::now();
        dependent_additions(CHAIN);
        best = best.min(start.elapsed());
    }
    #[expect(clippy::cast_precision_loss, reason = "a small constant")]
    Hertz(CHAIN as f64 / best.as_secs_f64().max(1e-9))
}

/// The clock of the slowest of the first `workers`.
pub fn slowest_clock(pool: &Pool, workers: usize) -> Hertz {
    let slowest = AtomicU64::new(f64::INFINITY.to_bits());
    // Positive floats order like their bits.
    pool.run(workers, &|_| {
        slowest.fetch_min(effective_clock().get().to_bits(), Ordering::Relaxed);
    });
    Hertz(f64::from_bits(slowest.into_inner()))
}

/// A worker at its last reading: nanoseconds of CLOCK_MONOTONIC and of its thread's CPU time.
#[repr(align(128))]
#[derive(Default)]
struct Account {
    wall: AtomicU64,
    cpu: AtomicU64,
    stolen: AtomicU64,
}

/// What others take of the workers' CPUs: the wall clock of each worker beside the CPU time of its thread. The difference
/// between two readings is what another process, or the hypervisor where the kernel is told of it, had.
pub struct Accounts<'a> {
    pool: &'a Pool,
    workers: Vec<Account>,
}

impl<'a> Accounts<'a> {
    /// Takes the first reading of the first `workers`.
    pub fn open(pool: &'a Pool, workers: usize) -> Self {
        let accounts = Self { pool, workers: (0..workers).map(|_| Account::default()).collect() };
        accounts.stolen();
        accounts
    }

    pub const fn pool(&self) -> &'a Pool {
        self.pool
    }

    /// Seconds that the worker worst off has been without its CPU since the last reading.
    pub fn stolen(&self) -> f64 {
        self.pool.run(self.workers.len(), &|worker| {
            let account = &self.workers[worker];
            let (wall, cpu) = (nanoseconds(ClockId::Monotonic), thread_time());
            let wall_passed = wall.saturating_sub(account.wall.swap(wall, Ordering::Relaxed));
            let cpu_passed = cpu.saturating_sub(account.cpu.swap(cpu, Ordering::Relaxed));
            account.stolen.store(wall_passed.saturating_sub(cpu_passed), Ordering::Relaxed);
        });
        let worst = self.workers.iter().map(|account| account.stolen.load(Ordering::Relaxed)).max();
        Duration::from_nanos(worst.unwrap_or(0)).as_secs_f64()
    }
}

/// Whether nobody else had a worker's CPU for a noticeable part of a run: a switch to another thread and back takes longer
/// than two microseconds.
pub fn is_quiet(wall: f64, stolen: f64) -> bool {
    stolen <= 2e-6 + 0.01 * wall
}

#[repr(align(128))]
struct Line(AtomicU32);

/// One-way time of a cache line between worker 0 and worker `partner`, over `rounds` round trips.
pub fn ping_pong(pool: &Pool, partner: usize, rounds: u32) -> Seconds {
    let line = Line(AtomicU32::new(0));
    let ready = Line(AtomicU32::new(0));
    let elapsed = AtomicU64::new(0);
    let await_value = |line: &AtomicU32, value: u32| {
        let mut polls = 0_u32;
        while line.load(Ordering::Acquire) != value {
            polls = polls.wrapping_add(1);
            // A preempted partner would otherwise cost a whole scheduler tick when both share a CPU.
            if polls.is_multiple_of(20_000) {
                sched_yield();
            }
        }
    };
    pool.run(partner + 1, &|worker| {
        if worker == 0 {
            // Without this the time would include the partner's waking up.
            await_value(&ready.0, 1);
            let start = Instant::now();
            for round in 0..rounds {
                line.0.store(2 * round + 1, Ordering::Release);
                await_value(&line.0, 2 * round + 2);
            }
            let nanos = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            elapsed.store(nanos, Ordering::Relaxed);
        } else if worker == partner {
            ready.0.store(1, Ordering::Release);
            for round in 0..rounds {
                await_value(&line.0, 2 * round + 1);
                line.0.store(2 * round + 2, Ordering::Release);
            }
        }
    });
    #[expect(clippy::cast_precision_loss, reason = "nanoseconds of a short run")]
    Seconds(elapsed.into_inner() as f64 * 1e-9 / (2.0 * f64::from(rounds.max(1))))
}

/// A worker's part of the buffer in main memory, read round and round.
pub struct ReferencePart {
    pub start: *const u8,
    /// Length; a multiple of the piece.
    pub len: usize,
    /// Where the next run goes on, so that the longest time passes before a byte is read again.
    pub cursor: AtomicU64,
}

// SAFETY: the buffer is only ever read once it is filled.
unsafe impl Sync for ReferencePart {}
// SAFETY: as above.
unsafe impl Send for ReferencePart {}

/// Rounds a reference buffer to whole pieces.
pub const fn reference_len(bytes: usize) -> usize {
    bytes.next_multiple_of(REFERENCE_PIECE)
}

/// The best of a few runs: a worker that is preempted slows one of them, a neighbour on the memory bus all. Runs during which
/// a worker was preempted do not count towards the few.
fn reference_read(pool: &Pool, parts: &[ReferencePart]) -> BytesPerSecond {
    let accounts = Accounts::open(pool, parts.len());
    let (mut best, mut quiet) = (BytesPerSecond::ZERO, 0);
    for _ in 0..REFERENCE_TRIES {
        let begin = Instant::now();
        best = best.max(reference_run(pool, parts));
        let wall = begin.elapsed().as_secs_f64();
        quiet += u32::from(is_quiet(wall, accounts.stolen()));
        if quiet == REFERENCE_RUNS {
            break;
        }
    }
    best
}

fn reference_run(pool: &Pool, parts: &[ReferencePart]) -> BytesPerSecond {
    let read = stream::best().read;
    let total = AtomicU64::new(0);
    let begin = Instant::now();
    let end = begin + REFERENCE / REFERENCE_RUNS;
    pool.run(parts.len(), &|worker| {
        let part = &parts[worker];
        let mut bytes = 0_u64;
        let mut cursor = part.cursor.load(Ordering::Relaxed);
        while part.len > 0 && Instant::now() < end {
            // SAFETY: the cursor stays below `len`, a multiple of the piece; the buffer was filled before.
            unsafe { read(part.start.wrapping_add(cursor as usize), REFERENCE_PIECE) };
            bytes += REFERENCE_PIECE as u64;
            cursor = (cursor + REFERENCE_PIECE as u64) % part.len as u64;
        }
        part.cursor.store(cursor, Ordering::Relaxed);
        total.fetch_add(bytes, Ordering::Relaxed);
    });
    #[expect(clippy::cast_precision_loss, reason = "bytes of a millisecond")]
    BytesPerSecond(total.into_inner() as f64 / begin.elapsed().as_secs_f64())
}

/// Reads the operating point; remembers what the last reading of the counters was.
pub struct Instruments {
    clocks: Vec<PathBuf>,
    zones: Vec<PathBuf>,
    ticks: Option<Ticks>,
    steal_ratio: Option<f64>,
}

/// Time of a CPU since the start, as /proc/stat counts it.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Ticks {
    idle: u64,
    stolen: u64,
    total: u64,
}

impl Ticks {
    fn plus(self, other: Self) -> Self {
        Self {
            idle: self.idle + other.idle,
            stolen: self.stolen + other.stolen,
            total: self.total + other.total,
        }
    }

    /// Part of the time since an earlier reading that the CPU was busy; 0 where none has passed.
    #[expect(clippy::cast_precision_loss, reason = "a few hundred ticks")]
    pub fn busy_ratio_since(&self, before: &Self) -> f64 {
        let total = self.total.saturating_sub(before.total);
        let idle = self.idle.saturating_sub(before.idle).min(total);
        if total == 0 { 0.0 } else { (total - idle) as f64 / total as f64 }
    }
}

impl Instruments {
    /// Finds what this machine has.
    pub fn discover(cpus: &[u32]) -> Self {
        let clocks = cpus
            .iter()
            .flat_map(|cpu| {
                ["scaling_cur_freq", "cpuinfo_cur_freq"]
                    .map(|file| PathBuf::from(format!("/sys/devices/system/cpu/cpu{cpu}/cpufreq/{file}")))
                    .into_iter()
                    .find(|path| fs::read_to_string(path).is_ok())
            })
            .collect();
        let zones = fs::read_dir("/sys/class/thermal").into_iter().flatten().flatten();
        let zones = zones
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("thermal_zone"))
            .map(|entry| entry.path().join("temp"))
            .collect();
        let mut instruments = Self { clocks, zones, ticks: None, steal_ratio: None };
        instruments.read_steal(cpus);
        instruments
    }

    /// The condition of the machine, right now; some two milliseconds.
    pub fn read(&mut self, pool: &Pool, workers: usize, reference: &[ReferencePart]) -> Conditions {
        let effective = slowest_clock(pool, workers);
        let reported = self.clocks.iter().filter_map(number).map(|khz| Hertz(khz * 1e3)).reduce(Hertz::min);
        let read = reference_read(pool, reference);
        let last = pool.len() - 1;
        // The shortest of a few bursts: preemption only ever lengthens one.
        let burst = |_| ping_pong(pool, last, PING_PONG_ROUNDS);
        let core_to_core =
            (last > 0).then(|| (0..PING_PONG_BURSTS).map(burst).fold(Seconds(f64::MAX), Seconds::min));
        let temperature = self.temperature();
        self.read_steal(pool.cpus());
        Conditions {
            clock: Clock { effective, reported },
            reference: Reference { read, core_to_core },
            steal_ratio: self.steal_ratio,
            temperature,
        }
    }

    pub fn temperature(&self) -> Option<Celsius> {
        let zones = self.zones.iter().filter_map(number).map(|millis| Celsius(millis / 1e3));
        // A zone that is switched off reads 0 or -274 000.
        zones.filter(|zone| zone.get() > 0.0).reduce(Celsius::max)
    }

    fn read_steal(&mut self, cpus: &[u32]) {
        let Some(now) = cpu_ticks(cpus) else { return };
        let now = now.into_iter().fold(Ticks::default(), |sum, (_, ticks)| sum.plus(ticks));
        // Ticks are 10 ms: between two quick readings none may have passed, and the last ratio still holds.
        match self.ticks {
            Some(before) if now.total > before.total => {
                #[expect(clippy::cast_precision_loss, reason = "a few hundred ticks")]
                let ratio =
                    now.stolen.saturating_sub(before.stolen) as f64 / (now.total - before.total) as f64;
                self.steal_ratio = Some(ratio);
                self.ticks = Some(now);
            }
            Some(_) => {}
            None => self.ticks = Some(now),
        }
    }
}

fn number(path: &PathBuf) -> Option<f64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// The ticks of each of `cpus` in /proc/stat, in its order. `None` without a steal column.
pub fn cpu_ticks(cpus: &[u32]) -> Option<Vec<(u32, Ticks)>> {
    ticks(&fs::read_to_string("/proc/stat").ok()?, cpus)
}

fn ticks(stat: &str, cpus: &[u32]) -> Option<Vec<(u32, Ticks)>> {
    let mut found = Vec::new();
    for line in stat.lines() {
        let mut fields = line.split_ascii_whitespace();
        let Some(cpu) = fields.next().and_then(|name| name.strip_prefix("cpu")?.parse::<u32>().ok()) else {
            continue;
        };
        if !cpus.contains(&cpu) {
            continue;
        }
        // user nice system idle iowait irq softirq steal; guest time is contained in user.
        let ticks: Vec<u64> = fields.take(8).map_while(|field| field.parse().ok()).collect();
        let [_, _, _, idle, waiting, _, _, stolen] = *<&[u64; 8]>::try_from(ticks.as_slice()).ok()?;
        found.push((cpu, Ticks { idle: idle + waiting, stolen, total: ticks.iter().sum() }));
    }
    (!found.is_empty()).then_some(found)
}

/// Sizes of the caches that matter for placing data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caches {
    /// The last-level caches of the CPUs in use, together.
    pub last_level: usize,
    /// Bytes that lie between two uses of a matrix "in main memory".
    pub rotation: usize,
}

impl Caches {
    /// Adds up the distinct last-level caches of `cpus`; 32 MB where the kernel does not say.
    pub fn discover(cpus: &[u32]) -> Self {
        let mut seen: Vec<(String, usize)> = Vec::new();
        for cpu in cpus {
            let base = format!("/sys/devices/system/cpu/cpu{cpu}/cache");
            let read =
                |index: u32, file: &str| fs::read_to_string(format!("{base}/index{index}/{file}")).ok();
            let last = (0..8).filter_map(|index| {
                let level: u32 = read(index, "level")?.trim().parse().ok()?;
                let size = size(&read(index, "size")?)?;
                Some((level, (read(index, "shared_cpu_list")?, size)))
            });
            if let Some((_, cache)) = last.max_by_key(|(level, _)| *level)
                && !seen.contains(&cache)
            {
                seen.push(cache);
            }
        }
        let sum: usize = seen.iter().map(|(_, size)| size).sum();
        Self::of(if sum == 0 { 32 << 20 } else { sum })
    }

    /// Last-level caches of this size in all.
    pub fn of(last_level: usize) -> Self {
        Self { last_level, rotation: 8 * last_level }
    }

    /// Keeps the rotation within `limit` bytes, but never below four times the last-level caches.
    ///
    /// Caches that do not replace strictly by age still hold a quarter of a buffer four times their size (measured
    /// on Zen 5: 48 GB/s at 4x, 41 at 8x, 38 at 32x), so more is better where memory allows.
    pub fn within(mut self, limit: usize) -> Self {
        self.rotation = self.rotation.min(limit).max(4 * self.last_level);
        self
    }
}

/// `1024K`, `32M` in bytes.
fn size(text: &str) -> Option<usize> {
    let text = text.trim();
    let (digits, shift) = match text.as_bytes().last()? {
        b'K' => (&text[..text.len() - 1], 10),
        b'M' => (&text[..text.len() - 1], 20),
        _ => (text, 0),
    };
    digits.parse::<usize>().ok()?.checked_shl(shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_those_of_the_workers_cpus() {
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\ncpu1 1 1 1 1 1 1 1 1 0 0\nintr 5\n";
        let (first, second) =
            (Ticks { idle: 9, stolen: 8, total: 36 }, Ticks { idle: 2, stolen: 1, total: 8 });
        assert_eq!(ticks(stat, &[0]), Some(vec![(0, first)]));
        assert_eq!(ticks(stat, &[0, 1]), Some(vec![(0, first), (1, second)]));
        assert_eq!(ticks(stat, &[7]), None);
        assert_eq!(ticks("cpu0 1 2 3\n", &[0]), None);
        assert!((first.busy_ratio_since(&second) - 21.0 / 28.0).abs() < 1e-12);
        assert_eq!(first.busy_ratio_since(&first), 0.0);
    }

    #[test]
    fn what_others_take_of_a_worker_is_the_wall_clock_less_its_cpu_time() {
        let pool = Pool::new(&super::super::pool::allowed_cpus(&[]).unwrap()[..1]).unwrap();
        let accounts = Accounts::open(&pool, 1);
        // A thread that sleeps is without its CPU as well.
        std::thread::sleep(Duration::from_millis(30));
        // What is stolen counts from the look before, so the wall clock starts no later.
        let begin = Instant::now();
        assert!(accounts.stolen() >= 0.03);
        dependent_additions(CHAIN);
        let (stolen, wall) = (accounts.stolen(), begin.elapsed().as_secs_f64());
        assert!(stolen <= wall, "{stolen} of {wall}");
        assert!(is_quiet(1e-3, 10e-6) && is_quiet(20e-6, 2e-6) && !is_quiet(1e-3, 4e-3));
    }

    #[test]
    fn cache_sizes_parse() {
        assert_eq!(size("1024K\n"), Some(1 << 20));
        assert_eq!(size("32M"), Some(32 << 20));
        assert_eq!(size(""), None);
    }

    #[test]
    fn the_chain_gives_a_plausible_clock() {
        // An emulator may be slow, but no core does one addition in less than a tenth of a nanosecond.
        let clock = effective_clock().get();
        assert!(clock > 1e6 && clock < 1e10, "{clock}");
    }
}
