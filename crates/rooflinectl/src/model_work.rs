//! Models to compare, as the command line names them.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::contents::require_file;
use super::failure::Failure;
use super::input::names_file;
use rooflined_core::precision::WeightFormat;
use rooflined_models::registry::models;

/// What models are compared in.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelWork {
    /// Keys, or `{"path": …}`.
    pub models: Vec<Value>,
    /// Formats; empty = as a file is stored.
    pub formats: Vec<WeightFormat>,
    pub batches: Vec<u64>,
    /// Tokens in the cache.
    pub contexts: Vec<u64>,
}

/// Batches and contexts where none are named: alone and together, an empty cache and one that costs something.
pub const DEFAULT_BATCHES: [u64; 2] = [1, 8];
pub const DEFAULT_CONTEXTS: [u64; 2] = [0, 1024];

/// A model as people name it: the name of a known one, or a path.
///
/// # Errors
/// A usage error with the nearest key.
pub fn reference(text: &str) -> Result<Value, Failure> {
    if names_file(text) || models().get(text).is_err() && Path::new(text).exists() {
        let path = std::path::absolute(text).unwrap_or_else(|_| PathBuf::from(text));
        return require_file(&path).map(|()| json!({ "path": path }));
    }
    match models().get(text) {
        Ok(known) => Ok(json!(known.key)),
        Err(error) => {
            Err(Failure::usage(format!("{text:?} is neither gemv, gemm, a model nor the path of a file"))
                .with_hint(error.near.hint("rooflinectl models list shows all")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_made_whole_and_a_key_is_found() {
        let file = tempfile::Builder::new().suffix(".gguf").tempfile().unwrap();
        assert_eq!(reference(file.path().to_str().unwrap()).unwrap(), json!({"path": file.path()}));
        assert!(reference("./Cargo.toml").unwrap()["path"].as_str().unwrap().starts_with('/'));
        assert!(reference("b.gguf").unwrap_err().to_string().contains("there is no file"));
        assert_eq!(reference("TinyLlama-1.1B").unwrap(), json!("tinyllama-1.1b"));
        assert!(reference("tinylama").unwrap_err().to_string().contains("tinylama"));
    }
}
