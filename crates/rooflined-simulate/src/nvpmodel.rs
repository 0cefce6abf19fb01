//! A fake of the program nvpmodel: the same dialogue and the same writes in the same order, below a simulated
//! root, with faults to choose from in `rooflined/faults`.

use std::io::{self, BufRead, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

use super::conf::{Conf, Model};
use super::kernel::{read, store, write};
use super::spec::Spec;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Status(u8),
    /// It is killed half-way.
    Died,
}

const FAILED: Ending = Ending::Status(255);
const STATUS: &str = "/var/lib/nvpmodel/status";
const CONF: &str = "/etc/nvpmodel.conf";
/// What a hanging program waits for its end.
const HANG: Duration = Duration::from_secs(3600);
const SLOW: Duration = Duration::from_secs(2);

/// What goes wrong, by the words of `rooflined/faults`.
#[derive(Debug, Clone, Copy, Default)]
struct Faults {
    silent: bool,
    hang: bool,
    status_only: bool,
    half: bool,
    slow: bool,
}

impl Faults {
    fn of(root: &Path) -> Self {
        let text = read(root, "/rooflined/faults").unwrap_or_default();
        let has = |word: &str| text.split_whitespace().any(|found| found == word);
        Self {
            silent: has("silent"),
            hang: has("hang"),
            status_only: has("status_only"),
            half: has("half"),
            slow: has("slow"),
        }
    }
}

#[derive(Default)]
struct Request {
    query: bool,
    print: bool,
    verbose: bool,
    mode: Option<String>,
    conf: Option<String>,
    help: bool,
    unknown: Option<String>,
}

impl Request {
    fn parse(args: &[String]) -> Self {
        let mut request = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "-q" | "--query" => request.query = true,
                "-p" | "--parse" => request.print = true,
                "--verbose" => request.verbose = true,
                "-m" | "--mode" => request.mode = Some(args.next().cloned().unwrap_or_default()),
                "-f" | "--file" => request.conf = Some(args.next().cloned().unwrap_or_default()),
                "-h" | "--help" => request.help = true,
                other => request.unknown = Some(other.to_owned()),
            }
        }
        request
    }
}

/// Runs it. `error` is where the lines with `ERROR` go.
///
/// # Errors
/// Its output is closed.
pub(super) fn run(
    spec: &Spec,
    root: &Path,
    args: &[String],
    input: &mut dyn BufRead,
    out: &mut dyn Write,
    error: &mut dyn Write,
) -> io::Result<Ending> {
    let request = Request::parse(args);
    if let Some(unknown) = request.unknown {
        writeln!(error, "NVPM ERROR: unknown option {unknown}")?;
        return Ok(FAILED);
    }
    if request.help || (!request.query && !request.print && request.mode.is_none() && request.conf.is_none())
    {
        writeln!(out, "usage: nvpmodel [-q] [-p] [-m MODE] [-f FILE] [--verbose]")?;
        return Ok(Ending::Status(0));
    }
    let path = request.conf.as_deref().unwrap_or(CONF);
    let Some(text) = read(root, path) else {
        writeln!(error, "NVPM ERROR: failed to open {path}")?;
        return Ok(FAILED);
    };
    let conf = Conf::parse(&text);
    let tool = Tool { spec, root, conf, path, faults: Faults::of(root) };
    if request.print {
        return tool.print(out);
    }
    if request.query {
        return tool.query(request.verbose, out, error);
    }
    match &request.mode {
        Some(asked) => {
            let model = asked.parse().ok().and_then(|id| tool.conf.model(id)).cloned();
            let Some(model) = model else {
                writeln!(error, "NVPM ERROR: Invalid power mode: {asked}")?;
                return Ok(FAILED);
            };
            tool.enter(&model, input, out, error)
        }
        // As at boot: the saved mode if there is one, else the default.
        None => match tool.boot_mode().and_then(|id| tool.conf.model(id)).cloned() {
            Some(model) => tool.apply(&model, error),
            None => {
                writeln!(error, "NVPM ERROR: no valid power mode to start with")?;
                Ok(FAILED)
            }
        },
    }
}

/// The mode of the status file; `None` without one.
pub(super) fn saved_mode(root: &Path) -> Option<u32> {
    let text = read(root, STATUS)?;
    text.split_whitespace().find_map(|word| word.strip_prefix("pmode:"))?.parse().ok()
}

/// What the boot service does: enters the saved mode, gated units included.
pub(super) fn boot(spec: &Spec, root: &Path) -> io::Result<()> {
    let conf = Conf::parse(&read(root, CONF).unwrap_or_default());
    let saved = saved_mode(root).filter(|id| conf.model(*id).is_some()).or(conf.default);
    let Some(model) = saved.and_then(|id| conf.model(id)).cloned() else { return Ok(()) };
    let tool = Tool { spec, root, conf, path: CONF, faults: Faults::default() };
    for (path, value) in tool.writes(&model) {
        // A file that the mode itself takes away, or that the board lacks, is passed over as the service does.
        if let Err(error) = store(spec, root, &path, &value)
            && error.kind() == io::ErrorKind::StorageFull
        {
            return Err(error);
        }
    }
    Ok(())
}

struct Tool<'a> {
    spec: &'a Spec,
    root: &'a Path,
    conf: Conf,
    path: &'a str,
    faults: Faults,
}

impl Tool<'_> {
    fn boot_mode(&self) -> Option<u32> {
        saved_mode(self.root).filter(|id| self.conf.model(*id).is_some()).or(self.conf.default)
    }

    /// The first path of an argument that exists here.
    fn path_of(&self, param: &str, arg: &str) -> Option<String> {
        let paths = self.conf.paths(param, arg);
        let exists = |path: &&&str| super::kernel::place(self.root, path).exists();
        paths.iter().find(exists).or(paths.first()).map(|path| (*path).to_owned())
    }

    /// The files and values of a mode, in the order of the file.
    fn writes(&self, model: &Model) -> Vec<(String, String)> {
        let settings = model.settings.iter();
        settings.filter_map(|[param, arg, value]| Some((self.path_of(param, arg)?, value.clone()))).collect()
    }

    /// A value of the file as the program prints it: without a cap it is the largest integer.
    fn printed(&self, param: &str, value: &str) -> String {
        let uncapped = self.conf.is_clock(param) && value == "-1";
        if uncapped { self.spec.uncapped_clock.to_string() } else { value.to_owned() }
    }

    fn query(&self, verbose: bool, out: &mut dyn Write, error: &mut dyn Write) -> io::Result<Ending> {
        let Some(model) = self.boot_mode().and_then(|id| self.conf.model(id)) else {
            writeln!(error, "NVPM ERROR: no power mode is configured")?;
            return Ok(FAILED);
        };
        if !verbose {
            writeln!(out, "NV Power Mode: {}\n{}", model.name, model.id)?;
            return Ok(Ending::Status(0));
        }
        writeln!(out, "NVPM VERB: Config file: {}", self.path)?;
        writeln!(out, "NVPM VERB: parsing done for {}", self.path)?;
        writeln!(out, "NVPM VERB: Current mode: NV Power Mode: {}\n{}", model.name, model.id)?;
        for [param, arg, value] in &model.settings {
            let Some(path) = self.path_of(param, arg) else { continue };
            let real = read(self.root, &path).unwrap_or_default();
            let wanted = self.printed(param, value);
            writeln!(
                out,
                "NVPM VERB: PARAM {param}: ARG {arg}: PATH {path}: REAL_VAL: {real} CONF_VAL: {wanted}"
            )?;
        }
        Ok(Ending::Status(0))
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<Ending> {
        writeln!(out, "NVPM VERB: parsing done for {}", self.path)?;
        if let Some(id) = self.conf.default {
            let name = self.conf.model(id).map_or("", |model| model.name.as_str());
            writeln!(out, "NVPM VERB: PM_CONFIG: DEFAULT={name}({id})")?;
        }
        for param in &self.conf.params {
            let kind = if param.clock { "CLOCK" } else { "FILE" };
            writeln!(out, "NVPM VERB: \nNVPM VERB: PARAM TYPE={kind} NAME={}", param.name)?;
            for (arg, path) in &param.args {
                writeln!(out, "NVPM VERB: {arg} {path}")?;
            }
        }
        for model in &self.conf.models {
            writeln!(out, "NVPM VERB: \nNVPM VERB: POWER_MODEL: ID={} NAME={}", model.id, model.name)?;
            for [param, arg, value] in &model.settings {
                writeln!(out, "NVPM VERB: {param} {arg} {value}")?;
            }
        }
        Ok(Ending::Status(0))
    }

    /// Whether a unit would have to be gated or released that cannot be while the GPU has a context.
    fn needs_reboot(&self, model: &Model) -> bool {
        model.settings.iter().any(|[param, arg, value]| {
            arg.ends_with("_PG_MASK")
                && self
                    .path_of(param, arg)
                    .and_then(|path| read(self.root, &path))
                    .is_some_and(|live| live != *value)
        })
    }

    fn enter(
        &self,
        model: &Model,
        input: &mut dyn BufRead,
        out: &mut dyn Write,
        error: &mut dyn Write,
    ) -> io::Result<Ending> {
        if self.faults.slow {
            thread::sleep(SLOW);
        }
        if self.faults.hang {
            thread::sleep(HANG);
        }
        if self.faults.silent {
            return Ok(Ending::Status(0));
        }
        if self.faults.status_only {
            self.save(model)?;
            return Ok(Ending::Status(0));
        }
        if !self.needs_reboot(model) {
            return self.apply(model, error);
        }
        writeln!(out, "NVPM WARN: Golden image context is already created")?;
        writeln!(out, "NVPM WARN: Reboot required for changing to this power mode: {}", model.id)?;
        writeln!(out, "NVPM WARN: DO YOU WANT TO REBOOT NOW? enter YES/yes to confirm:")?;
        out.flush()?;
        let mut answer = String::new();
        // What is no text is no consent.
        if matches!(input.read_line(&mut answer), Ok(1..)) && ["YES", "yes"].contains(&answer.trim_end()) {
            writeln!(out, "NVPM WARN: rebooting")?;
            return Ok(Ending::Status(0));
        }
        writeln!(error, "NVPM ERROR: bad input!")?;
        writeln!(error, "NVPM ERROR: optMask is 1, no request for power mode")?;
        Ok(FAILED)
    }

    fn apply(&self, model: &Model, error: &mut dyn Write) -> io::Result<Ending> {
        let writes = self.writes(model);
        for (done, (path, value)) in writes.iter().enumerate() {
            if self.faults.half && done >= writes.len() / 2 {
                return Ok(Ending::Died);
            }
            if let Err(problem) = store(self.spec, self.root, path, value) {
                writeln!(error, "NVPM ERROR: Error writing {value} to {path}: {problem}")?;
                return Ok(FAILED);
            }
        }
        self.save(model)?;
        Ok(Ending::Status(0))
    }

    fn save(&self, model: &Model) -> io::Result<()> {
        let line = format!("pmode:{:04}", model.id);
        match write(self.root, STATUS, &line) {
            // A fresh board has none.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::write(super::kernel::place(self.root, STATUS), format!("{line}\n"))
            }
            outcome => outcome,
        }
    }
}
