//! Model files are read where they lie, with the rights of the user who runs this program: every request that names one carries its
//! definition. The daemon, which runs as a user of its own, opens nothing.

use std::path::Path;
use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::failure::{Failure, refused};
use super::{meant, words};
use rooflined_advice::{Catalogue, Opener, modelfile};
use rooflined_client::{Bytes, ClientError};
use rooflined_core::hardware::registry;
use rooflined_core::refusal::Refusal;

/// Keeps what was read last: the same file is asked about again and again.
static FILES: LazyLock<Catalogue> = LazyLock::new(|| Catalogue::new(registry().clone(), Opener::Caller));

/// The same body with the definitions of the files that it names. A body that is not JSON, or names no files, stays as it is.
pub fn define_models(body: Bytes) -> Result<Bytes, ClientError> {
    let Ok(mut request) = serde_json::from_slice::<Value>(&body) else { return Ok(body) };
    let mut found = false;
    define_within(&mut request, "", &mut found).map_err(refused)?;
    if !found {
        return Ok(body);
    }
    let filled = serde_json::to_vec(&request);
    filled.map(Bytes::from).map_err(|error| ClientError::Unsendable { reason: error.to_string() })
}

/// Defines every `model`, `draft_model`, `network` and each of `models`, wherever they are in a request; `found` is set where one was
/// a file.
fn define_within(value: &mut Value, at: &str, found: &mut bool) -> Result<(), Refusal> {
    match value {
        Value::Object(fields) => fields.iter_mut().try_for_each(|(key, value)| {
            let at = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
            match value {
                Value::Object(model) if key == "model" || key == "draft_model" => define(model, &at, found),
                Value::Array(models) if key == "models" => {
                    models.iter_mut().enumerate().try_for_each(|(index, model)| match model {
                        Value::Object(model) => define(model, &format!("{at}[{index}]"), found),
                        _ => Ok(()),
                    })
                }
                network if key == "network" && network.get("path").is_some() => {
                    *found = true;
                    define_network(network, &at)
                }
                value => define_within(value, &at, found),
            }
        }),
        Value::Array(list) => list
            .iter_mut()
            .enumerate()
            .try_for_each(|(index, value)| define_within(value, &format!("{at}[{index}]"), found)),
        _ => Ok(()),
    }
}

/// Adds the definition of the file that `model` names by its path alone.
fn define(model: &mut Map<String, Value>, at: &str, found: &mut bool) -> Result<(), Refusal> {
    let Some(path) = model.get("path").and_then(Value::as_str).filter(|_| model.len() == 1) else {
        return Ok(());
    };
    *found = true;
    let whole = absolute(path);
    // The daemon may reach what this user does not: models of the service itself, or of the container it runs in.
    if !is_out_of_reach(&whole) {
        let file = FILES.file(&whole, &format!("{at}.path"), modelfile::latest())?;
        model.insert("definition".to_owned(), json!(file.definition()));
    }
    model.insert("path".to_owned(), json!(whole));
    Ok(())
}

/// Puts the layers of its file in place of a network that names one.
fn define_network(network: &mut Value, at: &str) -> Result<(), Refusal> {
    let Some(whole) = network.get("path").and_then(Value::as_str).map(absolute) else { return Ok(()) };
    let is_here = !is_out_of_reach(&whole);
    network["path"] = json!(whole);
    if is_here {
        *network = json!(FILES.network(network, at, modelfile::latest())?);
    }
    Ok(())
}

fn absolute(path: &str) -> String {
    let whole = std::path::absolute(path).ok();
    whole.as_deref().and_then(Path::to_str).unwrap_or(path).to_owned()
}

/// A file that somebody names on the command line is there.
///
/// # Errors
/// It is not, or nobody says.
pub fn require_file(path: &Path) -> Result<(), Failure> {
    match std::fs::metadata(path) {
        // Whether the daemon may do what this user may not is for the daemon to say.
        Err(error) if error.kind() != std::io::ErrorKind::PermissionDenied => {
            Err(Failure::wrong_file(modelfile::unopened(path, &error), meant::instead_of_path(path)))
        }
        _ => Ok(()),
    }
}

/// A file that somebody names on the command line holds a model.
///
/// # Errors
/// It is not there, or holds something else.
pub fn require_model(path: &Path) -> Result<(), Failure> {
    require_file(path)?;
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let read = FILES.file(&whole.to_string_lossy(), "model.path", modelfile::latest());
    Ok(read.map(drop).map_err(refused)?)
}

/// The format that the file at `path` is stored in; `None` where this user cannot read it, or it does not say.
pub fn format_of(path: &Path) -> Option<String> {
    FILES.file(path.to_str()?, "path", modelfile::latest()).ok()?.model.label.clone()
}

/// The format that answers about the file at `path` are given for: its own where its tensors tell it or none is asked for.
pub fn format(path: &Path, asked: Option<&str>) -> String {
    let unknown = || asked.map_or_else(|| "in its own format".to_owned(), str::to_owned);
    let whole = std::path::absolute(path).ok();
    let Some(whole) = whole.as_deref().and_then(Path::to_str) else { return unknown() };
    if is_out_of_reach(whole) {
        return unknown();
    }
    match FILES.file(whole, "model.path", modelfile::latest()) {
        Ok(file) if file.exact || asked.is_none() => {
            words::printable(file.model.label.as_deref().unwrap_or("in its own format"))
        }
        _ => unknown(),
    }
}

fn is_out_of_reach(path: &str) -> bool {
    use std::io::ErrorKind::{NotFound, PermissionDenied};
    let closed = |error: std::io::Error| matches!(error.kind(), NotFound | PermissionDenied);
    match std::fs::metadata(path) {
        Err(error) => closed(error),
        Ok(metadata) if metadata.is_dir() => std::fs::read_dir(path).err().is_some_and(closed),
        Ok(metadata) => metadata.is_file() && std::fs::File::open(path).err().is_some_and(closed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(request: &Value) -> Result<Value, ClientError> {
        let body = Bytes::from(serde_json::to_vec(request).unwrap());
        define_models(body).map(|body| serde_json::from_slice(&body).unwrap())
    }

    fn file() -> tempfile::NamedTempFile {
        let mut file = tempfile::Builder::new().suffix(".json").tempfile().unwrap();
        let config = json!({
            "model_type": "llama", "hidden_size": 2048, "num_hidden_layers": 22, "num_attention_heads": 32,
            "num_key_value_heads": 4, "intermediate_size": 5632, "vocab_size": 32000, "torch_dtype": "bfloat16",
        });
        std::io::Write::write_all(&mut file, config.to_string().as_bytes()).unwrap();
        file
    }

    #[test]
    fn files_are_read_wherever_a_request_names_them() {
        let file = file();
        let path = json!({ "path": file.path() });
        let request = json!({
            "workload": { "model": path }, "models": ["tinyllama-1.1b", path],
            "workloads": [{ "workload": { "model": path } }], "query": { "workload": { "model": path } },
        });
        let sent = sent(&request).unwrap();
        for pointer in ["/workload", "/workloads/0/workload", "/query/workload"] {
            let model = sent.pointer(pointer).unwrap().get("model").unwrap();
            assert_eq!(model["path"], json!(file.path()));
            assert_eq!(model["definition"]["hidden"], 2048, "{pointer}");
            assert_eq!(model["definition"]["exact"], false);
        }
        assert_eq!(sent["models"][0], "tinyllama-1.1b");
        assert_eq!(sent["models"][1]["definition"]["layers"].as_array().unwrap().len(), 22);
    }

    #[test]
    fn a_file_that_can_be_read_says_what_it_is_stored_in() {
        assert_eq!(format_of(file().path()).as_deref(), Some("bf16"));
        assert_eq!(format_of(Path::new("/nowhere/m.gguf")), None);
    }

    #[test]
    fn what_names_no_file_or_is_defined_already_is_sent_as_it_is() {
        for request in [
            json!({ "workload": { "model": "tinyllama-1.1b" } }),
            json!({ "workload": { "model": { "path": "/nowhere", "definition": {} } } }),
            json!({ "workload": { "model": { "hidden_size": 64, "path": "/nowhere" } } }),
            json!({ "path": "/v1/recommend" }),
        ] {
            assert_eq!(sent(&request).unwrap(), request);
        }
        assert_eq!(define_models(Bytes::from_static(b"{\"path\"")).unwrap(), &b"{\"path\""[..]);
    }

    #[test]
    fn what_is_not_there_is_left_to_the_daemon_and_what_is_no_model_is_refused_here() {
        let request = |path: &str| json!({ "workload": { "model": { "path": path } } });
        assert_eq!(sent(&request("/nowhere/m.gguf")).unwrap(), request("/nowhere/m.gguf"));
        let error = sent(&request("/proc/self/comm")).unwrap_err();
        let ClientError::Refused { body, .. } = error else { panic!("{error}") };
        assert_eq!(
            (body.code.as_str(), body.field.as_deref()),
            ("unreadable_model", Some("workload.model.path"))
        );
    }
}
