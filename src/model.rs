//! Models that clients name: a key of the registry, or the definition of a file.

use std::sync::Arc;

use serde_json::Value;

use rooflined_advice::Catalogue;
use rooflined_core::precision::WeightFormat;
use rooflined_governor::ModelWork;
use rooflined_models::model::Model;
use rooflined_models::recipe::Recipe;
use rooflined_models::registry::models;

/// A model of which a client wants a step to be measured, as it names it.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedModel {
    /// A key, or `{"path": …}`.
    pub reference: Value,
    /// How its weights are stored; `None` = as in the file.
    pub format: Option<WeightFormat>,
    pub batch: u64,
    /// Tokens in the cache of each.
    pub context_tokens: u64,
}

/// Finds the models. An error ends with what to do.
pub async fn find_models(
    catalogue: Arc<Catalogue>,
    named: Vec<NamedModel>,
) -> Vec<Result<ModelWork, String>> {
    if named.is_empty() {
        return Vec::new();
    }
    // Definitions may be long, and the loop has no time.
    let finding =
        tokio::task::spawn_blocking(move || named.into_iter().map(|named| find(&catalogue, named)).collect());
    finding.await.unwrap_or_else(|_| vec![Err("the model could not be read: report this".to_owned())])
}

fn find(catalogue: &Catalogue, named: NamedModel) -> Result<ModelWork, String> {
    let NamedModel { reference, format, batch, context_tokens } = named;
    let model = match &reference {
        Value::String(key) => {
            let known = models().get(key).map_err(|error| {
                format!("there is no model {:?}; {}", error.key, error.hint("GET /v1/models lists all"))
            })?;
            let format = format.ok_or_else(|| format!("{key} has no storage of its own: give a format"))?;
            known.model(Recipe::of(format))
        }
        Value::Object(fields) if fields.contains_key("path") || fields.contains_key("definition") => {
            let found = catalogue.referenced(fields, "model");
            let found = found.map_err(|refusal| format!("{}; {}", refusal.message, refusal.hint))?;
            let model = found.model.clone();
            match format {
                Some(format) => {
                    let weights = Recipe::of(format).weights(&model.architecture);
                    Model { weights, label: None, ..model }
                }
                None => model,
            }
        }
        _ => {
            return Err("model is neither a key of GET /v1/models nor a file: give one of these".to_owned());
        }
    };
    let reference = rooflined_advice::without_definition(&reference);
    Ok(ModelWork { reference, format, model: Arc::new(model), batch, context_tokens })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn refusal(reference: Value, format: Option<WeightFormat>) -> String {
        find(&Catalogue::default(), NamedModel { reference, format, batch: 1, context_tokens: 0 })
            .unwrap_err()
    }

    #[test]
    fn what_is_no_model_is_refused_with_what_to_do() {
        assert!(refusal(json!("tinylama-1.1b"), None).contains("tinyllama-1.1b"));
        assert!(refusal(json!("tinyllama-1.1b"), None).contains("give a format"));
        for path in ["here.gguf", "/nowhere/here.gguf", "/etc/passwd"] {
            assert!(refusal(json!({ "path": path }), None).contains("POST /v1/models/inspect"));
        }
        assert!(refusal(json!(7), None).contains("give one of these"));
    }

    #[test]
    fn a_key_is_quantised_as_asked() {
        let asked = NamedModel {
            reference: json!("tinyllama-1.1b"),
            format: Some(WeightFormat::Q8_0),
            batch: 1,
            context_tokens: 0,
        };
        let work = find(&Catalogue::default(), asked).unwrap();
        assert_eq!(work.model.by_block()[0].0.key(), "q8_0");
    }
}
