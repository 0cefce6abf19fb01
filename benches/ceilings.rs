//! Our ceilings against plain C loops: `cargo bench -p rooflined-benches --bench ceilings [-- PAIRS]`.
//!
//! Builds `benches/yardstick/*.c` with `cc -O3 -march=native`, then runs `rooflined probe` and the C programs in turn,
//! ten pairs by default, and prints the median of the ratios. Debian's `likwid-bench` and `mbw` take part where they
//! are installed. `ROOFLINED` names another binary than the one that `cargo build --release` has built.

use std::env;
use std::error::Error;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rooflined_core::precision::Precision;
use rooflined_predict::calibration::{Accelerator, Kernel, Plan, ProbeEvent, Sample, Step, Stores, Stream};

#[path = "../tests/support/programs.rs"]
mod programs;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Working set of the bandwidth runs, all threads together.
const BYTES: u64 = 256_000_000;

fn main() -> Outcome<()> {
    let pairs = env::args().skip(1).find_map(|arg| arg.parse::<usize>().ok()).unwrap_or(10).max(1);
    let threads = u32::try_from(std::thread::available_parallelism()?.get())?;
    let built = build()?;
    println!("{pairs} pairs, medians of the ratios of median rates; all {threads} cores and one");
    println!("{:<44} {:>10} {:>10} {:>7}", "", "ours", "theirs", "ratio");
    let mut failed = false;
    for threads in if threads > 1 { vec![1, threads] } else { vec![1] } {
        for duel in duels(&built, threads) {
            let Some(result) = duel.run(pairs)? else { continue };
            failed |= result.ratio < 0.97;
            println!("{:<44} {:>10.1} {:>10.1} {:>7.3}", duel.name, result.ours, result.theirs, result.ratio);
        }
    }
    if failed { Err("a ceiling is below 0.97 of its yardstick".into()) } else { Ok(()) }
}

/// Compiles the yardsticks and returns where they are.
fn build() -> Outcome<PathBuf> {
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join("yardstick");
    std::fs::create_dir_all(&out)?;
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("yardstick");
    for name in ["stream", "fma", "vnni"] {
        let status = Command::new("cc")
            .args(["-O3", "-march=native", "-pthread", "-o"])
            .arg(out.join(name))
            .arg(sources.join(name).with_extension("c"))
            .status()?;
        if !status.success() {
            return Err(format!("cc could not build {name}.c").into());
        }
    }
    Ok(out)
}

/// One of our kernels against programs that do the same.
struct Duel {
    name: String,
    step: Step,
    yardsticks: Vec<Yardstick>,
}

struct Yardstick {
    command: Vec<String>,
    /// The line that holds the figure starts with this; the figure is the `field`-th word, times `scale`, in 10^9/s.
    line: &'static str,
    field: usize,
    scale: f64,
}

fn duels(built: &Path, threads: u32) -> Vec<Duel> {
    let program = |name: &str| built.join(name).to_string_lossy().into_owned();
    let own = |name: &str, arguments: &[String], line| Yardstick {
        command: [program(name)].into_iter().chain(arguments.iter().cloned()).collect(),
        line,
        field: 2,
        scale: 1.0,
    };
    let likwid = |test: &str| Yardstick {
        command: ["likwid-bench", "-t", test, "-w", &format!("N:{}MB:{threads}", BYTES / 1_000_000)]
            .map(str::to_owned)
            .into(),
        line: "MByte/s:",
        field: 1,
        scale: 1e-3,
    };
    let stream = [threads.to_string(), BYTES.to_string(), "0.3".into()];
    let peak = [threads.to_string(), "0.2".into()];
    let read = Kernel::Stream { pattern: Stream::Read, bytes: BYTES, stores: Stores::Temporal };
    let triad = Kernel::Stream { pattern: Stream::Triad, bytes: BYTES, stores: Stores::NonTemporal };
    let fp32 = Kernel::Peak { precision: Precision::Fp32 };
    let int8 = Kernel::Peak { precision: Precision::Int8 };
    [
        (
            "DRAM read, GB/s",
            read,
            vec![own("stream", &stream, "read"), likwid("load_avx512"), likwid("load_avx")],
        ),
        (
            "DRAM triad, non-temporal, GB/s",
            triad,
            vec![own("stream", &stream, "triad"), likwid("triad_mem_avx512")],
        ),
        ("fp32 multiply-add, GFLOP/s", fp32, vec![own("fma", &peak, "peak")]),
        ("int8 dot products (VNNI), GOP/s", int8, vec![own("vnni", &peak, "peak")]),
    ]
    .map(|(name, kernel, yardsticks)| Duel {
        name: format!("{name}, {threads} thread{}", if threads == 1 { "" } else { "s" }),
        step: Step { kernel, threads, budget_s: 0.3 },
        yardsticks,
    })
    .into()
}

struct Figures {
    ours: f64,
    theirs: f64,
    ratio: f64,
}

impl Duel {
    /// `None` where either side cannot run here.
    fn run(&self, pairs: usize) -> Outcome<Option<Figures>> {
        let (mut ours, mut theirs, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
        for pair in 0..pairs {
            // The second one finds warmer cores: take turns.
            let (our, their) = if pair % 2 == 0 {
                let our = measure(self.step)?;
                (our, self.best_yardstick()?)
            } else {
                let their = self.best_yardstick()?;
                (measure(self.step)?, their)
            };
            let (Some(our), Some(their)) = (our, their) else {
                println!("{:<44} skipped: not on this machine", self.name);
                return Ok(None);
            };
            ours.push(our);
            theirs.push(their);
            ratios.push(our / their);
        }
        Ok(Some(Figures { ours: median(ours), theirs: median(theirs), ratio: median(ratios) }))
    }

    fn best_yardstick(&self) -> Outcome<Option<f64>> {
        let mut best = None;
        for yardstick in &self.yardsticks {
            if let Some(figure) = yardstick.run()? {
                best = Some(figure.max(best.unwrap_or(0.0)));
            }
        }
        Ok(best)
    }
}

impl Yardstick {
    /// `None` if the program is not there or cannot run on this machine.
    fn run(&self) -> Outcome<Option<f64>> {
        let Ok(output) =
            Command::new(&self.command[0]).args(&self.command[1..]).stderr(Stdio::null()).output()
        else {
            return Ok(None);
        };
        let text = String::from_utf8_lossy(&output.stdout);
        let Some(line) = text.lines().find(|line| line.starts_with(self.line)) else { return Ok(None) };
        let word =
            line.split_whitespace().nth(self.field).ok_or("a yardstick's line has changed its form")?;
        Ok(Some(word.parse::<f64>()? * self.scale))
    }
}

/// Our median rate for a step, in 10^9/s, from a probe of its own.
fn measure(step: Step) -> Outcome<Option<f64>> {
    let plan = Plan {
        steps: vec![step],
        holds: Vec::new(),
        accelerator: Accelerator::default(),
        cpus: vec![],
        warm_up_s: 0.2,
        time_limit_s: 20.0,
        filling_s: 0.0,
        memory_limit_bytes: 2 << 30,
        seed: 1,
    };
    let binary = env::var_os("ROOFLINED").map_or_else(programs::rooflined, PathBuf::from);
    let mut probe = Command::new(binary).arg("probe").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    writeln!(line, "{}", serde_json::to_string(&plan)?)?;
    // Standard input stays open until the probe is done: closing it cancels.
    let mut stdin = probe.stdin.take().ok_or("no standard input")?;
    stdin.write_all(line.as_bytes())?;
    let output = probe.wait_with_output()?;
    drop(stdin);
    for line in String::from_utf8(output.stdout)?.lines() {
        if let ProbeEvent::Sample(sample) = serde_json::from_str(line)? {
            return Ok(Some(rate(&sample)));
        }
    }
    Ok(None)
}

fn rate(sample: &Sample) -> f64 {
    let time = median(sample.times.iter().map(|time| time.get()).collect());
    let amount = if sample.bytes.get() > 0.0 { sample.bytes.get() } else { sample.flops.get() };
    amount / time / 1e9
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
