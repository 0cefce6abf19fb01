//! Models that clients name: a key of the registry, or a file whose header is read here.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use crate::server::ModelAsked;
use answer::modelfile;
use governor::ModelWork;
use roofline::workload::model::Model;
use roofline::workload::recipe::Recipe;
use roofline::workload::registry::models;

/// Finds the models. What cannot be read is said in words that end with what to do.
pub async fn found(asked: Vec<ModelAsked>) -> Vec<Result<ModelWork, String>> {
    // A disk may take its time, which the loop does not have.
    let finding = tokio::task::spawn_blocking(move || asked.into_iter().map(find).collect());
    finding.await.unwrap_or_else(|_| vec![Err("the model could not be read: report this".to_owned())])
}

fn find(asked: ModelAsked) -> Result<ModelWork, String> {
    let ModelAsked { reference, format, batch, context_tokens } = asked;
    let model = match (&reference, reference.get("path").and_then(Value::as_str)) {
        (Value::String(key), _) => {
            let known = models().get(key).map_err(|error| {
                format!(
                    "there is no model {:?}; did you mean {:?}? GET /v1/models lists all",
                    error.key, error.nearest
                )
            })?;
            let format = format.ok_or_else(|| format!("{key} has no storage of its own: give a format"))?;
            known.model(Recipe::of(format))
        }
        (_, Some(path)) => {
            let model = file(Path::new(path))?;
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
    Ok(ModelWork { reference, format, model: Arc::new(model), batch, context_tokens })
}

fn file(path: &Path) -> Result<Model, String> {
    if !path.is_absolute() {
        return Err(format!("{}: the daemon opens it, so give the whole path", path.display()));
    }
    let file = modelfile::load(path).map_err(|error| format!("{error}; {}", error.hint()))?;
    Ok(file.model)
}

#[cfg(test)]
mod tests {
    use super::*;
    use roofline::precision::WeightFormat;
    use serde_json::json;

    fn said(reference: Value, format: Option<WeightFormat>) -> String {
        find(ModelAsked { reference, format, batch: 1, context_tokens: 0 }).unwrap_err()
    }

    #[test]
    fn what_is_no_model_is_refused_with_what_to_do() {
        assert!(said(json!("tinylama-1.1b"), None).contains("tinyllama-1.1b"));
        assert!(said(json!("tinyllama-1.1b"), None).contains("give a format"));
        assert!(said(json!({"path": "here.gguf"}), None).contains("whole path"));
        assert!(said(json!({"path": "/nowhere/here.gguf"}), None).contains("check the path"));
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
        let work = find(asked).unwrap();
        assert_eq!(work.model.by_block()[0].0.key(), "q8_0");
    }
}
