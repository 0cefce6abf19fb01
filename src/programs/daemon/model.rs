//! Models that clients name: a key of the registry, or a file whose contents are told with its path.

use std::sync::Arc;

use serde_json::Value;

use crate::server::ModelAsked;
use answer::Catalogue;
use governor::ModelWork;
use roofline::workload::model::Model;
use roofline::workload::recipe::Recipe;
use roofline::workload::registry::models;

/// Finds the models. What cannot be read is said in words that end with what to do.
pub async fn found(catalogue: Arc<Catalogue>, asked: Vec<ModelAsked>) -> Vec<Result<ModelWork, String>> {
    // Contents may be long, and the loop has no time.
    let finding =
        tokio::task::spawn_blocking(move || asked.into_iter().map(|asked| find(&catalogue, asked)).collect());
    finding.await.unwrap_or_else(|_| vec![Err("the model could not be read: report this".to_owned())])
}

fn find(catalogue: &Catalogue, asked: ModelAsked) -> Result<ModelWork, String> {
    let ModelAsked { reference, format, batch, context_tokens } = asked;
    let model = match &reference {
        Value::String(key) => {
            let known = models().get(key).map_err(|error| {
                format!("there is no model {:?}; {}", error.key, error.near.hint("GET /v1/models lists all"))
            })?;
            let format = format.ok_or_else(|| format!("{key} has no storage of its own: give a format"))?;
            known.model(Recipe::of(format))
        }
        Value::Object(fields) if fields.contains_key("path") => {
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
            return Err(
                "model is neither a key of GET /v1/models nor {\"path\": FILE}: give one of these".to_owned()
            );
        }
    };
    let reference = answer::without_contents(&reference);
    Ok(ModelWork { reference, format, model: Arc::new(model), batch, context_tokens })
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofline::precision::WeightFormat;
    use serde_json::json;

    fn said(reference: Value, format: Option<WeightFormat>) -> String {
        find(&Catalogue::default(), ModelAsked { reference, format, batch: 1, context_tokens: 0 })
            .unwrap_err()
    }

    #[test]
    fn what_is_no_model_is_refused_with_what_to_do() {
        assert!(said(json!("tinylama-1.1b"), None).contains("tinyllama-1.1b"));
        assert!(said(json!("tinyllama-1.1b"), None).contains("give a format"));
        for path in ["here.gguf", "/nowhere/here.gguf", "/etc/passwd"] {
            assert!(said(json!({ "path": path }), None).contains("rooflinectl models contents FILE"));
        }
        assert!(said(json!(7), None).contains("give one of these"));
    }

    #[test]
    fn a_key_is_quantised_as_asked() {
        let asked = ModelAsked {
            reference: json!("tinyllama-1.1b"),
            format: Some(WeightFormat::Q8_0),
            batch: 1,
            context_tokens: 0,
        };
        let work = find(&Catalogue::default(), asked).unwrap();
        assert_eq!(work.model.by_block()[0].0.key(), "q8_0");
    }
}
