//! What llama.cpp computes in: its graph (src/llama-context.cpp: graph_reserve, b11434) as its allocator lays it out.
//!
//! Five vectors as wide as the model live beside the widest tensors: the logits of every token of a physical batch, or what one layer
//! computes. `tests/engines/memory.py` compares the sum with llama.cpp's own.

use super::allocation::Room;
use super::architecture::{Attention, Cache, FeedForward, Latent, Layer, Linear, Mixer};
use super::class::Class;
use super::model::Model;
use rooflined_core::units::Bytes;

/// Vectors as wide as the model that live through a layer or the head: inputs, residuals, and holes between them.
const VECTORS: u64 = 5;
/// Positions and indices of one token, in elements.
const INDICES: u64 = 10;

/// Bytes of llama.cpp's compute buffer: with flash attention, which it uses wherever it can, no scores are stored.
pub(super) fn compute_buffer(model: &Model, room: &Room) -> Bytes {
    let architecture = &model.architecture;
    let tokens = room.physical_batch.min(room.tokens.saturating_mul(room.slots));
    // One mask for layers that see everything, and one for those with a window.
    let (mut full, mut windowed, mut widest, mut encodes) = (0, 0, 0, false);
    for layer in &architecture.layers {
        match layer.mixer {
            Mixer::Attention(Attention { cache: Cache::None, .. }) => {
                (full, encodes) = (full.max(tokens), true);
            }
            Mixer::Attention(Attention { window: Some(window), .. }) => {
                windowed = windowed.max(room.in_window(window));
            }
            Mixer::Attention(_) | Mixer::Latent(_) => full = room.tokens,
            Mixer::Linear(_) | Mixer::None => {}
        }
        let mixed = mixed(&layer.mixer, architecture.hidden, room.slots, tokens);
        widest = widest.max(mixed).max(inner(layer, architecture.hidden, architecture.gated_mlp));
    }
    let has_head = !encodes || model.weights.iter().any(|group| group.class == Class::Head);
    let logits = if has_head && !architecture.departures.headless { architecture.vocab } else { 0 };
    let wide = (VECTORS * architecture.hidden + INDICES).saturating_add(widest.max(logits));
    let masks = full.saturating_add(windowed);
    Bytes(f(tokens) * (4.0 * f(wide) + 2.0 * f(masks)))
}

/// Elements of one of `tokens` tokens of `slots` sequences that live at once in a mixer, beside the vectors.
fn mixed(mixer: &Mixer, hidden: u64, slots: u64, tokens: u64) -> u64 {
    // States before and after the pass.
    let states = |elements: u64| elements.saturating_mul(2 * slots) / tokens.max(1);
    match *mixer {
        // Queries and outputs; keys and values fit into holes unless they are wider than the model.
        Mixer::Attention(Attention { heads, kv_heads, head_dim, value_dim, .. }) => {
            let kept = kv_heads.saturating_mul(head_dim.saturating_add(value_dim));
            let beyond = if kept > 2 * hidden { kept } else { 0 };
            heads.saturating_mul(2 * head_dim).saturating_add(beyond)
        }
        // Queries, their rotated part, the part in the space of the latent, and both together.
        Mixer::Latent(Latent { heads, kv_rank, nope_dim, rope_dim, .. }) => {
            heads.saturating_mul(nope_dim + 3 * rope_dim + 2 * kv_rank)
        }
        // The input of the convolution and its output, and what gates the result.
        Mixer::Linear(Linear::DeltaNet { key_heads, value_heads, key_dim, value_dim, .. }) => {
            let values = value_heads.saturating_mul(value_dim);
            let keys = key_heads.saturating_mul(key_dim);
            (3 * values + 4 * keys).saturating_add(states(values.saturating_mul(key_dim)))
        }
        // The same beside the projection, which holds it once more, and the result.
        Mixer::Linear(Linear::Mamba2 { heads, head_dim, state, groups, .. }) => {
            let inner = heads.saturating_mul(head_dim);
            let shared = groups.saturating_mul(state);
            (5 * inner + 6 * shared + heads).saturating_add(states(inner.saturating_mul(state)))
        }
        Mixer::Linear(Linear::ShortConvolution { .. }) => 4 * hidden,
        Mixer::Linear(Linear::Other { .. }) | Mixer::None => 0,
    }
}

/// The same of a feed-forward.
fn inner(layer: &Layer, hidden: u64, gated: bool) -> u64 {
    // Gate, up and their product; an activation alone is computed in place.
    let inner = |width: u64| if gated { width.saturating_mul(3) } else { width };
    match layer.feed_forward {
        FeedForward::None => 0,
        FeedForward::Dense { intermediate } => inner(intermediate),
        FeedForward::Experts { active, intermediate, shared_intermediate, width, .. } => {
            let width = if width > 0 { width } else { hidden };
            // What the experts give takes the place of gate and up where it fits.
            let given = if intermediate.saturating_mul(2) < width { active.saturating_mul(width) } else { 0 };
            inner(active.saturating_mul(intermediate)).saturating_add(given).max(inner(shared_intermediate))
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "sizes of models stay far below 2^53")]
const fn f(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::Allocation;
    use crate::recipe::Recipe;
    use crate::registry::models;
    use rooflined_core::precision::WeightFormat;

    fn model(key: &str) -> Model {
        models().get(key).unwrap().model(Recipe::of(WeightFormat::Q8_0))
    }

    /// llama.cpp's defaults but for the context.
    const ROOM: Room = Room { allocation: Allocation::LlamaCpp, slots: 1, tokens: 4096, physical_batch: 512 };

    /// What llama-fit-params counts for Llama-3-8B: (5 x 4096 + 10 + 128256) x 4 and a mask of 4096 x 2 bytes for 512 tokens.
    #[test]
    fn the_compute_buffer_holds_the_logits_of_a_physical_batch() {
        let llama = model("llama-3-8b");
        assert_eq!(compute_buffer(&llama, &ROOM), Bytes(308_826_112.0));
        assert_eq!(compute_buffer(&llama, &Room { slots: 4, ..ROOM }), Bytes(308_826_112.0));
        let large = Room { physical_batch: 2048, ..ROOM };
        assert_eq!(compute_buffer(&llama, &large), Bytes(4.0 * 308_826_112.0));
    }

    /// Gemma 3 4B: 5 layers keep all 4096 tokens and 29 keep 1024 + 512, of 4 heads of 256 for keys and values.
    #[test]
    fn windows_keep_a_physical_batch_more() {
        let cells = 5 * 4096 + 29 * 1536;
        assert_eq!(
            model("gemma-3-4b").allocated_cache(WeightFormat::Fp16, &ROOM),
            Bytes(f(cells * 4 * 256 * 2 * 2))
        );
        assert_eq!(Room { allocation: Allocation::LlamaCpp, tokens: 1 << 20, ..ROOM }.in_window(1000), 1536);
        assert_eq!(Room { allocation: Allocation::LlamaCpp, tokens: 768, ..ROOM }.in_window(1000), 768);
        assert_eq!(Room { allocation: Allocation::Paged, tokens: 1 << 20, ..ROOM }.in_window(1000), 1000);
    }

    /// Two experts of 14336 for a token, three matrices each, are wider than 32000 logits.
    #[test]
    fn wide_experts_outgrow_a_small_vocabulary() {
        let wide = 5 * 4096 + 10 + 3 * 2 * 14336;
        assert_eq!(compute_buffer(&model("mixtral-8x7b"), &ROOM), Bytes(f(512 * (4 * wide + 2 * 4096))));
    }
}
