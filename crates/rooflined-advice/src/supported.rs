//! Workloads that an inference engine does not run are refused, unless the request says that it is hypothetical.

use super::settings::Device;
use rooflined_core::precision::WeightFormat;
use rooflined_core::refusal::{Code, Refusal};
use rooflined_models::recipe::Recipe;
use rooflined_models::support::{Nearest, Target, Unsupported, check, check_cache, check_family, engines};
use rooflined_predict::Engine;
use rooflined_predict::optimize::StoredModel;
use rooflined_predict::snapshot::Snapshot;

/// The field that names it in every request.
pub const ENGINE: &str = "engine";
pub const PREDICT_ANYWAY: &str = "add \"hypothetical\":true to predict anyway";

/// Whether `engine` runs weights of `format` on the machine of `snapshot`.
pub fn runs(snapshot: &Snapshot, engine: Engine, format: WeightFormat) -> bool {
    check(engine, Recipe::of(format), None, Device::of(snapshot).target()).is_ok()
}

/// Whether `engine` runs a model of the architecture `family` with weights stored in `format`. A file that does not say how it is
/// stored is not refused for it.
///
/// # Errors
/// Why not.
pub fn stored(
    engine: Engine,
    family: &str,
    format: Option<&str>,
    kv_format: Option<WeightFormat>,
    target: Target,
) -> Result<(), Unsupported> {
    check_family(engine, family, target)?;
    match format.and_then(|format| format.parse().ok()) {
        Some(recipe) => check(engine, recipe, kv_format, target),
        None => kv_format.map_or(Ok(()), |kv_format| check_cache(engine, kv_format, target)),
    }
}

/// The refusal of a workload at `path`, or of the engine of its request where that runs nothing like it there.
pub fn refusal(unsupported: &Unsupported, path: &str) -> Refusal {
    let (field, instead) = match unsupported.nearest {
        Some(Nearest::Weights(format)) => {
            (format!("{path}.format"), format!("the nearest is format {format}"))
        }
        Some(Nearest::Cache(format)) => {
            (format!("{path}.kv_format"), format!("the nearest is kv_format {format}"))
        }
        None => (ENGINE.to_owned(), "choose another engine".to_owned()),
    };
    Code::UnsupportedFormat.at(
        field,
        format!("{unsupported} ({})", unsupported.source),
        format!("{instead}; {PREDICT_ANYWAY}"),
    )
}

/// The refusal of a model for which no format was named, and which is stored in one that the engine does not run.
fn own_refusal(unsupported: &Unsupported, family: &str, format: &str, target: Target) -> Refusal {
    let Some(Nearest::Weights(nearest)) = unsupported.nearest else {
        return refusal(unsupported, "workload");
    };
    let runs =
        format.parse().map(|recipe| engines(family, recipe, target).map(Engine::key).collect::<Vec<_>>());
    let others = match runs.unwrap_or_default().as_slice() {
        [] => String::new(),
        engines => format!("here {format} is run by {}; ", engines.join(", ")),
    };
    Code::UnsupportedFormat.at(
        "workload.model",
        format!("the model is stored as {format}: {unsupported} ({})", unsupported.source),
        format!(
            "{others}or name formats to be made of its 16-bit checkpoint in freedom.formats (the nearest is {nearest}); {PREDICT_ANYWAY}"
        ),
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
            let refusal = refusal(&unsupported, "workload");
            // Whatever were named there, the engine would not run it.
            let field = if unsupported.nearest.is_some() { field } else { ENGINE };
            Err(Refusal { field: Some(field.to_owned()), ..refusal })
        }
        _ => Ok(left_out),
    }
}

/// Formats of a model, likewise.
///
/// # Errors
/// Nothing is left.
pub fn keep_stored(
    list: &mut Vec<StoredModel>,
    engine: Engine,
    snapshot: &Snapshot,
    field: &str,
) -> Result<Vec<String>, Refusal> {
    let target = Device::of(snapshot).target();
    keep(list, field, |of| stored(engine, &of.model.family, of.format.as_deref(), None, target))
}

/// Whether `engine` runs a model in the format that it is stored in.
///
/// # Errors
/// Which format that is, and what runs it.
pub fn own(engine: Engine, family: &str, format: Option<&str>, snapshot: &Snapshot) -> Result<(), Refusal> {
    let target = Device::of(snapshot).target();
    let refused = |unsupported| own_refusal(&unsupported, family, format.unwrap_or_default(), target);
    stored(engine, family, format, None, target).map_err(refused)
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
    weights: &[StoredModel],
    engine: Engine,
    snapshot: &Snapshot,
    field: &str,
) -> Result<Vec<String>, Refusal> {
    let target = Device::of(snapshot).target();
    keep(list, field, |kv_format| {
        let with = |of: &StoredModel| {
            stored(engine, &of.model.family, of.format.as_deref(), Some(*kv_format), target)
        };
        weights
            .iter()
            .map(with)
            .find(Result::is_ok)
            .unwrap_or_else(|| check_cache(engine, *kv_format, target))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_an_engine_runs_nothing_it_is_the_wrong_field_and_else_the_format() {
        let gpu = |major, minor| Target::Gpu(Some((major, minor)));
        for (engine, target, field) in [
            (Engine::TensorRtLlm, Target::Cpu, ENGINE),
            (Engine::TensorRtLlm, gpu(7, 5), ENGINE),
            (Engine::TensorRtLlm, gpu(8, 7), ENGINE),
            (Engine::Vllm, gpu(7, 5), "freedom.formats"),
        ] {
            let runs = |format: &WeightFormat| check(engine, Recipe::of(*format), None, target);
            let refusal = keep(&mut vec![WeightFormat::Bf16], "freedom.formats", runs).unwrap_err();
            assert_eq!(refusal.field.as_deref(), Some(field), "{refusal}");
        }
    }
}
