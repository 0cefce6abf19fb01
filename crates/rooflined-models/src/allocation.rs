//! How engines set memory aside for caches, states and the work of a pass.
//!
//! llama.cpp's rules are those of its source (b11434: src/llama-kv-cache-iswa.cpp, src/llama-hparams.cpp); `tests/engines/memory.py`
//! compares them with llama.cpp's own count.

use serde::{Deserialize, Serialize};

/// The habits of an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Allocation {
    /// As many tokens as are used.
    #[default]
    Exact,
    /// Blocks of 16 tokens: vLLM's default.
    Paged,
    LlamaCpp,
}

impl Allocation {
    /// Tokens of which the cache of a sequence is a whole number.
    #[must_use]
    pub const fn step(self) -> u64 {
        match self {
            Self::Exact => 1,
            Self::Paged => 16,
            Self::LlamaCpp => 256,
        }
    }

    /// Tokens rounded up to whole steps.
    #[must_use]
    pub const fn padded(self, tokens: u64) -> u64 {
        tokens.div_ceil(self.step()).saturating_mul(self.step())
    }

    /// Bytes of the last inputs of a convolution with `taps` taps over `channels`: llama.cpp keeps all but one in fp32.
    #[must_use]
    pub const fn convolution_bytes(self, channels: u64, taps: u64) -> u64 {
        match self {
            Self::Exact | Self::Paged => channels * taps * 2,
            Self::LlamaCpp => channels * taps.saturating_sub(1) * 4,
        }
    }
}

/// What an engine is started with room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    pub allocation: Allocation,
    /// Sequences at once.
    pub slots: u64,
    /// Tokens of each, in whole steps.
    pub tokens: u64,
    /// Tokens of the largest pass.
    pub physical_batch: u64,
}

impl Room {
    /// Tokens that a layer with a window keeps: llama.cpp adds a physical batch, so that it can write one before it forgets.
    #[must_use]
    pub fn in_window(&self, window: u64) -> u64 {
        match self.allocation {
            Allocation::Exact | Allocation::Paged => window.min(self.tokens),
            Allocation::LlamaCpp => {
                self.allocation.padded(window.saturating_add(self.physical_batch).min(self.tokens))
            }
        }
    }
}
