//! `mode list --conf`: the power modes of a file.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::OFlags;
use serde::Serialize;

use super::failure::Failure;
use super::output::{Format, Printer};
use super::table::Table;
use rooflined_core::board::{ClockBounds, ModeWarning, PowerMode, PowerModes, nvpmodel};
use rooflined_core::units::Hertz;

/// Largest file read; those that are shipped have about 20 kB.
const LARGEST_FILE: u64 = 4 << 20;

/// `mode list --conf FILE`: what the file says, on any machine.
pub fn list(printer: &Printer, conf: &Path) -> Result<(), Failure> {
    let modes = read(conf)?;
    let answer = ListAnswer::of(&modes);
    match printer.format {
        Format::Human if modes.modes.is_empty() => {
            Err(Failure::wrong_file(format!("{} describes no power mode", modes.source), A_CONF))
        }
        Format::Human => printer.text(&in_words(&modes)),
        Format::Json => printer.json(text_of(serde_json::to_string(&answer))?.as_bytes()),
        _ => printer.value("mode", &text_of(serde_json::to_value(&answer))?),
    }
}

fn text_of<T>(result: serde_json::Result<T>) -> Result<T, Failure> {
    result.map_err(|error| Failure::failed(format!("the answer cannot be written: {error}"), "report this"))
}

/// `mode list --conf FILE -o json`. A cap that the file does not set is null.
#[derive(Debug, Serialize)]
struct ListAnswer<'a> {
    default: Option<u32>,
    modes: Vec<ModeRow<'a>>,
    warnings: &'a [ModeWarning],
}

#[derive(Debug, Serialize)]
struct ModeRow<'a> {
    id: u32,
    name: &'a str,
    cores_online: Option<u32>,
    cpu_min_hz: Option<u64>,
    cpu_max_hz: Option<u64>,
    gpu_min_hz: Option<u64>,
    gpu_max_hz: Option<u64>,
    emc_max_hz: Option<u64>,
    other_clocks: Vec<ClockRow>,
    tpc_mask: Option<u32>,
    sm_online: Option<u32>,
    /// Always null: a file does not say what is live.
    reboot_required: Option<bool>,
}

/// Bounds on a clock that has no key of its own: DLA, PVA, video engines.
#[derive(Debug, Serialize)]
struct ClockRow {
    name: String,
    min_hz: Option<u64>,
    max_hz: Option<u64>,
}

impl<'a> ListAnswer<'a> {
    fn of(modes: &'a PowerModes) -> Self {
        let row = |mode: &'a PowerMode| ModeRow {
            id: mode.id,
            name: &mode.name,
            cores_online: mode.cores_online,
            cpu_min_hz: mode.min_clock(ClockBounds::is_cpu).map(whole),
            cpu_max_hz: mode.cpu_max.map(whole),
            gpu_min_hz: mode.min_clock(|clock| clock.name == "GPU").map(whole),
            gpu_max_hz: mode.gpu_max.map(whole),
            emc_max_hz: mode.memory_max.map(whole),
            other_clocks: mode
                .other_clocks()
                .into_iter()
                .map(|clock| ClockRow {
                    name: clock.name,
                    min_hz: clock.min.map(whole),
                    max_hz: clock.max.map(whole),
                })
                .collect(),
            tpc_mask: mode.tpc_mask,
            sm_online: mode.sm_online,
            reboot_required: None,
        };
        Self {
            default: modes.default,
            modes: modes.modes.iter().map(row).collect(),
            warnings: &modes.warnings,
        }
    }
}

/// Clocks come from whole numbers of Hz and are small enough to be exact.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clocks are positive and below 2^53 Hz"
)]
fn whole(clock: Hertz) -> u64 {
    clock.get() as u64
}

/// Reads a file of modes, `-` for standard input.
fn read(conf: &Path) -> Result<PowerModes, Failure> {
    let name = if conf == Path::new("-") { "standard input".to_owned() } else { conf.display().to_string() };
    let refused = |what: String, hint: &str| Err(Failure::wrong_file(format!("{name} {what}"), hint));
    let bytes = match bytes(conf) {
        Ok(bytes) => bytes,
        Err(error) => return refused(format!("cannot be read: {error}"), hint_of(&error)),
    };
    if bytes.len() as u64 > LARGEST_FILE {
        let what = format!("has more than {} MiB: it is not a file of power modes", LARGEST_FILE >> 20);
        return refused(what, A_CONF);
    }
    let mut modes = nvpmodel::parse(&String::from_utf8_lossy(&bytes));
    modes.source.clone_from(&name);
    let is_text = !bytes.contains(&0) && std::str::from_utf8(&bytes).is_ok();
    if modes.modes.is_empty() && !is_text {
        return refused("is binary: it is not a file of power modes".into(), A_CONF);
    }
    Ok(modes)
}

const A_CONF: &str =
    "on a Jetson the file is /etc/nvpmodel.conf; those of other modules are in /etc/nvpmodel";

fn hint_of(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "run it as a user who may read the file, or copy the file: sudo cat FILE > copy"
        }
        _ => A_CONF,
    }
}

/// At most a byte more than the largest file. Never waits for the writer of a FIFO.
fn bytes(conf: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if conf == Path::new("-") {
        io::stdin().lock().take(LARGEST_FILE + 1).read_to_end(&mut bytes)?;
        return Ok(bytes);
    }
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(conf)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a regular file; to read a pipe, give - for standard input"));
    }
    file.take(LARGEST_FILE + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn in_words(modes: &PowerModes) -> String {
    let mut table = Table::new(&[">id", "name", ">cores", ">CPU MHz", ">GPU MHz", ">memory MHz", ">SM", ""]);
    for mode in &modes.modes {
        let count = |value: Option<u32>| value.map_or_else(|| NOT_SET.to_owned(), |value| value.to_string());
        let default = if modes.default == Some(mode.id) { "default" } else { "" };
        table.row([
            mode.id.to_string(),
            mode.name.clone(),
            count(mode.cores_online),
            megahertz(mode.cpu_max),
            megahertz(mode.gpu_max),
            megahertz(mode.memory_max),
            count(mode.sm_online),
            default.to_owned(),
        ]);
    }
    let mut text = String::new();
    if !modes.modes.is_empty() {
        text += &format!(
            "{}{NOT_SET} the file sets none: the hardware's own limit, or unknown\n",
            table.render()
        );
    }
    for warning in &modes.warnings {
        text += &match warning.line {
            Some(line) => format!("{}:{line}: {}\n", modes.source, warning.message),
            None => format!("{}: {}\n", modes.source, warning.message),
        };
    }
    text
}

const NOT_SET: &str = "–";

/// All digits of a cap: `624.75` and `1300.5` are values of the tables.
fn megahertz(clock: Option<Hertz>) -> String {
    clock.map_or_else(|| NOT_SET.to_owned(), |clock| (clock.get() / 1e6).to_string())
}
