//! How tokens are spread over the experts of a layer, and how many of these they read together.

use serde::Serialize;

/// Experts of a layer and those that a token passes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Routing {
    /// Experts of a layer.
    pub experts: u64,
    /// Experts that a token passes.
    pub active: u64,
}

impl Routing {
    /// Share of a layer's experts that `tokens` tokens read together, `1 - (1 - k/E)^T`: each misses an expert with
    /// probability `1 - k/E`, independently where routing is uniform. Skewed routing reads fewer.
    #[must_use]
    pub fn share_read(&self, tokens: f64) -> f64 {
        // Exact for one token, where the closed form would lose a digit.
        if tokens <= 1.0 {
            return self.share_of_one() * tokens.max(0.0);
        }
        reached_by_any(self.share_of_one(), tokens)
    }

    /// `k/E`.
    #[must_use]
    pub fn share_of_one(&self) -> f64 {
        as_f64(self.active) / as_f64(self.experts.max(1))
    }
}

/// `1 - (1 - share)^tokens`.
fn reached_by_any(share: f64, tokens: f64) -> f64 {
    -(tokens * (-share.min(1.0)).ln_1p()).exp_m1()
}

#[expect(clippy::cast_precision_loss, reason = "counts of experts are small")]
const fn as_f64(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_token_reads_its_own_experts_and_many_read_all() {
        let routing = Routing { experts: 128, active: 8 };
        assert_eq!(routing.share_read(1.0), 8.0 / 128.0);
        let by_hand = 1.0 - (1.0_f64 - 8.0 / 128.0).powi(16);
        assert!((routing.share_read(16.0) - by_hand).abs() < 1e-12);
        assert!(routing.share_read(1e6) > 0.999_999);
        assert_eq!(Routing { experts: 1, active: 1 }.share_read(5.0), 1.0);
    }
}
