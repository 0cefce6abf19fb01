//! nvpmodel: the power modes of a Jetson, and what its tool says of them. Pure: the text is given.
//!
//! The file of modes (`/etc/nvpmodel.conf`) first declares what each parameter's arguments stand for, then gives them
//! values, mode by mode:
//!
//! ```text
//! < PARAM TYPE=FILE NAME=CPU_ONLINE >            the value is text, written as it stands
//! CORE_1 /sys/devices/system/cpu/cpu1/online
//! <PARAM TYPE=CLOCK NAME=EMC >                   the value is a whole number; -1 is no cap
//! MAX_FREQ /sys/kernel/nvpmodel_emc_cap/emc_iso_cap   some files have TYPE=FILE here: it caps the clock all the same
//! MAX_FREQ_KNEXT /sys/kernel/nvpmodel_clk_cap/emc      the same on a newer kernel
//! FREQ_TABLE /sys/…/available_frequencies        what the values are rounded to; only read
//! < PARAM TYPE=HWMON NAME=VDDIN_OC_LIMIT >       a directory that holds a numbered one, and a file in that
//! WARN /sys/…/7-0040/hwmon curr1_max
//! < POWER_MODEL ID=1 NAME=25W >
//! CPU_ONLINE CORE_1 1
//! EMC MAX_FREQ 3199000000                        Hz; of a CPU cluster kHz
//! < PM_CONFIG DEFAULT=1 >                        the mode at the first boot
//! < FAN_CONFIG DEFAULT=quiet >                   older releases only; not read here
//! ```
//!
//! Owners of boards edit these files, so [`parse`] takes any text: what it does not understand becomes a warning with
//! its line, and everything else is kept. Its time and memory are bounded by the text it is given.

mod assemble;
mod line;
mod rules;
mod tool;

#[cfg(test)]
mod tests;

pub use rules::{expected_writes, gating_settings, persists_dangerously};
pub use tool::parse_status;

use std::collections::BTreeMap;

use super::{Knob, ModeWarning, PowerMode, PowerModes, Setting};
use assemble::Chip;
use line::{Header, Line, quoted};

/// Longest line that is looked at; those of real files have less than 200 bytes.
const LONGEST_LINE: usize = 4096;
/// Most modes kept; real files have up to nine.
const MOST_MODES: usize = 64;
/// Most assignments kept of one mode; real ones have about forty.
const MOST_SETTINGS: usize = 512;
/// Most arguments kept of all parameters together.
const MOST_ARGUMENTS: usize = 2048;
/// Most warnings kept; what exceeds them is counted.
const MOST_WARNINGS: usize = 100;
/// Ending of the argument that names the same file on a newer kernel.
const NEWER: &str = "_KNEXT";

/// Reads a file of modes. Never fails: what is not understood becomes a warning. The caller fills in the `source`.
#[must_use]
pub fn parse(text: &str) -> PowerModes {
    let mut parser = Parser::default();
    for (index, text) in text.trim_start_matches('\u{feff}').split('\n').enumerate() {
        parser.number = index + 1;
        parser.line(text);
    }
    parser.finish()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    Clock,
    Hwmon,
}

/// The files of one argument.
#[derive(Debug, Clone, Default)]
struct Files {
    older: Option<String>,
    newer: Option<String>,
}

#[derive(Debug, Clone)]
struct Param {
    kind: Kind,
    args: BTreeMap<String, Files>,
}

/// An assignment, with what is needed to judge it once the whole file has been read.
#[derive(Debug)]
struct Assignment {
    line: usize,
    setting: Setting,
}

#[derive(Debug)]
struct Mode {
    line: usize,
    id: u32,
    name: String,
    assignments: Vec<Assignment>,
}

/// Where in the file we are.
#[derive(Debug, Default)]
enum Section {
    /// Before the first header.
    #[default]
    Start,
    Param(String),
    Mode(usize),
    /// Under a header that was not understood or ends the modes: its lines belong to nothing.
    Skipped,
}

#[derive(Debug, Default)]
struct Parser {
    number: usize,
    section: Section,
    params: BTreeMap<String, Param>,
    arguments: usize,
    modes: Vec<Mode>,
    default: Option<u32>,
    default_line: Option<usize>,
    warnings: Warnings,
}

impl Parser {
    fn line(&mut self, text: &str) {
        let pieces = line::pieces(text);
        if pieces.len() > 1 {
            self.warn("a line break is missing; the line is read as if it were there".into());
        }
        for piece in pieces {
            self.piece(piece);
        }
    }

    fn piece(&mut self, text: &str) {
        match line::read(text) {
            Line::Empty => {}
            Line::TooLong => {
                self.warn(format!("a line of {} bytes is left out", text.len()));
            }
            Line::Header(header) => self.header(&header),
            Line::Words(words) => self.words(&words),
            Line::Damaged(why) => self.warn(why),
        }
    }

    fn header(&mut self, header: &Header<'_>) {
        // Whatever is wrong with a header, the lines below it are not the section's above it.
        self.section = Section::Skipped;
        if !header.opened {
            self.warn("a header without <; it is taken as if it had one".into());
        } else if !header.closed {
            self.warn("a header without >; it is taken as if it had one".into());
        }
        match header.keyword {
            "PARAM" => self.param(header),
            "POWER_MODEL" => self.power_model(header),
            "PM_CONFIG" => self.pm_config(header),
            "FAN_CONFIG" => {}
            other => {
                self.warn(format!("no section that is known: {}; its lines are left out", quoted(other)));
            }
        }
    }

    fn param(&mut self, header: &Header<'_>) {
        let kind = match header.get("TYPE") {
            Some("FILE") => Kind::File,
            Some("CLOCK") => Kind::Clock,
            Some("HWMON") => Kind::Hwmon,
            Some(other) => {
                let what = format!("PARAM of unknown TYPE {}; its lines are left out", quoted(other));
                return self.warn(what);
            }
            None => return self.warn("PARAM without TYPE=; its lines are left out".into()),
        };
        let Some(name) = header.get("NAME").filter(|name| line::is_word(name)) else {
            return self.warn("PARAM without a NAME= of one word; its lines are left out".into());
        };
        if self.params.len() >= MOST_ARGUMENTS {
            return self.warn("too many PARAMs; this one is left out".into());
        }
        let known = self.params.entry(name.into()).or_insert_with(|| Param { kind, args: BTreeMap::new() });
        let differs = known.kind != kind;
        if differs {
            self.warn(format!(
                "PARAM {} was declared with another TYPE before; the first counts",
                quoted(name)
            ));
        }
        self.section = Section::Param(name.into());
    }

    fn power_model(&mut self, header: &Header<'_>) {
        let id = match header.get("ID") {
            Some(text) => match text.parse::<u32>() {
                Ok(id) => id,
                Err(_) => {
                    let what =
                        format!("POWER_MODEL with ID={}, expected a number; it is left out", quoted(text));
                    return self.warn(what);
                }
            },
            None => return self.warn("POWER_MODEL without ID=; it is left out".into()),
        };
        let name = match header.get("NAME").and_then(super::parse::label) {
            Some(name) => name,
            None => {
                self.warn(format!("mode {id} has no NAME=; it is called by its number"));
                id.to_string()
            }
        };
        if let Some(first) = self.modes.iter().find(|mode| mode.id == id) {
            if first.name.eq_ignore_ascii_case(&name) {
                let what = format!("ID={id} is that of line {} already; this mode is left out", first.line);
                return self.warn(what);
            }
            let what = format!("mode {} has ID={id} like {}; ask for it by name", quoted(&name), first.name);
            self.warn(what);
        }
        if self.modes.len() >= MOST_MODES {
            return self.warn(format!("more than {MOST_MODES} modes; this one is left out"));
        }
        if let Some(first) = self.modes.iter().find(|mode| mode.name.eq_ignore_ascii_case(&name)) {
            let what =
                format!("mode {id} is called {} like mode {}; ask for it by number", quoted(&name), first.id);
            self.warn(what);
        }
        self.section = Section::Mode(self.modes.len());
        self.modes.push(Mode { line: self.number, id, name, assignments: Vec::new() });
    }

    fn pm_config(&mut self, header: &Header<'_>) {
        let Some(id) = header.get("DEFAULT").and_then(|text| text.parse().ok()) else {
            return self.warn("PM_CONFIG without DEFAULT= and the number of a mode".into());
        };
        if let Some(first) = self.default_line {
            self.warn(format!("PM_CONFIG DEFAULT= was given in line {first} already; the last counts"));
        }
        self.default = Some(id);
        self.default_line = Some(self.number);
    }

    fn words(&mut self, words: &[&str]) {
        match &self.section {
            Section::Start => self.warn(format!("{} stands before any section", quoted(&words.join(" ")))),
            Section::Skipped => {}
            Section::Param(name) => {
                let name = name.clone();
                self.argument(&name, words);
            }
            Section::Mode(index) => {
                let index = *index;
                self.assignment(index, words);
            }
        }
    }

    /// A line below `PARAM`.
    fn argument(&mut self, name: &str, words: &[&str]) {
        let kind = self.params.get(name).map_or(Kind::File, |param| param.kind);
        let (arg, path) = match (kind, words) {
            (Kind::Hwmon, [arg, dir, file]) => (*arg, format!("{}/hwmon*/{file}", dir.trim_end_matches('/'))),
            (_, [arg, path]) => (*arg, (*path).to_owned()),
            _ => {
                let what =
                    format!("{} in PARAM {name}, expected an argument and a path", quoted(&words.join(" ")));
                return self.warn(what);
            }
        };
        // The files of a mode are read back: a path that climbs could name any file.
        if !path.starts_with('/') || path.split('/').any(|part| part == "..") {
            return self.warn(format!("{} in PARAM {name} is no absolute path", quoted(&path)));
        }
        if self.arguments >= MOST_ARGUMENTS {
            return self.warn(format!("more than {MOST_ARGUMENTS} arguments; this one is left out"));
        }
        let Some(param) = self.params.get_mut(name) else { return };
        let (base, newer) = arg.strip_suffix(NEWER).map_or((arg, false), |base| (base, true));
        let files = param.args.entry(base.to_owned()).or_default();
        let file = if newer { &mut files.newer } else { &mut files.older };
        match file {
            Some(first) if *first != path => {
                let what =
                    format!("{arg} of PARAM {name} stands for {} already; the first counts", quoted(first));
                self.warn(what);
            }
            Some(_) => {}
            None => {
                *file = Some(path);
                self.arguments += 1;
            }
        }
    }

    /// A line below `POWER_MODEL`.
    fn assignment(&mut self, index: usize, words: &[&str]) {
        let [param, arg, value, rest @ ..] = words else {
            let what = format!("{}, expected a parameter, an argument and a value", quoted(&words.join(" ")));
            return self.warn(what);
        };
        if !rest.is_empty() {
            let what = format!("{} after the value of {param} {arg} is left out", quoted(&rest.join(" ")));
            self.warn(what);
        }
        if self.modes.get(index).is_none_or(|mode| mode.assignments.len() >= MOST_SETTINGS) {
            return self.warn(format!("more than {MOST_SETTINGS} assignments; this one is left out"));
        }
        let setting = Setting {
            param: (*param).to_owned(),
            arg: (*arg).to_owned(),
            paths: Vec::new(),
            value: (*value).to_owned(),
        };
        if let Some(mode) = self.modes.get_mut(index) {
            mode.assignments.push(Assignment { line: self.number, setting });
        }
    }

    fn warn(&mut self, message: String) {
        self.warnings.add(Some(self.number), message);
    }

    fn finish(mut self) -> PowerModes {
        let chip = Chip::of(&self.params);
        let modes = std::mem::take(&mut self.modes);
        let modes: Vec<PowerMode> = modes.into_iter().map(|mode| self.mode(mode, chip)).collect();
        match (self.default, self.default_line) {
            (Some(id), line) if modes.iter().all(|mode| mode.id != id) => {
                self.warnings.add(
                    line,
                    format!("PM_CONFIG DEFAULT={id} is no mode of this file: nvpmodel fails at boot"),
                );
            }
            (None, _) => {
                let what = "no PM_CONFIG DEFAULT=: nothing says which mode is set at the first boot";
                self.warnings.add(None, what.into());
            }
            _ => {}
        }
        if modes.is_empty() {
            self.warnings.add(None, "no POWER_MODEL: this describes no power mode".into());
        }
        PowerModes {
            default: self.default,
            modes,
            warnings: self.warnings.finish(),
            source: "nvpmodel.conf".into(),
        }
    }

    /// A mode with the files of its settings and the caps that they make.
    fn mode(&mut self, mode: Mode, chip: Option<Chip>) -> PowerMode {
        let mut caps = assemble::Caps::default();
        let mut settings = Vec::new();
        for Assignment { line, mut setting } in mode.assignments {
            let declared = self.params.get(&setting.param);
            let base = setting.arg.strip_suffix(NEWER).unwrap_or(&setting.arg);
            let (param, arg) = (quoted(&setting.param), quoted(&setting.arg));
            match declared.map(|param| (param.kind, param.args.get(base))) {
                None => self.warnings.add(Some(line), format!("no PARAM {param} is declared in this file")),
                Some((_, None)) => {
                    self.warnings.add(Some(line), format!("PARAM {param} has no argument {arg}"));
                }
                Some((Kind::Clock, Some(_))) if base == "FREQ_TABLE" => {
                    self.warnings.add(Some(line), format!("{param} {arg} is a table to read; it is not set"));
                    continue;
                }
                Some((_, Some(files))) => {
                    setting.paths = files.older.iter().chain(&files.newer).cloned().collect();
                }
            }
            let undeclared = if base.ends_with("_FREQ") { Kind::Clock } else { Kind::File };
            match caps.note(&setting, declared.map_or(undeclared, |param| param.kind)) {
                Ok(()) => settings.push(setting),
                Err(why) => self.warnings.add(Some(line), why),
            }
        }
        let sm_online = caps.tpc_mask.zip(chip).and_then(|(mask, chip)| {
            let sm = chip.sm_online(mask);
            if sm.is_none() && chip.has_mask() {
                let what = format!(
                    "mode {}: TPC_PG_MASK {mask} leaves no cluster or names some that the chip has not",
                    mode.id
                );
                self.warnings.add(Some(mode.line), what);
            }
            sm
        });
        PowerMode {
            id: mode.id,
            name: mode.name,
            cores_online: caps.cores_online(),
            cpu_max: caps.cpu(),
            gpu_max: caps.gpu,
            memory_max: caps.memory,
            tpc_mask: caps.tpc_mask,
            sm_online,
            knob: Knob::Nvpmodel,
            settings,
        }
    }
}

/// The first warnings, and how many there were.
#[derive(Debug, Default)]
struct Warnings {
    kept: Vec<ModeWarning>,
    more: usize,
}

impl Warnings {
    fn add(&mut self, line: Option<usize>, message: String) {
        if self.kept.len() < MOST_WARNINGS {
            self.kept.push(ModeWarning { line, message });
        } else {
            self.more += 1;
        }
    }

    /// In the order of the file; what concerns all of it comes last.
    fn finish(mut self) -> Vec<ModeWarning> {
        self.kept.sort_by_key(|warning| warning.line.unwrap_or(usize::MAX));
        if self.more > 0 {
            self.kept.push(ModeWarning { line: None, message: format!("and {} more", self.more) });
        }
        self.kept
    }
}
