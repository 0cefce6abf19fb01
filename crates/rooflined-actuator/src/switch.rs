//! Entering a mode and finding the way back.
//!
//! The order of things is what makes it safe: the journal is on the disk before the tool runs, success is what the
//! files read back, and the journal is changed only after that. So at every moment either the files show the original
//! and no journal is needed, or the journal names the way back.

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::clocks::{Clocks, Lock};
use super::files::{self, resolve};
use super::journal::{Journal, Record, replace};
use super::live::{Machine, STATUS, Snapshot, named};
use super::tool::Tool;
use rooflined_config::Config;
use rooflined_core::board::nvpmodel::{self, expected_writes, persists_dangerously};
use rooflined_core::board::{
    ActiveMode, Difference, JournalEntry, Knob, Order, OrderAnswer, OrderFailure, PowerMode, PowerModes,
    ReadBack, SwitchOutcome, SwitchPhase, SwitchReport,
};
use rooflined_core::units::{Hertz, Seconds};
use rooflined_hw::SysRoot;

const CONF: &str = "/etc/nvpmodel.conf";
/// The files may take this long to settle after the tool has ended.
const SETTLING: Duration = Duration::from_secs(2);
/// Pause between two reads of the files meanwhile.
const PAUSE: Duration = Duration::from_millis(50);
/// Longest time without a client, in seconds.
const LONGEST_KEPT: f64 = 600.0;
/// After this many failures nobody tries by itself to restore the original.
pub(super) const MOST_RESTORES: u32 = 3;

/// The privileged helper: what it works on, and what is unsettled.
#[derive(Debug)]
pub(super) struct Helper {
    /// Where /sys and /etc are.
    pub root: SysRoot,
    pub config: PathBuf,
    pub time_limit: Duration,
    pub clocks: Clocks,
    pub journal: Journal,
    pub unsettled: Option<Record>,
    /// What was done about a journal found at start.
    pub recovered: Option<String>,
    pub boot_id: String,
}

/// An order that was refused: nothing was changed.
struct Refused(OrderFailure);

struct Attempt {
    snapshot: Snapshot,
    differences: Vec<Difference>,
    /// In words that follow "it was tried; ".
    said: String,
    wants_reboot: bool,
}

impl Helper {
    /// Does what is asked. Never panics, and leaves the journal true whatever happens.
    pub fn execute(&mut self, order: Order) -> OrderAnswer {
        match order {
            Order::SetMode { id, name, knob, dry_run, keep } => {
                let began = Instant::now();
                let asked = ActiveMode { id, name };
                let mut report = self.set_mode(&asked, knob, dry_run, keep).unwrap_or_else(|Refused(why)| {
                    let reached = self.now(None);
                    let before = reached.mode.clone();
                    let refused = report(SwitchOutcome::Refused, &asked, before, reached, why.message);
                    SwitchReport { hint: why.hint, ..refused }
                });
                report.took = Seconds(began.elapsed().as_secs_f64());
                OrderAnswer::Switched { report }
            }
            Order::Settle => match self.settle() {
                Ok(()) => OrderAnswer::Settled,
                Err(failure) => OrderAnswer::Failed(failure),
            },
            Order::Restore => self.go_back(),
            Order::Status => OrderAnswer::Status {
                journal: self.unsettled.as_ref().map(|record| record.entry.clone()),
                recovered: self.recovered.clone(),
                now: self.now(None),
            },
        }
    }

    fn set_mode(
        &mut self,
        asked: &ActiveMode,
        knob: Knob,
        dry_run: bool,
        keep: Option<Seconds>,
    ) -> Result<SwitchReport, Refused> {
        if keep.is_some_and(|keep| !(0.0..=LONGEST_KEPT).contains(&keep.get())) {
            let message = "`keep_s` is not a valid time to keep a mode without a client";
            let hint = format!("give 0 to {LONGEST_KEPT} seconds");
            return Err(Refused(OrderFailure::with_hint(message, hint)));
        }
        let config = self.permitted(&asked.name)?;
        let modes = self.modes_with(&config).map_err(Refused)?;
        let machine = Machine { root: &self.root, modes: &modes, clocks: &self.clocks };
        let target = agreed(&modes, asked, knob)?;
        let snapshot = machine.look();
        let active = machine.active(&snapshot);
        let (before, asked) = (active.map(named), named(target));
        let report_with = |outcome, snapshot: &Snapshot, message: String| {
            report(outcome, &asked, before.clone(), machine.read_back(Some(target), snapshot), message)
        };
        if before.as_ref() == Some(&asked) {
            let remark = if dry_run { String::new() } else { persist(&machine, target, None) };
            let report = report_with(
                SwitchOutcome::Applied,
                &snapshot,
                format!("{} is already active{remark}", asked.name),
            );
            if !dry_run && let Some(record) = self.unsettled.clone() {
                let left = (record.entry.original != asked).then(|| Record {
                    keep,
                    kept_until: None,
                    ..record.reaching(asked, SwitchPhase::Applied)
                });
                self.unsettled = put_back(&self.journal, left);
            }
            return Ok(report);
        }
        let masks = machine.gated_otherwise(target, &snapshot);
        if let [mask, ..] = masks.as_slice() {
            let message = format!(
                "{} gates other parts of the GPU ({} is {}, the mode has {}), which takes a reboot; nothing was changed",
                asked.name, mask.path, mask.found, mask.expected
            );
            return Ok(SwitchReport {
                hint: Some(confirm_by_hand(&asked)),
                writes: if dry_run { writes(&machine, target) } else { Vec::new() },
                ..report_with(SwitchOutcome::RebootRequired, &snapshot, message)
            });
        }
        let earlier = self.unsettled.clone();
        let journalled = earlier.as_ref().map(|record| record.entry.original.clone());
        // Clocks that somebody else has locked are no mode to go back to.
        let believed = || machine.believed().filter(|_| target.knob == Knob::Nvpmodel).map(named);
        let Some(original) = journalled.or_else(|| before.clone()).or_else(believed) else {
            return Err(Refused(OrderFailure::with_hint(
                "the present mode cannot be determined, so there would be no way back",
                format!("enter one with `nvpmodel -m ID`, then {} can be requested again", asked.name),
            )));
        };
        let tool = self.tool_for(target)?;
        if dry_run {
            let message =
                format!("{} would be entered from {}; nothing was changed", asked.name, original.name);
            let writes = writes(&machine, target);
            return Ok(SwitchReport { writes, ..report_with(SwitchOutcome::Applied, &snapshot, message) });
        }
        let persisted = files::read(&self.root, STATUS).ok();
        let entry = JournalEntry {
            boot_id: self.boot_id.clone(),
            original: original.clone(),
            target: asked.clone(),
            phase: SwitchPhase::Started,
        };
        let record = Record { entry, failed_restores: 0, keep, kept_until: None };
        self.journal.store(&record).map_err(|error| {
            let message = format!("the journal cannot be written ({error}), so nothing was changed");
            Refused(OrderFailure::with_hint(message, "free space on its disk"))
        })?;
        let attempt = match attempt(&machine, target, tool.as_ref(), &self.journal) {
            Ok(attempt) => attempt,
            Err(failure) => {
                self.unsettled = put_back(&self.journal, earlier);
                return Err(Refused(failure));
            }
        };
        if attempt.differences.is_empty() {
            let remark = persist(&machine, target, Some(&original));
            let settled = asked == original;
            let left = (!settled).then(|| record.reaching(asked.clone(), SwitchPhase::Applied));
            self.unsettled = put_back(&self.journal, left);
            let message = format!("{} is active{remark}", asked.name);
            return Ok(report_with(SwitchOutcome::Applied, &attempt.snapshot, message));
        }
        if attempt.snapshot == snapshot {
            // Not a file was changed, but the tool may have written down the mode all the same.
            if let Some(bytes) =
                persisted.filter(|bytes| files::read(&self.root, STATUS).ok().as_ref() != Some(bytes))
            {
                let _ = replace(&resolve_status(&self.root), &bytes, 0o644);
            }
            self.unsettled = put_back(&self.journal, earlier);
            let (outcome, hint) = if attempt.wants_reboot {
                (SwitchOutcome::RebootRequired, confirm_by_hand(&asked))
            } else {
                let hint = "look at `nvpmodel -q --verbose` and at the kernel's log";
                (SwitchOutcome::NotApplied, hint.to_owned())
            };
            let message = format!("{} was not entered: {}; nothing was changed", asked.name, attempt.said);
            return Ok(SwitchReport { hint: Some(hint), ..report_with(outcome, &attempt.snapshot, message) });
        }
        self.unsettled = Some(record);
        let reached = machine.read_back(Some(target), &attempt.snapshot);
        let back = self.restore();
        let mut switched =
            report(SwitchOutcome::NotApplied, &asked, before.clone(), self.now(None), String::new());
        switched.reached.differences = reached.differences;
        if attempt.wants_reboot && back.is_ok() {
            switched.outcome = SwitchOutcome::RebootRequired;
        }
        let back = back.map_or_else(|failure| failure, OrderFailure::from);
        switched.message =
            format!("{} was entered in part only: {}; {}", asked.name, attempt.said, back.message);
        switched.hint = back.hint;
        Ok(switched)
    }

    /// Keeps the mode in force: clears the journal.
    fn settle(&mut self) -> Result<(), OrderFailure> {
        if let Some(record) =
            self.unsettled.as_ref().filter(|record| record.entry.phase != SwitchPhase::Applied)
        {
            let (target, original) = (&record.entry.target.name, &record.entry.original.name);
            return Err(OrderFailure::with_hint(
                format!("{target} is not active, so it cannot be settled"),
                format!("restore {original} first"),
            ));
        }
        self.journal.clear().map_err(|error| {
            let message = format!("the journal cannot be cleared ({error})");
            OrderFailure::with_hint(message, "the switch stays unsettled, make its disk writable")
        })?;
        self.unsettled = None;
        Ok(())
    }

    fn go_back(&mut self) -> OrderAnswer {
        let began = Instant::now();
        let before = self.now(None).mode;
        let Some(asked) = self.unsettled.as_ref().map(|record| record.entry.original.clone()) else {
            return OrderAnswer::Failed(OrderFailure::with_hint(
                "there is nothing to go back from",
                "enter a mode instead",
            ));
        };
        let (outcome, OrderFailure { message, hint }) = match self.restore() {
            Ok(message) => (SwitchOutcome::Applied, OrderFailure::from(message)),
            Err(failure) => (SwitchOutcome::NotApplied, failure),
        };
        let reached = self.now(Some(&asked));
        let took = Seconds(began.elapsed().as_secs_f64());
        OrderAnswer::Switched {
            report: SwitchReport { took, hint, ..report(outcome, &asked, before, reached, message) },
        }
    }

    /// Undoes what is unsettled: by the tool, and if that fails by writing what it would have written. Says what came
    /// of it; nothing to undo is a success.
    pub fn restore(&mut self) -> Result<String, OrderFailure> {
        let Some(mut record) = self.unsettled.clone() else { return Ok("nothing was unsettled".into()) };
        record.entry.phase = SwitchPhase::Restoring;
        // A journal that cannot be written still names the way back.
        let _ = self.journal.store(&record);
        let outcome = self.restore_mode(&record.entry.original);
        match &outcome {
            Ok(_) => self.unsettled = put_back(&self.journal, None),
            Err(_) => {
                record.failed_restores += 1;
                self.unsettled = put_back(&self.journal, Some(record));
            }
        }
        outcome
    }

    /// The client has gone. True if what it entered is kept for the next one.
    pub fn keeps(&mut self) -> bool {
        let now = rooflined_hw::boot_time();
        let record = self.unsettled.as_mut().filter(|record| record.entry.phase == SwitchPhase::Applied);
        let Some(record) = record else { return false };
        // A client that came and went without asking for it again gives it no more time.
        let Some(until) = record.kept_until.or_else(|| record.keep.map(|keep| now + keep)) else {
            return false;
        };
        if record.kept_until.replace(until).is_none()
            && let Err(error) = self.journal.store(record)
        {
            eprintln!(
                "rooflined actuate: warning: the journal does not say how long the mode is kept: {error}"
            );
        }
        until > now
    }

    /// How much longer the mode is kept for the next client.
    pub fn kept_for(&self) -> Option<Duration> {
        let record = self.unsettled.as_ref()?;
        let left = record.kept_until.filter(|_| record.entry.phase == SwitchPhase::Applied)?
            - rooflined_hw::boot_time();
        Duration::try_from_secs_f64(left.get()).ok().filter(|left| !left.is_zero())
    }

    /// What another helper that worked in the meantime has left.
    pub fn look_again(&mut self) {
        self.unsettled = self.journal.load().unwrap_or_else(|problem| {
            eprintln!("rooflined actuate: warning: {problem}");
            None
        });
    }

    /// The same for want of a client: what somebody else has entered since is left alone.
    pub fn undo(&mut self) -> Result<String, OrderFailure> {
        if let Some(record) =
            self.unsettled.as_ref().filter(|record| record.entry.phase == SwitchPhase::Applied)
            && let Some(now) = self.now(None).mode.filter(|now| *now != record.entry.target)
        {
            self.unsettled = put_back(&self.journal, None);
            return Ok(format!("another program has entered {} since, and it was left", now.name));
        }
        self.restore()
    }

    fn persist(&self, mode: &ActiveMode, original: &ActiveMode) -> String {
        let Ok(modes) = self.modes() else { return String::new() };
        let machine = Machine { root: &self.root, modes: &modes, clocks: &self.clocks };
        modes.get(mode).map(|mode| persist(&machine, mode, Some(original))).unwrap_or_default()
    }

    fn restore_mode(&self, original: &ActiveMode) -> Result<String, OrderFailure> {
        let by_hand = |message: String| {
            OrderFailure::with_hint(message, format!("enter it by hand: `nvpmodel -m {}`", original.id))
        };
        let modes = self
            .modes()
            .map_err(|error| by_hand(format!("{} cannot be restored: {error}", original.name)))?;
        let machine = Machine { root: &self.root, modes: &modes, clocks: &self.clocks };
        let Some(mode) = modes.get(original) else {
            return Err(by_hand(format!(
                "{} is no longer among the modes of {}",
                original.name, modes.source
            )));
        };
        let holds = |machine: &Machine<'_>| machine.judge(mode, &machine.look()).is_ok_and(|d| d.is_empty());
        let mut said = String::new();
        if !holds(&machine) {
            let tried = self
                .tool_for(mode)
                .and_then(|tool| attempt(&machine, mode, tool.as_ref(), &self.journal).map_err(Refused));
            said = tried.map_or_else(|Refused(why)| why.to_string(), |attempt| attempt.said);
        }
        let mut by = "";
        if !holds(&machine) && mode.knob == Knob::Nvpmodel {
            write_directly(&machine, mode);
            by = " by writing its files, as nvpmodel would not";
            settled(&machine, mode);
        }
        if holds(&machine) {
            let remark = persist(&machine, mode, None);
            return Ok(format!("{} was restored{by}{remark}", mode.name));
        }
        Err(by_hand(format!("{} could not be restored: {said}", mode.name)))
    }

    /// Looks after a journal that an earlier run left behind.
    pub fn recover(&mut self) {
        let record = match self.journal.load() {
            Ok(None) => return,
            Ok(Some(record)) => record,
            Err(problem) => {
                self.recovered = Some(problem);
                return;
            }
        };
        let (entry, failed) = (record.entry.clone(), record.failed_restores);
        self.unsettled = Some(record.clone());
        let now = self.now(None).mode;
        let in_time = record.kept_until.is_none_or(|until| until > rooflined_hw::boot_time());
        let ours = entry.boot_id == self.boot_id && entry.phase != SwitchPhase::Restoring && in_time;
        self.recovered = Some(if ours && now.as_ref() == Some(&entry.target) {
            let target = record.entry.target.clone();
            let remark = self.persist(&target, &record.entry.original);
            let name = target.name.clone();
            self.unsettled = put_back(&self.journal, Some(record.reaching(target, SwitchPhase::Applied)));
            format!("adopted: {name} is active and waits to be settled{remark}")
        } else if failed >= MOST_RESTORES {
            format!(
                "not tried again: {} could not be restored {failed} times; enter a mode by hand",
                entry.original.name
            )
        } else {
            match self.undo() {
                Ok(message) => format!("restored: {message}"),
                Err(message) => format!("not restored: {message}"),
            }
        });
    }

    /// True while somebody should still look after the journal.
    pub fn is_restorable(&self) -> bool {
        self.unsettled.as_ref().is_some_and(|record| record.failed_restores < MOST_RESTORES)
    }

    fn now(&self, asked: Option<&ActiveMode>) -> ReadBack {
        let Ok(modes) = self.modes() else { return ReadBack::default() };
        let machine = Machine { root: &self.root, modes: &modes, clocks: &self.clocks };
        let asked = asked.and_then(|asked| modes.get(asked));
        machine.read_back(asked, &machine.look())
    }

    /// The modes, read again: the file may be another than at the last order.
    fn modes(&self) -> Result<PowerModes, OrderFailure> {
        // The way back must not depend on a configuration that is right.
        self.modes_with(&self.load_config().unwrap_or_default())
    }

    fn modes_with(&self, config: &Config) -> Result<PowerModes, OrderFailure> {
        if !self.root.path(CONF).exists()
            && let Some(declared) = config.control.declared_modes()
        {
            return Ok(declared);
        }
        let failed =
            |error: String| format!("{CONF} cannot be read ({error}), so there are no modes to enter");
        let bytes = files::read(&self.root, CONF).map_err(|error| failed(error.to_string()))?;
        let modes = nvpmodel::parse(&String::from_utf8_lossy(&bytes));
        if modes.modes.is_empty() {
            let message = format!("{CONF} declares no mode");
            return Err(OrderFailure::with_hint(message, "reinstall nvpmodel"));
        }
        Ok(PowerModes { source: CONF.into(), ..modes })
    }

    fn load_config(&self) -> Result<Config, OrderFailure> {
        let files = Config::files(&self.config).and_then(|files| Config::load(&files));
        files.map_err(|error| {
            OrderFailure::with_hint(format!("the configuration is wrong: {error}"), "correct it")
        })
    }

    /// The configuration, if it lets this mode be entered.
    fn permitted(&self, name: &str) -> Result<Config, Refused> {
        let config = self.load_config().map_err(Refused)?;
        let file = self.config.display();
        if !config.control.enabled {
            let file = self.config.with_file_name("conf.d").join("control.toml");
            let hint = format!("set `enabled = true` under [control] in {}", file.display());
            return Err(Refused(OrderFailure::with_hint("control is disabled", hint)));
        }
        if !config.control.allows(name) {
            return Err(Refused(OrderFailure::with_hint(
                format!("mode {name} is not allowed"),
                format!("add it to `allowed_modes` below [control] in {file}"),
            )));
        }
        Ok(config)
    }

    /// What enters the mode; `None` where no program is run.
    fn tool_for(&self, mode: &PowerMode) -> Result<Option<Tool>, Refused> {
        match mode.knob {
            Knob::Nvpmodel => {
                let config = self.load_config().unwrap_or_default();
                let configured = config.control.nvpmodel.path().and_then(|path| path.to_str());
                Tool::find(&self.root, configured, self.time_limit).map(Some).map_err(Refused)
            }
            Knob::LockedClocks { .. } | Knob::UnlockedClocks => Ok(None),
        }
    }
}

/// The mode whose number, name and knob are all as asked.
fn agreed<'m>(modes: &'m PowerModes, asked: &ActiveMode, knob: Knob) -> Result<&'m PowerMode, Refused> {
    let found = modes.get(asked).or_else(|| modes.by_id(asked.id));
    if let Some(mode) = found.filter(|mode| mode.name == asked.name && mode.knob == knob) {
        return Ok(mode);
    }
    let is = found.map_or_else(|| "is no mode".into(), |mode| format!("is {}", mode.name));
    let (id, name, source) = (asked.id, &asked.name, &modes.source);
    Err(Refused(OrderFailure::with_hint(
        format!("mode {id} {is} in {source} and not {name}"),
        "read the modes again and ask by their names",
    )))
}

/// Enters the mode by its knob and looks at what came of it.
///
/// # Errors
/// Nothing was changed.
fn attempt(
    machine: &Machine<'_>,
    mode: &PowerMode,
    tool: Option<&Tool>,
    journal: &Journal,
) -> Result<Attempt, OrderFailure> {
    let (said, wants_reboot) = match (mode.knob, tool) {
        (Knob::LockedClocks { min, max }, _) => (machine.clocks.set(Lock::between(min, max))?, false),
        (Knob::UnlockedClocks, _) => (machine.clocks.set(Lock::None)?, false),
        (Knob::Nvpmodel, Some(tool)) => {
            let run = tool.enter(mode.id, journal.tool_lock())?;
            (format!("nvpmodel {}", run.said), run.wants_reboot)
        }
        (Knob::Nvpmodel, None) => return Err("there is no nvpmodel".into()),
    };
    let (snapshot, differences) = settled(machine, mode);
    Ok(Attempt { snapshot, differences, said, wants_reboot })
}

/// Waits for the files to show the mode. What cannot be judged differs in that.
fn settled(machine: &Machine<'_>, mode: &PowerMode) -> (Snapshot, Vec<Difference>) {
    let deadline = Instant::now() + SETTLING;
    loop {
        let snapshot = machine.look();
        let differences = machine.judge(mode, &snapshot).unwrap_or_else(|reason| {
            vec![Difference {
                path: machine.modes.source.clone(),
                expected: mode.name.clone(),
                found: reason,
            }]
        });
        if differences.is_empty() || Instant::now() >= deadline {
            return (snapshot, differences);
        }
        sleep(PAUSE);
    }
}

/// The last resort: what nvpmodel would write, in its order, where the files do not hold it yet. The GPU is kept awake
/// for it as nvpmodel keeps it.
fn write_directly(machine: &Machine<'_>, mode: &PowerMode) {
    let Ok(differences) = machine.judge(mode, &machine.look()) else { return };
    for (path, value) in writes(machine, mode) {
        let value = if value.trim() == "-1" { machine.uncapped(&path) } else { value };
        let differs = differences.iter().any(|difference| difference.path == path);
        let keeps_awake =
            mode.settings.iter().any(|s| s.param.starts_with("GPU_POWER_CONTROL") && s.paths.contains(&path));
        let path = machine.root.path(&path);
        if (differs || keeps_awake) && path.is_file() {
            // What does not take shows when it is read back.
            let _ =
                fs::OpenOptions::new().write(true).truncate(true).open(path).and_then(|mut file| {
                    std::io::Write::write_all(&mut file, format!("{value}\n").as_bytes())
                });
        }
    }
}

fn writes(machine: &Machine<'_>, mode: &PowerMode) -> Vec<(String, String)> {
    let exists = |path: &str| machine.expand(path).is_some_and(|path| machine.root.path(&path).exists());
    let writes = expected_writes(mode, exists);
    writes.into_iter().map(|(path, value)| (machine.expand(&path).unwrap_or(path), value)).collect()
}

/// Sees to it that the next boot sets this mode, or a safe one where this one may crash it. Says so in words that follow
/// those about the mode.
fn persist(machine: &Machine<'_>, mode: &PowerMode, original: Option<&ActiveMode>) -> String {
    if mode.knob != Knob::Nvpmodel {
        return String::new();
    }
    let l4t = machine.root.read("/etc/nv_tegra_release").ok().and_then(|text| release(&text));
    let highest = machine.root.read("/sys/kernel/debug/bpmp/debug/clk/emc/max_rate").ok();
    let highest = highest.and_then(|text| text.trim().parse().ok()).map(Hertz);
    let is_safe = |mode: &&PowerMode| !persists_dangerously(mode, l4t.as_deref(), highest);
    let by_id = |id: u32| machine.modes.by_id(id).filter(is_safe);
    let uncapped = || machine.modes.modes.iter().filter(is_safe).find(|mode| mode.memory_max.is_none());
    let kept = Some(mode)
        .filter(is_safe)
        .or_else(|| by_id(original?.id))
        .or_else(|| by_id(machine.modes.default?))
        .or_else(uncapped)
        .or_else(|| machine.modes.modes.iter().find(is_safe));
    let Some(kept) = kept else {
        return format!(
            "; CAUTION: {} may crash the next boot, and no mode that would not is known",
            mode.name
        );
    };
    if machine.persisted() != Some(kept.id) {
        let written =
            replace(&resolve_status(machine.root), format!("pmode:{:04}\n", kept.id).as_bytes(), 0o644);
        if let Err(error) = written {
            return format!(
                "; the next boot does not set {} because {STATUS} cannot be written ({error})",
                kept.name
            );
        }
    }
    if kept.id == mode.id {
        return String::new();
    }
    format!(
        "; the next boot sets {} instead, because {} may crash it (NVIDIA bug 6236259)",
        kept.name, mode.name
    )
}

/// `39.2.0` of the first line of /etc/nv_tegra_release.
fn release(text: &str) -> Option<String> {
    let line = text.lines().next()?;
    let major = line.split_once("# R")?.1.split_ascii_whitespace().next()?;
    let minor = line.split_once("REVISION:")?.1.split(',').next()?.trim();
    Some(format!("{major}.{minor}"))
}

fn resolve_status(root: &SysRoot) -> PathBuf {
    resolve(root, STATUS).unwrap_or_else(|_| root.path(STATUS))
}

/// Makes the journal hold this, and returns what is then known to be unsettled. A journal that cannot be written or
/// cleared is reported in the log; it is looked at again at the next start.
fn put_back(journal: &Journal, record: Option<Record>) -> Option<Record> {
    let done = record.as_ref().map_or_else(|| journal.clear(), |record| journal.store(record));
    if let Err(error) = done {
        eprintln!("rooflined actuate: error: the journal cannot be brought up to date: {error}");
    }
    record
}

/// What to do about a mode that takes a reboot.
fn confirm_by_hand(mode: &ActiveMode) -> String {
    format!("run `nvpmodel -m {}` by hand and confirm the reboot", mode.id)
}

fn report(
    outcome: SwitchOutcome,
    asked: &ActiveMode,
    before: Option<ActiveMode>,
    reached: ReadBack,
    message: String,
) -> SwitchReport {
    SwitchReport {
        outcome,
        asked: asked.clone(),
        before,
        reached,
        message,
        hint: None,
        writes: Vec::new(),
        took: Seconds::ZERO,
    }
}
