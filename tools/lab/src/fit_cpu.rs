//! `fit-cpu-engines`: engine costs on CPUs from measured runs.
//!
//! What is assumed before the runs stands in `cpu_priors/`. A processor with runs gets costs of its own: the maximum a posteriori
//! of the same fit that learns from observed runs, so formats are pooled by what all that the cores do has in common (`core`), by
//! few rows and by what a format has of its own; a number of threads and a file differ at random. A processor without runs whose
//! cycles are a multiple of a measured one's gets what the measured ones differ by on average, and as much more doubt; one like a
//! fitted processor is carried from it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::args::FitCpuEnginesArgs;
use super::{cpu_rows, rounded};
use rooflinectl::failure::Failure;
use rooflinectl::output::Printer;
use rooflined_predict::Engine;
use rooflined_predict::cpu::{
    Coefficient, CpuCosts, Entry, FILES, File, Host, Kernel, KernelEntry, Processor, ProcessorFile, ROWS,
    Scalar,
};
use rooflined_predict::learning::cpu::FittedCpu;
use rooflined_predict::learning::models::Measured;

/// What is known of each engine before the rows.
const PRIORS: [(&str, &str); 3] = [
    ("llama.cpp", include_str!("cpu_priors/llama.cpp.toml")),
    ("onnxruntime", include_str!("cpu_priors/onnxruntime.toml")),
    ("torch", include_str!("cpu_priors/torch.toml")),
];

/// Machines of one kind of processor differ by as much: standard deviations of the logarithm of everything, and of few rows.
const CORE_LOG_SD: f64 = 0.1;
const ONE_ROW_LOG_SD: f64 = 0.08;
/// No coefficient is known better than this for another machine of the kind: those of memory, of kernels, and the others.
const LEAST_BANDWIDTH_LOG_SD: f64 = 0.05;
const LEAST_KERNEL_LOG_SD: f64 = 0.06;
const LEAST_LOG_SD: f64 = 0.15;

/// What cores that share a cache differ by from cores that share none, where only one of the two was measured.
const OTHER_REGIME_LOG_SD: f64 = 0.2;
/// What a processor that nobody measured differs by from one that was, in each kernel and scalar.
const CARRIED_LOG_SD: f64 = 0.25;

/// Storage that takes no fewer cycles than other storage: it has as much to unpack and more.
const ORDER: [(Kernel, Kernel); 7] = [
    (Kernel::Q4, Kernel::Q4Offset),
    (Kernel::Q4, Kernel::Q5),
    (Kernel::Q5, Kernel::Q5Offset),
    (Kernel::Q4K, Kernel::Q5K),
    (Kernel::Q4, Kernel::Iq4Nl),
    (Kernel::Q4, Kernel::Mxfp4),
    (Kernel::Q4K, Kernel::Iq4Xs),
];

/// Kernels that every measured processor has rows of: the processors are held against each other by them.
const COMMON: [Kernel; 4] = [Kernel::F16, Kernel::Q8, Kernel::Q4, Kernel::Q4K];

const BANDWIDTHS: [Scalar; 3] = [Scalar::BandwidthOneThread, Scalar::Bandwidth, Scalar::BandwidthFar];

/// The scalars that a section can say of its own.
const SCALARS: [Scalar; 10] = [
    Scalar::QuantisedCache,
    Scalar::ManyThreads,
    Scalar::BandwidthOneThread,
    Scalar::Bandwidth,
    Scalar::BandwidthFar,
    Scalar::Layer,
    Scalar::Barrier,
    Scalar::BarrierFar,
    Scalar::Quantise,
    Scalar::QuantiseSuper,
];

fn entry(value: f64, log_sd: f64) -> Entry {
    (rounded(value), rounded(log_sd))
}

fn prior(engine: Engine) -> Option<File> {
    let (_, text) = PRIORS.iter().find(|(key, _)| *key == engine.key())?;
    File::read(text).ok()
}

/// The costs of `engine` on a processor by `runs` of it there; `None` without a prior.
pub fn costs(engine: Engine, processor: Processor, runs: &[Measured]) -> Option<CpuCosts> {
    let mut table = file(engine, runs)?.costs().ok()?;
    table.remove(&processor).or_else(|| table.remove(&Processor::Other))
}

/// The file of an engine: its prior, moved by `runs`.
fn file(engine: Engine, runs: &[Measured]) -> Option<File> {
    let prior = prior(engine)?;
    let mut file = prior.clone();
    let mut fitted: BTreeMap<&str, ProcessorFile> = BTreeMap::new();
    for processor in Processor::ALL {
        let of: Vec<&Measured> =
            runs.iter().filter(|run| run.cpu.is_some_and(|host| host.processor == processor)).collect();
        if let (false, Some(section)) = (of.is_empty(), of_processor(engine, &prior, processor, &of)) {
            fitted.insert(processor.key(), section);
        }
    }
    for (key, section) in &fitted {
        file.processors.insert((*key).to_owned(), section.clone());
    }
    carry(&mut file, &fitted);
    // What is like a processor that nobody measured is no better known than any.
    let known: Vec<String> =
        file.processors.iter().filter(|(_, of)| of.like.is_none()).map(|(key, _)| key.clone()).collect();
    file.processors.retain(|_, of| of.like.as_ref().is_none_or(|like| known.contains(like)));
    Some(file)
}

/// A processor's section by its own runs.
fn of_processor(
    engine: Engine,
    prior: &File,
    processor: Processor,
    runs: &[&Measured],
) -> Option<ProcessorFile> {
    let known = prior.costs_on(processor).or_else(|_| prior.costs_on(Processor::Other)).ok()?;
    // As long as the program runs: one for every fit.
    let known: &'static CpuCosts = Box::leak(Box::new(known));
    let start = |run: &&Measured| Measured {
        cpu: run.cpu.map(|host| Host { costs: Some(known), ..host }),
        ..(*run).clone()
    };
    let runs: Vec<Measured> = runs.iter().map(start).collect();
    let fit = FittedCpu::of_runs(engine, &runs)?;
    let of = |product: &[Coefficient]| -> f64 { product.iter().map(|one| fit.costs.get(*one)).product() };
    let core = Coefficient::Scalar(Scalar::Core);
    let scalar = |scalar: Scalar, with_core: bool, least: f64| {
        let one = Coefficient::Scalar(scalar);
        let product: Vec<Coefficient> = [one].into_iter().chain(with_core.then_some(core)).collect();
        entry(of(&product), fit.log_sd_of(&product).max(least))
    };
    let mut tables = BTreeMap::new();
    let named = named_kernels(prior, processor);
    for kernel in Kernel::ALL.iter().filter(|kernel| named.contains(&kernel.key())) {
        let at = |place: usize| {
            let few = [
                core,
                Coefficient::Scalar(Scalar::OneRow),
                Coefficient::FewRows(*kernel),
                Coefficient::Cycles(*kernel, place),
            ];
            let many = [core, Coefficient::ManyRows(*kernel), Coefficient::Cycles(*kernel, place)];
            if ROWS[place] < 4.0 { few.to_vec() } else { many.to_vec() }
        };
        let mut row: KernelEntry = [0.0; ROWS.len() + 2];
        for (place, cycles) in row.iter_mut().take(ROWS.len()).enumerate() {
            *cycles = of(&at(place));
        }
        let last = ROWS.len() - 1;
        row[ROWS.len()] = fit.log_sd_of(&at(0)).max(LEAST_KERNEL_LOG_SD);
        row[ROWS.len() + 1] = fit.log_sd_of(&at(last)).max(LEAST_KERNEL_LOG_SD);
        tables.insert(*kernel, row);
    }
    put_in_order(&mut tables, |kernel| {
        fit.saw(Coefficient::FewRows(kernel)) || fit.saw(Coefficient::ManyRows(kernel))
    });
    let of_itself = SCALARS.iter().filter(|one| fit.saw(Coefficient::Scalar(**one))).map(|one| {
        let least = match *one {
            one if one == Scalar::ManyThreads || BANDWIDTHS.contains(&one) => LEAST_BANDWIDTH_LOG_SD,
            _ => LEAST_LOG_SD,
        };
        let value = scalar(*one, *one == Scalar::Layer, least);
        // No engine streams more than the reference read.
        let most = if BANDWIDTHS.contains(one) { 1.0 } else { f64::INFINITY };
        (one.key().to_owned(), (value.0.min(most), value.1))
    });
    // What no run tells is as it was.
    let section = prior.processors.get(processor.key());
    let mut scalars = section.map(|of| of.scalars.clone()).unwrap_or_default();
    scalars.extend(of_itself);
    // Runs of one regime say more of the other than runs of another processor do.
    for (near, far) in [(Scalar::Bandwidth, Scalar::BandwidthFar), (Scalar::Barrier, Scalar::BarrierFar)] {
        for (seen, other) in [(near, far), (far, near)] {
            let known = scalars.get(seen.key()).filter(|_| !scalars.contains_key(other.key())).copied();
            if let Some((value, log_sd)) = known {
                scalars.insert(other.key().to_owned(), entry(value, log_sd.hypot(OTHER_REGIME_LOG_SD)));
            }
        }
    }
    Some(ProcessorFile {
        source: "fitted to the runs of tools/lab/data".to_owned(),
        rows: u32::try_from(runs.len()).ok(),
        like: None,
        core: (1.0, CORE_LOG_SD),
        one_row_ratio: Some((1.0, ONE_ROW_LOG_SD)),
        attention_cycles: scalar(Scalar::Attention, true, LEAST_LOG_SD),
        prompt_attention_ratio: scalar(Scalar::PromptAttention, true, LEAST_LOG_SD),
        each_log_sd: None,
        rows_log_sd: None,
        many_rows_ratio: None,
        scalars,
        cycles_per_weight: tables
            .into_iter()
            .map(|(kernel, row)| (kernel.key().to_owned(), row.map(rounded)))
            .collect(),
    })
}

/// The kernels that a prior names for a processor, or for the one that it is like.
fn named_kernels(prior: &File, processor: Processor) -> Vec<&str> {
    let section = prior.processors.get(processor.key());
    let section = section.or_else(|| prior.processors.get(Processor::Other.key()));
    let source =
        section.and_then(|of| of.like.as_ref()).and_then(|like| prior.processors.get(like)).or(section);
    source.map(|of| of.cycles_per_weight.keys().map(String::as_str).collect()).unwrap_or_default()
}

/// Storage without a run takes at least what other storage does that has less to unpack.
fn put_in_order(tables: &mut BTreeMap<Kernel, KernelEntry>, saw: impl Fn(Kernel) -> bool) {
    for (less, more) in ORDER {
        let Some(below) = tables.get(&less).copied() else { continue };
        let Some(row) = tables.get_mut(&more).filter(|_| !saw(more)) else { continue };
        for (cycles, least) in row.iter_mut().zip(below).take(ROWS.len()) {
            *cycles = cycles.max(least);
        }
    }
}

/// Mean of some logarithms and the standard deviation of one of them.
fn spread(logs: &[f64]) -> (f64, f64) {
    #[expect(clippy::cast_precision_loss, reason = "a count of processors")]
    let count = logs.len().max(1) as f64;
    let mean = logs.iter().sum::<f64>() / count;
    let squares: f64 = logs.iter().map(|log| (log - mean).powi(2)).sum();
    (mean, (squares / (count - 1.0).max(1.0)).sqrt())
}

/// What was fitted, carried to the processors without runs.
fn carry(file: &mut File, fitted: &BTreeMap<&str, ProcessorFile>) {
    if fitted.is_empty() {
        return;
    }
    let measured: BTreeMap<String, ProcessorFile> = file
        .processors
        .iter()
        .filter(|(key, of)| of.like.is_none() && key.as_str() != Processor::Other.key())
        .map(|(key, of)| (key.clone(), of.clone()))
        .collect();
    let attention: Vec<f64> = measured.values().map(|of| of.attention_cycles.0.ln()).collect();
    let in_prompts: Vec<f64> = measured.values().map(|of| of.prompt_attention_ratio.0.ln()).collect();
    for (key, of) in &mut file.processors {
        if measured.contains_key(key) {
            continue;
        }
        let widened = |(value, log_sd): Entry, by: f64| entry(value, log_sd.hypot(by));
        let like = of.like.clone().filter(|like| measured.contains_key(like));
        let near = like.as_ref().and_then(|like| fitted.get(like.as_str()));
        if let Some(near) = near {
            of.scalars =
                near.scalars.iter().map(|(key, of)| (key.clone(), widened(*of, LEAST_LOG_SD))).collect();
            of.attention_cycles = entry(near.attention_cycles.0, of.attention_cycles.1);
            of.prompt_attention_ratio = entry(near.prompt_attention_ratio.0, of.prompt_attention_ratio.1);
            continue;
        }
        let Some(like) = like else {
            // Assumed until now without any measurement: the first measured processor is the better guess.
            let Some((source, near)) = fitted.iter().next() else { continue };
            of.like = Some((*source).to_owned());
            of.each_log_sd = Some(CARRIED_LOG_SD);
            of.one_row_ratio = Some(of.one_row_ratio.unwrap_or((1.0, 0.4)));
            of.attention_cycles = entry(near.attention_cycles.0, of.attention_cycles.1);
            of.prompt_attention_ratio = entry(near.prompt_attention_ratio.0, of.prompt_attention_ratio.1);
            of.scalars =
                near.scalars.iter().map(|(key, of)| (key.clone(), widened(*of, CARRIED_LOG_SD))).collect();
            of.cycles_per_weight.clear();
            continue;
        };
        let base = &measured[&like];
        let differences = |place: usize| -> Vec<f64> {
            let ratio = |other: &ProcessorFile| -> f64 {
                let logs: Vec<f64> = COMMON
                    .iter()
                    .filter_map(|kernel| {
                        let of = |file: &ProcessorFile| {
                            Some(file.cycles_per_weight.get(kernel.key())?[place].ln())
                        };
                        Some(of(other)? - of(base)?)
                    })
                    .collect();
                spread(&logs).0
            };
            measured.values().map(ratio).collect()
        };
        let (few, many) = (differences(0), differences(ROWS.len() - 1));
        let one_row: Vec<f64> = few.iter().zip(&many).map(|(few, many)| few - many).collect();
        let ((core, core_sd), (one_row, one_row_sd)) = (spread(&many), spread(&one_row));
        of.core = entry(of.core.0 * core.exp(), of.core.1.max(core_sd));
        let assumed = of.one_row_ratio.unwrap_or((1.0, 0.0));
        of.one_row_ratio = Some(entry(assumed.0 * one_row.exp(), assumed.1.max(one_row_sd)));
        let typical = |logs: &[f64], was: Entry| {
            let (log, log_sd) = spread(logs);
            entry(log.exp(), was.1.max(log_sd))
        };
        of.attention_cycles = typical(&attention, of.attention_cycles);
        of.prompt_attention_ratio = typical(&in_prompts, of.prompt_attention_ratio);
    }
}

fn text(file: &File) -> Result<String, Failure> {
    let body = toml::to_string(file).map_err(|error| {
        Failure::failed(
            format!("the costs of {} on CPUs cannot be written: {error}", file.engine.key()),
            "report this",
        )
    })?;
    Ok(format!(
        "# Costs of {} on CPUs, written by `rooflined-lab fit-cpu-engines`: do not edit. Meaning and units: docs/internals/prediction.md.\n\n{body}",
        file.engine.key()
    ))
}

/// `fit-cpu-engines ROWS…`
pub fn run(printer: &Printer, args: &FitCpuEnginesArgs) -> Result<(), Failure> {
    let mut runs = Vec::new();
    for path in &args.data {
        runs.extend(cpu_rows::runs(&cpu_rows::read(path)?));
    }
    let mut report = String::new();
    let mut changed = Vec::new();
    for (name, shipped) in FILES {
        let of_engine: Vec<Measured> = runs.iter().filter(|run| run.engine.key() == *name).cloned().collect();
        if of_engine.is_empty() {
            // Others' rows say nothing of it, and what is built in may rest on rows of its own.
            let _ = writeln!(report, "{name:12}    0 rows: left as it is");
            continue;
        }
        let Some(engine) =
            PRIORS.iter().find_map(|(key, text)| Some(File::read(text).ok()?.engine).filter(|_| key == name))
        else {
            return Err(Failure::failed(
                format!("nothing is assumed of {name} on CPUs"),
                "write what is known before the rows to tools/lab/src/cpu_priors",
            ));
        };
        let Some(file) = file(engine, &of_engine) else { continue };
        let text = text(&file)?;
        let same = *shipped == text;
        let _ = writeln!(
            report,
            "{name:12} {:4} rows: {}",
            of_engine.len(),
            if same { "as built in" } else { "differs from what is built in" }
        );
        if !same {
            changed.push(*name);
        }
        if let Some(dir) = &args.out {
            let path = dir.join(format!("{name}.toml"));
            std::fs::write(&path, &text).map_err(|error| {
                Failure::failed(
                    format!("{}: {error}", path.display()),
                    "name a directory that can be written",
                )
            })?;
        }
    }
    printer.text(&report)?;
    if args.check && !changed.is_empty() {
        return Err(Failure::failed(
            format!("these rows give other costs than those built in: {}", changed.join(", ")),
            "write them with --out config/engines/cpu and build again",
        ));
    }
    Ok(())
}
