//! A gap between an expected and a measured rate, split into what several causes take. Pure.
//!
//! Everything is in natural logarithms of rates, in which effects of causes that do not touch each other add up. Of each cause two
//! predictions tell the effect: with it alone, and with all others but not with it. The effect is the mean of both, which is
//! the Shapley value of two causes. What the effects leave of the gap goes to those that are only estimated and to what is
//! unexplained, in proportion to the squares of what each leaves open: the least-squares reconciliation of figures with their
//! sum. Effects that together exceed the gap are lowered in proportion instead, so that more of a cause never gets less.

/// A smaller effect (2 %) does not count: readings of clocks jitter by as much.
pub const LEAST: f64 = 0.02;

/// What one cause does to the rate, as predicted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Effect {
    /// ln(rate without any cause / rate with this one alone).
    pub alone: f64,
    /// ln(rate without this one / rate with all).
    pub removed: f64,
    /// Standard deviation of the effect, where nothing but an estimate tells it.
    pub spread: f64,
}

impl Effect {
    fn value(self) -> f64 {
        self.alone.max(0.0).midpoint(self.removed.max(0.0))
    }
}

/// The part of one cause.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Part {
    /// ln of what it takes of the rate.
    pub taken: f64,
    /// ln of what its removal alone would gain.
    pub gain: f64,
}

/// The parts of all causes, in their order, and what is unexplained. Together they are the gap.
#[derive(Debug, Clone, PartialEq)]
pub struct Split {
    pub parts: Vec<Part>,
    pub unexplained: f64,
}

/// Splits `gap`, ln(expected / measured) of a rate below its interval. `open`: the standard deviation of ln(expected).
#[must_use]
pub fn split(gap: f64, open: f64, effects: &[Effect]) -> Split {
    let explained: f64 = effects.iter().map(|effect| effect.value()).sum();
    let rest = gap - explained;
    let variance: f64 = effects.iter().map(|effect| effect.spread.powi(2)).sum::<f64>() + open.powi(2);
    let taken = |effect: &Effect| {
        let value = effect.value();
        if rest < 0.0 {
            value * gap / explained
        } else if variance > 0.0 {
            value + rest * effect.spread.powi(2) / variance
        } else {
            value
        }
    };
    let part = |effect: &Effect| {
        let taken = taken(effect);
        // Removing a cause that another one hides gains less than what it takes.
        let seen = if effect.value() > 0.0 { effect.removed.max(0.0) / effect.value() } else { 1.0 };
        Part { taken, gain: (taken * seen).min(gap) }
    };
    let parts: Vec<Part> = effects.iter().map(part).collect();
    let unexplained = gap - parts.iter().map(|part| part.taken).sum::<f64>();
    // What rounding leaves is nothing.
    Split { parts, unexplained: if unexplained.abs() < 1e-12 { 0.0 } else { unexplained } }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effect(value: f64, spread: f64) -> Effect {
        Effect { alone: value, removed: value, spread }
    }

    #[test]
    fn the_parts_and_the_rest_are_the_gap() {
        let mut random = fastrand::Rng::with_seed(31);
        for _ in 0..2000 {
            let gap = 2.0 * random.f64() + 0.01;
            let effects: Vec<Effect> = (0..random.usize(0..6))
                .map(|_| Effect { alone: random.f64(), removed: random.f64(), spread: random.f64() * 0.5 })
                .collect();
            let split = split(gap, random.f64() * 0.2, &effects);
            let sum: f64 = split.parts.iter().map(|part| part.taken).sum::<f64>() + split.unexplained;
            assert!((sum - gap).abs() < 1e-9, "{sum} {gap}");
            assert!(split.parts.iter().all(|part| part.taken >= 0.0 && part.gain <= gap + 1e-9));
            assert!(split.unexplained >= 0.0);
        }
    }

    #[test]
    fn more_of_a_cause_never_gets_less() {
        let mut random = fastrand::Rng::with_seed(32);
        for _ in 0..500 {
            let others: Vec<Effect> =
                (0..random.usize(0..4)).map(|_| effect(random.f64(), random.f64() * 0.3)).collect();
            let (gap, open, spread) = (random.f64() * 2.0 + 0.1, random.f64() * 0.2, random.f64() * 0.3);
            let of = |value: f64| {
                let all: Vec<Effect> =
                    std::iter::once(effect(value, spread)).chain(others.iter().copied()).collect();
                split(gap, open, &all).parts[0].taken
            };
            let taken: Vec<f64> = (0..40).map(|step| of(f64::from(step) * 0.05)).collect();
            assert!(taken.windows(2).all(|pair| pair[1] >= pair[0] - 1e-9), "{taken:?}");
        }
    }

    #[test]
    fn one_exact_cause_leaves_the_rest_unexplained_and_one_estimate_takes_it() {
        let exact = split(0.5, 0.05, &[effect(0.3, 0.0)]);
        assert!((exact.parts[0].taken - 0.3).abs() < 1e-12 && (exact.unexplained - 0.2).abs() < 1e-12);
        let guess = split(0.5, 0.05, &[effect(0.3, 0.5)]);
        assert!(guess.parts[0].taken > 0.49, "{guess:?}");
        let hidden = split(0.3, 0.05, &[Effect { alone: 0.3, removed: 0.0, spread: 0.0 }, effect(0.3, 0.0)]);
        assert!(hidden.parts[0].gain.abs() < 1e-12 && hidden.parts[1].gain > 0.1, "{hidden:?}");
        assert_eq!(split(0.4, 0.1, &[]), Split { parts: Vec::new(), unexplained: 0.4 });
    }
}
