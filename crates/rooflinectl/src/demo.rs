//! `demo`: a tour with a private daemon in a directory of its own. It runs the commands that a user would type, and leaves
//! nothing behind.

use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::process::Command;

use super::args::DemoArgs;
use super::failure::{Exit, Failure};
use super::output::Printer;
use super::private_daemon::PrivateDaemon;
use super::signals::wait_for_signal;
use rooflined_api::{ModeDetail, ModesAnswer};

/// The CPU, because this version may have no kernels for a machine's GPU.
const CONFIG: &str = "[daemon]\naccelerator = \"cpu\"\n";
/// The declared clocks are for boards without nvpmodel; a short dwell keeps the tour below a minute.
const CONFIG_OF_SIMULATED: &str =
    "[control]\nenabled = true\ndwell_s = 1.0\nclock_modes = [\"quiet=0..1500MHz\"]\n";
/// The tour ends by itself before a minute has passed.
const LIMIT: Duration = Duration::from_secs(58);
/// Other work may spoil a calibration; it is tried again until this much of the time has passed.
const LAST_TRY: Duration = Duration::from_secs(35);
/// Between two tries.
const PAUSE: Duration = Duration::from_secs(1);
const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// Exit codes that answer a question: done, infeasible, needs a reboot.
const ANSWERS: [i32; 3] = [Exit::Ok as i32, Exit::Infeasible as i32, Exit::RebootRequired as i32];

/// What somebody who has seen the tour knows now, and does next.
const SUMMARY: &str = "
The calibration measured how fast this machine reads memory and how much it computes. Every prediction above follows from
these few numbers; the column `error` shows how far it was from the measurement. Other work on the machine makes errors larger.
Where a row is far off, its probable cause is below the table. Next, ask about a model of your own:
  rooflined serve &                              the daemon, which keeps the calibration
  rooflinectl recommend MODEL.gguf --modes all   the format, power mode and batch size to use";

const SUMMARY_OF_BOARD: &str = "
A power mode caps clocks and cores. A calibration in one mode carries over to the others: `mode list` says what each would give, and
`recommend` weighs all of them against a target. A switch is on trial until it is confirmed, and a hold restores the mode when its
command ends. On a board of yours:
  rooflined serve &                                   the daemon
  rooflinectl recommend MODEL.gguf --modes all        the format, power mode and batch size to use
  rooflinectl hold --max-power 25W -- COMMAND         run something in a mode that stays below 25 W";

pub async fn run(printer: &Printer, args: &DemoArgs) -> Result<Exit, Failure> {
    // Dropping the tour ends its processes and removes its directory.
    let tour = async {
        match &args.simulate {
            Some(board) => show_board(printer, board).await,
            None => show_machine(printer, args).await,
        }
    };
    tokio::select! {
        outcome = tour => outcome,
        () = tokio::time::sleep(LIMIT) => Err(Failure::failed(
            format!("the demo did not finish within {} s", LIMIT.as_secs()),
            "try it on a machine that is less busy, or with --quick",
        )),
        name = wait_for_signal() => Err(Failure::failed(
            format!("ended by {name}; the private daemon is stopped and its directory removed"),
            "start it again with: rooflinectl demo",
        )),
    }
}

async fn show_machine(printer: &Printer, args: &DemoArgs) -> Result<Exit, Failure> {
    printer.line("rooflined demo: everything below happens on this machine, now.")?;
    let mut tour = Tour::start(printer, 6, CONFIG, None).await?;
    tour.begin_step("calibration: what can this machine do?")?;
    tour.calibrate(args.quick).await?;
    tour.begin_step("operations run now, under the roofline")?;
    let mut roofline = vec!["roofline", "--measure"];
    let svg = args.svg.as_ref().map(|file| file.to_string_lossy());
    roofline.extend(svg.iter().flat_map(|file| ["--svg", file.as_ref()]));
    tour.run(&roofline).await?;
    tour.begin_step("predicted vs. measured: each time is predicted from the calibration, then measured")?;
    tour.run_words("compare gemv --sizes 4096 --formats fp32,bf16,int8,int4").await?;
    tour.run_words("compare gemm --sizes 8,128 --formats fp32").await?;
    tour.begin_step("questions of a scheduler")?;
    tour.run_words("recommend tinyllama-1.1b --engine llama.cpp --max-time-per-token 50ms").await?;
    let batches = "recommend gemv 14336 4096 --objective throughput --batch 1..64 --formats int8,int4";
    tour.run_words(batches).await?;
    tour.begin_step("the same model on another machine, from its data sheet")?;
    tour.run_words(
        "predict tinyllama-1.1b --format q4_k_m --engine llama.cpp --hardware jetson-orin-nano-8gb",
    )
    .await?;
    printer.line(SUMMARY)?;
    tour.end("nothing was simulated")
}

async fn show_board(printer: &Printer, board: &str) -> Result<Exit, Failure> {
    printer.line("rooflined demo: a board in a directory. SIMULATED: no value describes hardware.")?;
    let mut tour = Tour::start(printer, 6, CONFIG_OF_SIMULATED, Some(board)).await?;
    let answer = tour.daemon.client(ANSWER_LIMIT).get("/v1/modes").await?;
    let modes: ModesAnswer = answer.parse()?;
    tour.begin_step("power modes, listed without entering any")?;
    tour.run_words("mode list").await?;
    tour.begin_step("calibration in the active mode, predicted vs. measured")?;
    tour.calibrate(true).await?;
    tour.run_words("compare gemv --sizes 4096 --formats fp16,int8").await?;
    tour.begin_step("a question about every mode")?;
    tour.run_words("recommend llama-3.2-3b --engine llama.cpp --modes all --objective energy").await?;
    tour.begin_step("another mode: entered, reverted, held")?;
    match slowest_live(&modes) {
        Some(mode) => tour.visit(mode).await?,
        None => tour.skip("no other mode of this board can be entered without a reboot")?,
    }
    tour.begin_step("a mode that needs a reboot is refused")?;
    match modes.modes.iter().find(|mode| mode.reboot_required == Some(true)) {
        Some(mode) => tour.run(&["mode", "set", &mode.name]).await?,
        None => tour.skip("no mode of this board needs a reboot")?,
    }
    printer.line(SUMMARY_OF_BOARD)?;
    tour.end("SIMULATED: no value describes hardware")
}

/// The slowest of the modes that can be entered without a reboot.
fn slowest_live(modes: &ModesAnswer) -> Option<&str> {
    let live = modes.modes.iter().filter(|mode| !mode.active && mode.reboot_required == Some(false));
    let clock = |mode: &&ModeDetail| mode.gpu_max_hz.unwrap_or(f64::INFINITY);
    live.min_by(|a, b| clock(a).total_cmp(&clock(b))).map(|mode| mode.name.as_str())
}

fn find_own_program() -> String {
    std::env::current_exe()
        .map_or_else(|_| "rooflinectl".to_owned(), |path| path.to_string_lossy().into_owned())
}

struct Tour<'a> {
    printer: &'a Printer,
    daemon: PrivateDaemon,
    began: Instant,
    step: u32,
    steps: u32,
    failed: u32,
}

impl<'a> Tour<'a> {
    /// Starts the daemon and shows the machine: the first step.
    async fn start(
        printer: &'a Printer,
        steps: u32,
        config: &str,
        board: Option<&str>,
    ) -> Result<Self, Failure> {
        let began = Instant::now();
        let daemon = PrivateDaemon::start(config, board).await?;
        let mut tour = Self { printer, daemon, began, step: 0, steps, failed: 0 };
        tour.begin_step("a private daemon")?;
        printer.line(&format!("  listening in {}", tour.daemon.path().display()))?;
        tour.run_words("status").await?;
        Ok(tour)
    }

    fn begin_step(&mut self, title: &str) -> Result<(), Failure> {
        self.step += 1;
        self.printer.line(&format!("\n[{}/{}] {title}", self.step, self.steps))
    }

    async fn run_words(&mut self, command: &str) -> Result<(), Failure> {
        self.run(&command.split(' ').collect::<Vec<_>>()).await
    }

    fn skip(&self, why: &str) -> Result<(), Failure> {
        self.printer.line(&format!("  SKIPPED: {why}"))
    }

    async fn visit(&mut self, mode: &str) -> Result<(), Failure> {
        self.run(&["mode", "set", mode, "--dry-run"]).await?;
        self.run(&["mode", "set", mode, "--confirm", "20s"]).await?;
        self.run_words("mode revert").await?;
        self.run(&["hold", "--mode", mode, "--", &find_own_program(), "holds"]).await
    }

    /// Runs a command of this program. One that fails has said why; it is counted, and the tour goes on.
    async fn run(&mut self, args: &[&str]) -> Result<(), Failure> {
        if !self.succeeds(args).await? {
            self.failed += 1;
        }
        Ok(())
    }

    async fn succeeds(&mut self, args: &[&str]) -> Result<bool, Failure> {
        let own = find_own_program();
        let words: Vec<_> = args.iter().map(|word| if *word == own { "rooflinectl" } else { word }).collect();
        self.printer.line(&format!("$ rooflinectl {}", words.join(" ")))?;
        let status = Command::new(&own)
            .args(self.printer.ascii.then_some("--ascii"))
            .args(args)
            .env("ROOFLINED_SOCKET", self.daemon.path())
            // Nobody is asked anything.
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .status()
            .await;
        let status = status.map_err(|error| {
            Failure::failed(format!("{own} cannot be run: {error}"), "install rooflinectl again")
        })?;
        Ok(status.code().is_some_and(|code| ANSWERS.contains(&code)))
    }

    /// Forces a calibration: that the machine is busy shows in the intervals.
    async fn calibrate(&mut self, quick: bool) -> Result<(), Failure> {
        let brief = ["calibrate", "--wait", "--force", "--quick"];
        let mut done = self.succeeds(if quick { &brief } else { &brief[..3] }).await?;
        // A short run finds a quiet moment more easily than a long one.
        while !done && self.began.elapsed() < LAST_TRY {
            tokio::time::sleep(PAUSE).await;
            done = self.succeeds(&brief).await?;
        }
        self.failed += u32::from(!done);
        Ok(())
    }

    fn end(self, remark: &str) -> Result<Exit, Failure> {
        let failed = match self.failed {
            0 => String::new(),
            count => format!("; FAILED: {count} of the commands"),
        };
        self.printer.line(&format!("\n{remark}{failed}; {:.0} s.", self.began.elapsed().as_secs_f64()))?;
        Ok(if self.failed == 0 { Exit::Ok } else { Exit::Failed })
    }
}
