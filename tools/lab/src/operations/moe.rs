//! Layers of experts measured elsewhere against tokens at once: how many experts do they read together?
//!
//! ```text
//! time = launch + (memory^4 + compute^4)^(1/4)
//! memory ~ experts read x weights of one,   compute ~ tokens x experts a token passes x weights of one
//! ```

use super::{Constants, Ideal, USUAL, USUAL_WEIGHT};
use crate::report::Errors;
use crate::routing::{Spread, share_read};
use rooflined_core::hardware::Hardware;
use rooflined_core::precision::{Precision, WeightFormat};
use rooflined_models::routing::Routing;

/// Tokens at once that a short calibration measures; the others of a curve are predicted.
pub const CALIBRATED_TOKENS: [u64; 3] = [1, 32, 2048];
/// A measured point scatters about half as far as a constant differs between shapes: the weight of the latter.
const PRIOR_WEIGHT: f64 = 0.25;

/// How the benchmark drew the tokens of each expert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Draw {
    /// Loads of a power law with an exponent of 1.2.
    Skewed,
    /// In turn.
    Balanced,
}

/// A rule for the experts that tokens read together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// `E (1 - (1 - k/E)^T)`.
    Uniform,
    /// The same over the power law that the loads were drawn from.
    PowerLaw,
    /// `min(E, T k)`.
    Dealt,
}

impl Rule {
    /// All, the product's own first.
    pub const ALL: [Self; 3] = [Self::Uniform, Self::PowerLaw, Self::Dealt];

    fn spread(self, routing: Routing, tokens: u64) -> Spread {
        match self {
            Self::Uniform => Spread::Uniform,
            Self::Dealt => Spread::Dealt,
            Self::PowerLaw => Spread::PowerLaw { exponent: EXPONENT, span: span(routing, tokens) },
        }
    }
}

/// The exponent that the skewed runs name.
const EXPONENT: f64 = 1.2;

/// Largest over smallest load as ai-dynamo/aiconfigurator draws them: from 1 to 0.8 of the tokens, and from 0.01 to 2
/// where there are more experts than there is for them to do.
#[expect(clippy::cast_precision_loss, reason = "counts of tokens")]
fn span(routing: Routing, tokens: u64) -> f64 {
    if tokens.saturating_mul(routing.active) > routing.experts { 0.8 * tokens as f64 } else { 200.0 }
}

/// One layer in one format with one draw.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Weights of one expert: three matrices.
    pub weights: f64,
    pub routing: Routing,
    /// Storage of the weights.
    pub format: WeightFormat,
    /// What it computes in.
    pub compute: Precision,
    /// How tokens were routed.
    pub draw: Draw,
    /// Tokens at once and measured seconds.
    pub points: Vec<(u64, f64)>,
}

impl Curve {
    fn ideal(&self, hardware: &Hardware, rule: Rule, tokens: u64) -> Option<Ideal> {
        #[expect(clippy::cast_precision_loss, reason = "counts of tokens and experts")]
        let (count, experts, active) =
            (tokens as f64, self.routing.experts as f64, self.routing.active as f64);
        let rate = hardware.rates.get(&self.compute)?;
        let peak = f64::from(hardware.sm) * hardware.gpu_clock.get() * rate;
        let read = experts * share_read(self.routing, rule.spread(self.routing, tokens), count);
        Some(Ideal {
            memory: self.format.bytes(read * self.weights).get() / hardware.bandwidth.get(),
            compute: 2.0 * count * active * self.weights / peak,
        })
    }

    fn runs(&self, hardware: &Hardware, rule: Rule, wanted: impl Fn(u64) -> bool) -> Vec<(u64, Ideal, f64)> {
        let points = self.points.iter().filter(|(tokens, _)| wanted(*tokens));
        points
            .filter_map(|(tokens, time)| Some((*tokens, self.ideal(hardware, rule, *tokens)?, *time)))
            .collect()
    }
}

/// How one rule did on the curves of one draw.
#[derive(Debug, Clone, PartialEq)]
pub struct MoeScore {
    pub draw: Draw,
    pub rule: Rule,
    pub curves: usize,
    /// Three constants fitted to each whole curve: whether the rule has the right form.
    pub explained: Errors,
    /// [`CALIBRATED_TOKENS`] measured and shrunk to what other shapes of the format show, the other points predicted.
    pub predicted: Errors,
}

/// Every rule on every draw; empty without curves that the hardware can run.
#[must_use]
pub fn evaluate(hardware: &Hardware, curves: &[Curve]) -> Vec<MoeScore> {
    let mut scores = Vec::new();
    for draw in [Draw::Skewed, Draw::Balanced] {
        let drawn: Vec<&Curve> = curves.iter().filter(|curve| curve.draw == draw).collect();
        for rule in Rule::ALL {
            let (mut explained, mut predicted) = (Vec::new(), Vec::new());
            for (index, curve) in drawn.iter().enumerate() {
                let others = drawn.iter().enumerate().filter(|(other, _)| *other != index);
                let alike = others.map(|(_, other)| *other).filter(|other| other.format == curve.format);
                explained.extend(whole(hardware, rule, curve));
                predicted.extend(calibrated(hardware, rule, curve, alike));
            }
            let scored = (Errors::of_times(&explained), Errors::of_times(&predicted));
            if let (Some(explained), Some(predicted)) = scored {
                scores.push(MoeScore { draw, rule, curves: drawn.len(), explained, predicted });
            }
        }
    }
    scores
}

fn fitted(runs: &[(u64, Ideal, f64)], prior: Option<(Constants, f64)>) -> Constants {
    let runs: Vec<(Ideal, f64)> = runs.iter().map(|(_, ideal, time)| (*ideal, *time)).collect();
    Constants::fitted(&runs, prior)
}

fn whole(hardware: &Hardware, rule: Rule, curve: &Curve) -> Vec<(f64, f64)> {
    let runs = curve.runs(hardware, rule, |_| true);
    let constants = fitted(&runs, None);
    runs.iter().map(|(_, ideal, time)| (constants.time(*ideal), *time)).collect()
}

fn calibrated<'a>(
    hardware: &Hardware,
    rule: Rule,
    curve: &Curve,
    alike: impl Iterator<Item = &'a Curve>,
) -> Vec<(f64, f64)> {
    let of_others: Vec<_> = alike.flat_map(|other| other.runs(hardware, rule, |_| true)).collect();
    let usual = Some((USUAL, USUAL_WEIGHT));
    let prior = (!of_others.is_empty()).then(|| (fitted(&of_others, usual), PRIOR_WEIGHT));
    let own = curve.runs(hardware, rule, |tokens| CALIBRATED_TOKENS.contains(&tokens));
    let constants = fitted(&own, prior);
    curve
        .runs(hardware, rule, |tokens| !CALIBRATED_TOKENS.contains(&tokens))
        .iter()
        .map(|(_, ideal, time)| (constants.time(*ideal), *time))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rooflined_core::hardware::registry;

    fn curve(experts: u64, draw: Draw, rule: Rule) -> Curve {
        let hardware = registry().get("h100-sxm").unwrap();
        let mut curve = Curve {
            weights: 3.0 * 2048.0 * 768.0,
            routing: Routing { experts, active: 8 },
            format: WeightFormat::Bf16,
            compute: Precision::Bf16,
            draw,
            points: Vec::new(),
        };
        let truth = Constants { launch_s: 2e-5, bandwidth_ratio: 0.7, utilisation_ratio: 0.4 };
        curve.points = [1, 2, 4, 8, 16, 32, 64, 128, 512, 2048]
            .map(|tokens| (tokens, truth.time(curve.ideal(hardware, rule, tokens).unwrap())))
            .to_vec();
        curve
    }

    #[test]
    fn the_rule_that_made_the_times_explains_them_best() {
        let hardware = registry().get("h100-sxm").unwrap();
        for (draw, truth) in [(Draw::Skewed, Rule::PowerLaw), (Draw::Balanced, Rule::Dealt)] {
            let curves = [curve(128, draw, truth), curve(256, draw, truth)];
            let scores = evaluate(hardware, &curves);
            assert_eq!(scores.len(), Rule::ALL.len());
            let of = |rule: Rule| scores.iter().find(|score| score.rule == rule).unwrap();
            for other in Rule::ALL.into_iter().filter(|rule| *rule != truth) {
                assert!(of(truth).explained.mean < 0.5 * of(other).explained.mean, "{draw:?} {other:?}");
            }
            assert!(of(truth).predicted.mean < 0.03, "{:?}", of(truth));
        }
    }

    #[test]
    fn no_curves_have_no_scores() {
        assert_eq!(evaluate(registry().get("h100-sxm").unwrap(), &[]), []);
    }
}
