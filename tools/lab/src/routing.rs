//! How benchmarks spread tokens over the experts of a layer, and how many of these the tokens then read together.

use rooflined_models::routing::Routing;

/// How evenly a router uses its experts.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Spread {
    /// Every expert is as likely as any other, each token independently.
    #[default]
    Uniform,
    /// Loads follow `density ~ load^-exponent` between 1 and `span`. Benchmarks of engines draw the loads of their
    /// skewed runs so, with an exponent of 1.2 (ai-dynamo/aiconfigurator, `collector`: `power_law_1.2`).
    PowerLaw {
        /// Above 1: few experts take most tokens.
        exponent: f64,
        /// The largest load over the smallest, above 1.
        span: f64,
    },
    /// Tokens are dealt out in turn, so that no expert is read twice while one is left. No router does so; benchmarks
    /// call it balanced.
    Dealt,
}

/// Beyond this many experts the loads of a power law are sampled, each for several of them.
const MAX_LOADS: u64 = 4096;

/// Share of a layer's experts that `tokens` tokens read together where routing is spread as `spread`: the mean over
/// experts of `1 - (1 - p)^T`, `p` being the share of tokens that pass the expert. Every spread reads `k/E` for one token.
#[must_use]
pub fn share_read(routing: Routing, spread: Spread, tokens: f64) -> f64 {
    if tokens <= 1.0 {
        return routing.share_read(tokens);
    }
    match spread {
        Spread::Uniform => routing.share_read(tokens),
        Spread::Dealt => (routing.share_of_one() * tokens).min(1.0),
        Spread::PowerLaw { exponent, span } => {
            let shares = shares(routing, exponent, span);
            let read: f64 = shares.iter().map(|share| reached_by_any(*share, tokens)).sum();
            read / as_f64(shares.len() as u64)
        }
    }
}

/// Share of tokens that pass each expert, most loaded last: quantiles of the power law, scaled so that they add up
/// to the experts a token passes. No expert sees more than every token; what is over goes to the others in
/// proportion.
fn shares(routing: Routing, exponent: f64, span: f64) -> Vec<f64> {
    let experts = routing.experts.clamp(1, MAX_LOADS);
    let (span, power) = (span.max(1.0), 1.0 - exponent);
    let load = |quantile: f64| {
        if power.abs() < 1e-9 {
            span.powf(quantile)
        } else {
            ((span.powf(power) - 1.0).mul_add(quantile, 1.0)).powf(1.0 / power)
        }
    };
    let mut shares: Vec<f64> =
        (0..experts).map(|index| load((as_f64(index) + 0.5) / as_f64(experts))).collect();
    let wanted = routing.share_of_one().min(1.0) * as_f64(experts);
    // Loads rise with the index, so those that see every token are at the end.
    let mut full = 0;
    loop {
        let free = shares.len() - full;
        let sum: f64 = shares[..free].iter().sum();
        let scale = (wanted - as_f64(full as u64)).max(0.0) / sum.max(f64::MIN_POSITIVE);
        let over = shares[..free].iter().rev().take_while(|share| **share * scale > 1.0).count();
        if over == 0 {
            shares[..free].iter_mut().for_each(|share| *share *= scale);
            return shares;
        }
        shares[free - over..free].fill(1.0);
        full += over;
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

    const SKEWED: Spread = Spread::PowerLaw { exponent: 1.2, span: 200.0 };

    #[test]
    fn skewed_routing_reads_fewer_experts_than_uniform_and_dealt_more() {
        for (experts, active) in [(8, 2), (128, 8), (256, 8)] {
            let routing = Routing { experts, active };
            for tokens in [2.0, 8.0, 32.0, 100.0] {
                let [skewed, uniform, dealt] = [SKEWED, Spread::Uniform, Spread::Dealt]
                    .map(|spread| share_read(routing, spread, tokens));
                assert!(skewed < uniform && uniform < dealt + 1e-12, "{experts} {tokens}");
                assert!(dealt <= 1.0);
            }
            for spread in [SKEWED, Spread::Uniform, Spread::Dealt] {
                assert_eq!(share_read(routing, spread, 1.0), routing.share_of_one());
            }
        }
    }

    #[test]
    fn shares_of_a_power_law_add_up_to_the_experts_of_a_token_and_none_is_above_one() {
        for (experts, active, span) in [(8_u32, 2, 200.0), (4, 3, 1e6), (16, 16, 10.0), (256, 8, 2.0)] {
            let routing = Routing { experts: experts.into(), active };
            let shares = shares(routing, 1.2, span);
            assert!((shares.iter().sum::<f64>() - as_f64(active)).abs() < 1e-9, "{shares:?}");
            assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)), "{shares:?}");
        }
        // Two experts of loads 1^x..4: quantiles at 1/4 and 3/4 of a law of exponent 2 are 16/13 and 16/7.
        let pair = shares(Routing { experts: 2, active: 1 }, 2.0, 4.0);
        let (low, high) = (16.0 / 13.0, 16.0 / 7.0);
        assert!((pair[0] - low / (low + high)).abs() < 1e-12, "{pair:?}");
    }

    #[test]
    fn a_power_law_without_a_span_is_uniform() {
        let routing = Routing { experts: 64, active: 4 };
        let flat = share_read(routing, Spread::PowerLaw { exponent: 1.2, span: 1.0 }, 10.0);
        assert!((flat - routing.share_read(10.0)).abs() < 1e-12);
    }
}
