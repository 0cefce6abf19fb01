//! Models to compare, as the command line names them.

use serde_json::Value;

use rooflined_core::precision::WeightFormat;

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
