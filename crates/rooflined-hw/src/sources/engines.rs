//! Engines of a Tegra beside its CPUs and GPU: video, images, audio, encryption, vision, deep learning.
//!
//! ```text
//! /sys/class/devfreq/15480000.nvdec/  cur_freq  max_freq (Hz)  device/power/runtime_status      JetPack 6 and later
//! /sys/class/devfreq/gpu-nvd-0/       cur_freq  max_freq                                        Thor's video engines
//! /sys/kernel/debug/clk/dla0_core/    clk_rate  clk_max_rate (Hz)  clk_enable_count             for root only
//! ```

use crate::SysRoot;
use crate::answers::{Answers, EACH_SECOND, File, RARELY};
use crate::names::told_apart;
use crate::source::{DiscoveryContext, Plan, Reader, found};
use crate::state::{StateBuilder, detail};
use rooflined_core::board::details::Engine;
use rooflined_core::board::identity::Chip;
use rooflined_core::board::{Reading, parse};
use rooflined_core::units::Hertz;

const DEVFREQ: &str = "/sys/class/devfreq";
const CLOCKS: &str = "/sys/kernel/debug/clk";
/// How the nodes of engines begin.
const KINDS: [&str; 12] =
    ["ape", "cvnas", "dla", "msenc", "nvdec", "nvdla", "nvenc", "nvjpg", "ofa", "pva", "se", "vic"];
/// The second engine of a kind, which devfreq tells from the first by its address alone and the clocks by a number: of
/// Orin NVJPG1, of Xavier NVDEC1 and NVENC1.
const SECONDS: [(&str, &str); 3] =
    [("15540000.nvjpg", "nvjpg1"), ("15140000.nvdec", "nvdec1"), ("15a80000.nvenc", "nvenc1")];
/// More than any Tegra has.
const MOST: usize = 32;

struct Engines {
    found: Vec<Found>,
    /// Engines of the chip that no directory was found of.
    others: Vec<&'static str>,
}

struct Found {
    name: String,
    dir: String,
    /// Of the clock framework, else of devfreq.
    in_debugfs: bool,
}

impl Found {
    fn clock(&self) -> String {
        format!("{}/{}", self.dir, if self.in_debugfs { "clk_rate" } else { "cur_freq" })
    }

    fn cap(&self) -> String {
        format!("{}/{}", self.dir, if self.in_debugfs { "clk_max_rate" } else { "max_freq" })
    }

    fn on(&self) -> String {
        format!(
            "{}/{}",
            self.dir,
            if self.in_debugfs { "clk_enable_count" } else { "device/power/runtime_status" }
        )
    }

    fn is(&self, engine: &str) -> bool {
        // DLA0_CORE and DLA0_FALCON are both of DLA0.
        self.name.strip_prefix(engine).is_some_and(|rest| rest.is_empty() || rest.starts_with('_'))
    }
}

pub(super) fn discover(context: &DiscoveryContext<'_>, plan: &mut Plan) -> Option<Reader> {
    let Some(chip) = context.chip else {
        let none = format!("no engines with clocks of their own: {}", context.no_tegra);
        return found(move |_, state| detail!(state.engines = Reading::absent(&none), None));
    };
    let mut engines: Vec<Found> = in_devfreq(context.root);
    // What is found without root's rights needs no second look with them.
    let in_debugfs: Vec<Found> = in_debugfs(context.root)
        .into_iter()
        .filter(|engine| !engines.iter().any(|known| known.name == engine.name))
        .collect();
    engines.extend(in_debugfs);
    engines.sort_by(|a, b| a.name.cmp(&b.name));
    engines.truncate(MOST);
    let others = of_chip(chip).iter().copied();
    let others = others.filter(|name| !engines.iter().any(|engine| engine.is(name))).collect();
    let source = Engines { found: engines, others };
    for engine in &source.found {
        plan.add_origin("engines", format!("{}/*", if engine.in_debugfs { CLOCKS } else { DEVFREQ }));
        plan.read([
            File::of_driver(engine.clock()).every(EACH_SECOND),
            File::of_driver(engine.on()).every(EACH_SECOND),
            File::of_driver(engine.cap()).every(RARELY),
        ]);
    }
    plan.read(source.closed().map(|path| File::of_driver(path).every(RARELY)));
    found(move |answers, state| source.read(answers, state))
}

impl Engines {
    fn read(&self, answers: &Answers<'_>, state: &mut StateBuilder<'_>) {
        let mut engines: Vec<Engine> = self.found.iter().map(|engine| engine.read(answers)).collect();
        let why = self.closed().map(|path| match answers.text(&path) {
            // An engine that the clocks list has not is not there; one behind a closed directory may be.
            Err(error @ crate::ReadError::Denied { .. }) => (true, error.to_string()),
            Err(error) => (false, error.to_string()),
            Ok(_) => (false, format!("{CLOCKS} has no engine")),
        });
        if let Some((true, why)) = &why {
            let reason = format!("{why}; not every module has this engine");
            engines.extend(self.others.iter().map(|name| Engine {
                name: (*name).to_owned(),
                clock: Reading::absent(&reason),
                clock_cap: Reading::absent(&reason),
                on: Reading::absent(&reason),
                source: CLOCKS.to_owned(),
            }));
        }
        for (engine, name) in
            told_apart(engines.iter().map(|engine| engine.name.clone())).into_iter().enumerate()
        {
            engines[engine].name = name;
        }
        let reading = if engines.is_empty() {
            let why = why.map(|(_, why)| format!("; {why}")).unwrap_or_default();
            Reading::absent(format!("no *.nvdec, *.vic and the like in {DEVFREQ}{why}"))
        } else {
            Reading::Known(engines)
        };
        let timer = self.found.first().map(Found::clock).or_else(|| self.closed());
        detail!(state.engines = reading, Some(answers.read_at(&timer.unwrap_or_default())));
    }

    /// A file that says whether debugfs may be read, where some engine is missing.
    fn closed(&self) -> Option<String> {
        self.others.first().map(|engine| format!("{CLOCKS}/{}/clk_rate", engine.to_ascii_lowercase()))
    }
}

impl Found {
    fn read(&self, answers: &Answers<'_>) -> Engine {
        let clock = match answers.text(&self.clock()) {
            Ok(text) if parse::unsigned(text) == Some(0) => {
                Reading::absent(format!("{} holds 0: it is off", self.clock()))
            }
            _ => answers.value(&self.clock(), "a clock in Hz", parse::hertz),
        };
        let on = match (self.in_debugfs, &clock) {
            (true, _) => answers.value(&self.on(), "a count", parse::unsigned).map(|count| count > 0),
            (false, clock) => match answers.value(&self.on(), "active or suspended", status) {
                // Without power management of its own it runs whenever it has a clock.
                Reading::Absent { .. } if clock.known().is_some() => Reading::Known(true),
                other => other,
            },
        };
        Engine {
            name: self.name.clone(),
            clock,
            clock_cap: self.read_cap(answers),
            on,
            source: self.dir.clone(),
        }
    }

    fn read_cap(&self, answers: &Answers<'_>) -> Reading<Hertz> {
        let path = self.cap();
        match answers.text(&path) {
            // All bits set: the clock framework knows no limit.
            Ok(text) if self.in_debugfs && parse::unsigned(text) == Some(u64::MAX) => {
                Reading::absent(format!("{path} sets no limit"))
            }
            _ => answers.value(&path, "a clock in Hz", parse::hertz),
        }
    }
}

fn status(text: &str) -> Option<bool> {
    match text.trim() {
        "active" | "resuming" | "suspending" => Some(true),
        "suspended" => Some(false),
        _ => None,
    }
}

/// `15480000.nvdec` and so on; on Thor the video engines share `gpu-nvd-N`.
fn in_devfreq(root: &SysRoot) -> Vec<Found> {
    let engine = |name: String| {
        let node = match name.strip_prefix("gpu-nvd-") {
            Some(number) => format!("nvd{number}"),
            None => match SECONDS.iter().find(|(second, _)| *second == name) {
                Some((_, node)) => (*node).to_owned(),
                None => {
                    name.split_once('.').map(|(_, node)| node.to_owned()).filter(|node| is_engine(node))?
                }
            },
        };
        Some(Found { name: node.to_ascii_uppercase(), dir: format!("{DEVFREQ}/{name}"), in_debugfs: false })
    };
    let found: Vec<Found> = root.names(DEVFREQ).into_iter().filter_map(engine).collect();
    // Further engines of one kind have addresses of their own and one name.
    let names = told_apart(found.iter().map(|engine| engine.name.clone()));
    found.into_iter().zip(names).map(|(engine, name)| Found { name, ..engine }).collect()
}

fn in_debugfs(root: &SysRoot) -> Vec<Found> {
    let names = root.names(CLOCKS).into_iter().filter(|name| is_engine(name) && !name.contains('.'));
    let found = names.map(|name| Found {
        name: name.to_ascii_uppercase(),
        dir: format!("{CLOCKS}/{name}"),
        in_debugfs: true,
    });
    found.collect()
}

fn is_engine(node: &str) -> bool {
    // `se` begins many a word.
    KINDS.iter().any(|kind| match *kind {
        "se" => node == "se",
        kind => node.starts_with(kind),
    })
}

/// Engines of a chip, whether or not its modules have all of them.
const fn of_chip(chip: Chip) -> &'static [&'static str] {
    match chip {
        Chip::Tegra194 => &["APE", "DLA0", "DLA1", "NVDEC", "NVENC", "NVJPG", "PVA0", "PVA1", "SE", "VIC"],
        Chip::Tegra234 => &["APE", "DLA0", "DLA1", "NVDEC", "NVENC", "NVJPG", "OFA", "PVA0", "SE", "VIC"],
        Chip::Tegra264 => &["APE", "OFA", "PVA0", "SE", "VIC"],
        Chip::Tegra186 | Chip::Other => &[],
    }
}
