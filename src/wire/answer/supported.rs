//! Workloads that an inference engine does not run are refused, unless the request says that it is hypothetical.

use super::settings::Device;
use decide::optimize::Stored;
use decide::snapshot::Snapshot;
use predict::Engine;
use roofline::precision::WeightFormat;
use roofline::refusal::{Code, Refusal};
use roofline::support::{Nearest, Target, Unsupported, check, check_cache};
use roofline::workload::recipe::Recipe;

/// Whether `engine` runs weights of `format` on the machine of `snapshot`.
pub fn runs(snapshot: &Snapshot, engine: Engine, format: WeightFormat) -> bool {
    check(engine, Recipe::of(format), None, Device::of(snapshot).target()).is_ok()
}

/// Whether `engine` runs weights stored in `format`. A file that does not say how it is stored is not refused for it.
///
/// # Errors
/// Why not.
pub fn stored(
    engine: Engine,
    format: Option<&str>,
    kv_format: Option<WeightFormat>,
    target: Target,
) -> Result<(), Unsupported> {
    match format.and_then(|format| format.parse().ok()) {
        Some(recipe) => check(engine, recipe, kv_format, target),
        None => kv_format.map_or(Ok(()), |kv_format| check_cache(engine, kv_format, target)),
    }
}

/// The refusal of a workload at `path`.
pub fn refusal(unsupported: &Unsupported, path: &str) -> Refusal {
    let (field, instead) = match unsupported.nearest {
        Some(nearest @ Nearest::Weights(_)) => ("format", Some(nearest)),
        Some(nearest @ Nearest::Cache(_)) => ("kv_format", Some(nearest)),
        None => ("format", None),
    };
    let instead = instead.map_or_else(
        || "choose another engine".to_owned(),
        |nearest| match nearest {
            Nearest::Weights(format) => format!("the nearest is format {format}"),
            Nearest::Cache(format) => format!("the nearest is kv_format {format}"),
        },
    );
    Code::UnsupportedFormat.at(
        format!("{path}.{field}"),
        format!("{unsupported} ({})", unsupported.source),
        format!("{instead}; hypothetical (--hypothetical) answers all the same"),
    )
}

/// Keeps what `engine` runs; what it does not run is returned in words.
///
/// # Errors
/// Nothing is left.
pub fn keep<T>(
    list: &mut Vec<T>,
    field: &str,
    runs: impl Fn(&T) -> Result<(), Unsupported>,
) -> Result<Vec<String>, Refusal> {
    let (mut left_out, mut first) = (Vec::new(), None);
    list.retain(|item| match runs(item) {
        Ok(()) => true,
        Err(unsupported) => {
            left_out.push(format!("left out: {unsupported}"));
            first.get_or_insert(unsupported);
            false
        }
    });
    match first {
        Some(unsupported) if list.is_empty() => {
            Err(Refusal { field: Some(field.to_owned()), ..refusal(&unsupported, "workload") })
        }
        _ => Ok(left_out),
    }
}

/// Formats of a model, likewise.
///
/// # Errors
/// Nothing is left.
pub fn keep_stored(
    list: &mut Vec<Stored>,
    engine: Engine,
    snapshot: &Snapshot,
    field: &str,
) -> Result<Vec<String>, Refusal> {
    let target = Device::of(snapshot).target();
    keep(list, field, |of| stored(engine, of.format.as_deref(), None, target))
}

/// Formats of single operations, likewise.
///
/// # Errors
/// Nothing is left.
pub fn keep_formats(
    list: &mut Vec<WeightFormat>,
    engine: Engine,
    snapshot: &Snapshot,
    field: &str,
) -> Result<Vec<String>, Refusal> {
    let target = Device::of(snapshot).target();
    keep(list, field, |format| check(engine, Recipe::of(*format), None, target))
}

/// Formats of keys and values beside weights in one of `stored`, likewise.
///
/// # Errors
/// Nothing is left.
pub fn keep_caches(
    list: &mut Vec<WeightFormat>,
    weights: &[Stored],
    engine: Engine,
    snapshot: &Snapshot,
    field: &str,
) -> Result<Vec<String>, Refusal> {
    let target = Device::of(snapshot).target();
    keep(list, field, |kv_format| {
        let with = |of: &Stored| stored(engine, of.format.as_deref(), Some(*kv_format), target);
        weights
            .iter()
            .map(with)
            .find(Result::is_ok)
            .unwrap_or_else(|| check_cache(engine, *kv_format, target))
    })
}
