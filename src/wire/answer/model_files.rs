//! Where requests name models.

use serde_json::{Map, Value};

use roofline::refusal::Refusal;

/// Is given the fields of a model and what errors call its place.
pub type Visit<'a> = dyn FnMut(&mut Map<String, Value>, &str) -> Result<(), Refusal> + 'a;

/// Shows `visit` every object that stands for a model, wherever in a request: each `model` and each member of `models`, with
/// what errors call its place.
///
/// # Errors
/// The first one of `visit`.
pub fn each_model(request: &mut Value, visit: &mut Visit<'_>) -> Result<(), Refusal> {
    // Observations alone are sent as a list.
    let at = if request.is_array() { "observations" } else { "" };
    within(request, at, visit)
}

fn within(value: &mut Value, at: &str, visit: &mut Visit<'_>) -> Result<(), Refusal> {
    match value {
        Value::Object(fields) => fields.iter_mut().try_for_each(|(key, value)| {
            let at = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
            match value {
                Value::Object(model) if key == "model" => visit(model, &at),
                Value::Array(models) if key == "models" => {
                    models.iter_mut().enumerate().try_for_each(|(index, model)| match model {
                        Value::Object(model) => visit(model, &format!("{at}[{index}]")),
                        _ => Ok(()),
                    })
                }
                value => within(value, &at, visit),
            }
        }),
        Value::Array(list) => list
            .iter_mut()
            .enumerate()
            .try_for_each(|(index, value)| within(value, &format!("{at}[{index}]"), visit)),
        _ => Ok(()),
    }
}
