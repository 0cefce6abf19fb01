//! The probe on GPUs that behave as real ones do: submission costs the CPU time, first launches are cold, clocks follow the
//! load, other processes take their share, and copies are not done when a call returns. In every such world each rate has to
//! be that of the same GPU left in peace, within 2 %, or be refused by name. Boards are the size of the toy, so that every
//! kernel is interpreted in moments; their times are the boards' own.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use std::collections::BTreeMap;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Mutex;

use fake_cuda::{Cold, Dip, Fail, Governor, GovernorKind, Host, Nvml, Scenario, Tenant, When, install};
use rooflined_core::precision::{Precision, WeightFormat};
use rooflined_predict::calibration::{
    Accelerator, GemvCase, Kernel, Plan, ProbeEvent, Sample, Step, Stores, Stream, centre, vet,
};

/// How far a rate may be from the truth.
const TOLERANCE: f64 = 0.02;
/// Clocks further apart than this are different ones.
const OTHER_CLOCK: f64 = 0.03;

const READ: Kernel = Kernel::Stream { pattern: Stream::Read, bytes: 8 << 20, stores: Stores::Temporal };
const COPY: Kernel = Kernel::Stream { pattern: Stream::Copy, bytes: 4 << 20, stores: Stores::Temporal };
const CACHED: Kernel = Kernel::Stream { pattern: Stream::Read, bytes: 32 << 10, stores: Stores::Temporal };
const FP32: Kernel = Kernel::Peak { precision: Precision::Fp32 };
const FP16: Kernel = Kernel::Peak { precision: Precision::Fp16 };
const GEMV: Kernel =
    Kernel::Gemv { n: 512, k: 1024, columns: 1, format: WeightFormat::Q4_0, case: GemvCase::Dram };

/// A GPU, and the governor of its clock.
struct Board {
    name: &'static str,
    scenario: Scenario,
    governor: Governor,
    host: Host,
    kernels: Vec<Kernel>,
}

/// The toy with a board's name, driver and habits; `clocks` are those of its table, and the highest becomes the toy's.
fn board(
    name: &'static str,
    of: &Scenario,
    kind: GovernorKind,
    clocks: &[f64],
    gate_s: Option<f64>,
    host: Host,
) -> Board {
    let toy = Scenario::toy();
    let scale = toy.clock.sm_hz / clocks[clocks.len() - 1];
    let table_hz: Vec<f64> = clocks.iter().map(|hz| hz * scale).collect();
    let mut scenario = Scenario {
        name: of.name.clone(),
        compute_capability: of.compute_capability,
        driver_version: of.driver_version,
        integrated: of.integrated,
        nvml: of.nvml.clone(),
        ..toy
    };
    scenario.clock.idle_hz = table_hz[0];
    // Hopper and Thor have their peaks from instructions that the interpreter does not know.
    let mma = matches!(of.compute_capability, [8 | 12, _]).then_some(FP16);
    let kernels = [READ, COPY, CACHED, FP32, GEMV].into_iter().chain(mma).collect();
    let governor = Governor { kind, table_hz, gate_s, wake_s: if gate_s.is_some() { 5e-3 } else { 0.0 } };
    // Without a host the clock is where the mode has it.
    Board { name, scenario, governor, host, kernels }
}

/// From the lowest clock to the highest in equal steps.
fn steps(lowest: f64, highest: f64, count: u32) -> Vec<f64> {
    (0..=count).map(|step| lowest + (highest - lowest) * f64::from(step) / f64::from(count)).collect()
}

fn boards() -> Vec<Board> {
    let orin = Scenario::orin();
    let table = steps(306e6, 1300.5e6, 10);
    // CUDA 11.4, and no NVML.
    let older = Scenario {
        driver_version: 11040,
        nvml: Nvml { fail: vec![Fail::always("*", 9)], ..orin.nvml.clone() },
        ..orin.clone()
    };
    let podgov = GovernorKind::Podgov;
    vec![
        board("orin jp6", &orin, podgov, &table, Some(0.5), Host::jetson()),
        board("orin jp5", &older, podgov, &table, Some(0.5), Host::jetson()),
        board(
            "thor jp7",
            &Scenario::thor(),
            GovernorKind::PodgovSteps,
            &steps(315e6, 1575e6, 12),
            Some(0.5),
            Host::jetson(),
        ),
        board(
            "gb10",
            &Scenario::gb10(),
            GovernorKind::Boost,
            &steps(208e6, 2418e6, 24),
            None,
            Host::default(),
        ),
        board(
            "h200",
            &Scenario::h200(),
            GovernorKind::Boost,
            &steps(345e6, 1980e6, 24),
            None,
            Host::default(),
        ),
    ]
}

/// What is not as it should be.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum World {
    /// Nothing: what the truth is.
    Peace,
    Submission,
    Stalls,
    Cold,
    Falling,
    Unordered,
    Dips,
    Tenant,
    TenantStopped,
    MemoryTenant,
    /// L2 is larger than who planned the run believed: what was to come from memory fits.
    LargerCache,
    Everything,
}

impl World {
    const ALL: [Self; 12] = [
        Self::Peace,
        Self::Submission,
        Self::Stalls,
        Self::Cold,
        Self::Falling,
        Self::Unordered,
        Self::Dips,
        Self::Tenant,
        Self::TenantStopped,
        Self::MemoryTenant,
        Self::LargerCache,
        Self::Everything,
    ];

    /// A probe that takes care measures here: not everything may be refused.
    fn is_fair(self) -> bool {
        matches!(
            self,
            Self::Peace | Self::Submission | Self::Stalls | Self::Cold | Self::Falling | Self::Unordered
        )
    }

    /// How often a wrong rate is measured again. Where another program's time slices come at the same place of each run, as
    /// they may where everything is disturbed at once, nothing shows them (docs/internals/gpu.md, "Limits").
    const fn tries(self) -> u32 {
        if matches!(self, Self::Everything) { 4 } else { 1 }
    }

    /// What is measured there: a larger cache takes buffers that the interpreter is long busy with.
    fn kernels(self, board: &Board) -> &[Kernel] {
        if self == Self::LargerCache { &board.kernels[..1] } else { &board.kernels }
    }

    fn of(self, board: &Board) -> Scenario {
        let mut it = board.scenario.clone();
        if self == Self::Peace {
            return it;
        }
        let mut host = board.host.clone();
        let has = |world: Self| self == world || self == Self::Everything;
        if has(Self::Stalls) {
            (host.stall_every, host.stall_s) = (7, 400e-6);
        }
        if has(Self::Cold) {
            it.cold = Cold {
                function_s: [200e-6, 500e-6],
                graph_s: [200e-6, 1.1e-3],
                device_share: 0.5,
                mib_s: 20e-6,
            };
        }
        if has(Self::Falling) {
            it.clock.governor = Some(board.governor.clone());
            // A board's buffers are many times the toy's, and its CPU is busy with them for as long.
            host.mib_s = 0.1;
        }
        if has(Self::Unordered) {
            host.lag_s = 2e-3;
        }
        let when = |from_s, for_s, every_s| When { from_s, for_s: Some(for_s), every_s: Some(every_s) };
        if has(Self::Dips) {
            it.clock.dip.push(Dip { when: when(0.4, 0.3, 0.7), factor: 0.7 });
        }
        let tenant = Tenant {
            pid: 4242,
            when: when(0.3, 0.8, 1.7),
            share: 0.5,
            slice_s: 1.5e-3,
            dram_share: 0.0,
            counters_stop: self == Self::TenantStopped,
            bytes: 1 << 20,
        };
        if has(Self::Tenant) || self == Self::TenantStopped {
            it.tenant.push(tenant.clone());
        }
        if has(Self::MemoryTenant) {
            let when = when(0.2, 0.4, 0.9);
            it.tenant.push(Tenant { pid: 4343, when, share: 0.0, dram_share: 0.3, ..tenant });
        }
        if self == Self::LargerCache {
            it.memory.l2_bytes = 10 << 20;
        }
        it.host = Some(host);
        it
    }
}

/// What the probe said of one kernel.
enum Outcome {
    Rate { rate: f64, clock: f64 },
    Refused(String),
}

fn plan(kernels: &[Kernel]) -> Plan {
    Plan {
        steps: kernels.iter().map(|kernel| Step { kernel: *kernel, threads: 2, budget_s: 0.005 }).collect(),
        holds: Vec::new(),
        accelerator: Accelerator::Gpu,
        cpus: Vec::new(),
        warm_up_s: 0.2,
        time_limit_s: 30.0,
        filling_s: 0.0,
        memory_limit_bytes: 64 << 20,
        seed: 3,
    }
}

fn outcome_of(sample: &Sample) -> Outcome {
    match vet(sample) {
        Some(rejection) => Outcome::Refused(rejection.code),
        None => Outcome::Rate {
            rate: sample.bytes.get().max(sample.flops.get()) / centre(&sample.times).get(),
            clock: (sample.before.clock.effective.get() + sample.after.clock.effective.get()) / 2.0,
        },
    }
}

/// Whether a step measured that kernel; how many bytes stand for the memory may be the probe's to say.
fn is_same(planned: &Kernel, measured: &Kernel) -> bool {
    let large = |kernel: &Kernel| match kernel {
        Kernel::Stream { pattern, bytes, .. } if *bytes > 1 << 20 => Some(*pattern),
        _ => None,
    };
    planned == measured || large(planned).is_some() && large(planned) == large(measured)
}

/// What `rooflined probe` says of each kernel.
fn measure(scenario: &Scenario, kernels: &[Kernel]) -> Vec<Outcome> {
    let dir = tempfile::tempdir().unwrap();
    let mut command = Command::new(crate::programs::rooflined());
    command.arg("probe").env_remove("LD_LIBRARY_PATH").envs(install(dir.path(), scenario));
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    writeln!(stdin, "{}", serde_json::to_string(&plan(kernels)).unwrap()).unwrap();
    let output = child.wait_with_output().unwrap();
    drop(stdin);
    let mut found: BTreeMap<usize, Outcome> = BTreeMap::new();
    let place = |kernel: &Kernel| kernels.iter().position(|it| is_same(it, kernel));
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        match serde_json::from_str(line).unwrap() {
            // The last word on a kernel counts: a sample that was taken again replaces the first.
            ProbeEvent::Sample(sample) => {
                found.insert(place(&sample.kernel).unwrap(), outcome_of(&sample));
            }
            ProbeEvent::Skipped { kernel, reason, .. } => {
                found.insert(place(&kernel).unwrap(), Outcome::Refused(reason));
            }
            _ => {}
        }
    }
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!errors.contains("panicked"), "{errors}");
    (0..kernels.len())
        .map(|place| {
            found.remove(&place).unwrap_or_else(|| {
                assert!(!errors.trim().is_empty(), "nothing is said of {}", kernels[place].describe());
                Outcome::Refused(errors.trim().to_owned())
            })
        })
        .collect()
}

/// Runs of all boards in all worlds, on as many threads as there are processors.
fn measure_all(boards: &[Board]) -> BTreeMap<(usize, World), Vec<Outcome>> {
    let mut jobs: Vec<(usize, World)> =
        (0..boards.len()).flat_map(|board| World::ALL.map(|world| (board, world))).collect();
    jobs.reverse();
    let (jobs, found) = (Mutex::new(jobs), Mutex::new(BTreeMap::new()));
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(8);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let Some((board, world)) = jobs.lock().unwrap().pop() else { break };
                    let outcomes = measure(&world.of(&boards[board]), world.kernels(&boards[board]));
                    found.lock().unwrap().insert((board, world), outcomes);
                }
            });
        }
    });
    found.into_inner().unwrap()
}

/// The rate of a kernel on an undisturbed GPU whose SMs have that part of their clock.
fn at_clock(board: &Board, kernel: Kernel, ratio: f64) -> f64 {
    let mut slow = World::Peace.of(board);
    slow.clock.sm_hz *= ratio;
    slow.clock.idle_hz = slow.clock.idle_hz.min(slow.clock.sm_hz);
    match measure(&slow, &[kernel]).pop() {
        Some(Outcome::Rate { rate, .. }) => rate,
        _ => panic!("{}: there is no truth for {} at {ratio} of the clock", board.name, kernel.describe()),
    }
}

/// Whether the rate follows the clock of the SMs; else it is that of the memory.
fn follows_clock(kernel: Kernel) -> bool {
    matches!(kernel, CACHED | FP32 | FP16)
}

/// What the outcomes of one world came to.
struct Verdict {
    within: usize,
    refused: usize,
    wrong: usize,
    worst: f64,
    faults: Vec<String>,
}

impl Verdict {
    fn of(board: &Board, world: World, outcomes: &[Outcome], peace: &[Outcome]) -> Self {
        let mut verdict = Self { within: 0, refused: 0, wrong: 0, worst: 0.0, faults: Vec::new() };
        for ((outcome, peace), kernel) in outcomes.iter().zip(peace).zip(&board.kernels) {
            let what = || format!("{} {world:?} {}", board.name, kernel.describe());
            let Outcome::Rate { rate: truth, clock: full } = peace else {
                verdict.faults.push(format!("{}: there is no truth", what()));
                continue;
            };
            match outcome {
                Outcome::Refused(why) => {
                    verdict.refused += 1;
                    assert!(!why.is_empty(), "{}", what());
                    if std::env::var_os("ROOFLINED_WORLDS").is_some() {
                        println!("  {}: {why}", what());
                    }
                }
                Outcome::Rate { rate, clock } => {
                    // A sample at another clock is that clock's, and held to what this GPU gives at that clock for good.
                    let ratio = clock / full;
                    let truth = if (ratio - 1.0).abs() > OTHER_CLOCK {
                        at_clock(board, *kernel, ratio)
                    } else if follows_clock(*kernel) {
                        truth * ratio
                    } else {
                        *truth
                    };
                    let off = rate / truth - 1.0;
                    verdict.worst = if off.abs() > verdict.worst.abs() { off } else { verdict.worst };
                    if off.abs() <= TOLERANCE {
                        verdict.within += 1;
                    } else {
                        verdict.wrong += 1;
                        verdict.faults.push(format!(
                            "{}: {:+.1} % of the truth at {:.0} % of the clock",
                            what(),
                            off * 100.0,
                            clock / full * 100.0
                        ));
                    }
                }
            }
        }
        verdict
    }
}

#[test]
fn rates_are_true_in_every_world_or_refused_by_name() {
    let boards = boards();
    let found = measure_all(&boards);
    let mut faults = Vec::new();
    println!("{:9} {:14} samples within refused wrong  worst", "board", "world");
    let mut all = [0; 4];
    for (&(place, world), outcomes) in &found {
        let board = &boards[place];
        let peace = &found[&(place, World::Peace)];
        let mut verdict = Verdict::of(board, world, outcomes, peace);
        for _ in 1..world.tries() {
            if verdict.wrong == 0 {
                break;
            }
            println!("again: {}", verdict.faults.join(", "));
            verdict = Verdict::of(board, world, &measure(&world.of(board), world.kernels(board)), peace);
        }
        let Verdict { within, refused, wrong, worst, faults: of_world } = verdict;
        faults.extend(of_world);
        if world.is_fair() && within == 0 {
            faults.push(format!("{} {world:?}: everything is refused", board.name));
        }
        let (name, world) = (board.name, format!("{world:?}"));
        let counts = [outcomes.len(), within, refused, wrong];
        for (sum, count) in all.iter_mut().zip(counts) {
            *sum += count;
        }
        let samples = counts[0];
        println!("{name:9} {world:14} {samples:7} {within:6} {refused:7} {wrong:5} {:+5.1} %", worst * 100.0);
    }
    let [samples, within, refused, wrong] = all;
    println!("{:24} {samples:7} {within:6} {refused:7} {wrong:5}", "all");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
