//! How well the models of operations do on measurements that they were not fitted to.

pub mod gemm;
pub mod moe;

/// The constants of one kernel beside the ceilings of its machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Constants {
    /// Seconds before anything happens.
    pub launch_s: f64,
    /// Part of the nominal bandwidth, at most 1.
    pub bandwidth_ratio: f64,
    /// Part of the nominal peak, at most 1.
    pub utilisation_ratio: f64,
}

/// What one run needs at the nominal ceilings.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ideal {
    /// Seconds for its bytes.
    pub memory: f64,
    /// Seconds for its arithmetic.
    pub compute: f64,
}

impl Constants {
    /// `launch + (memory^4 + compute^4)^(1/4)`.
    #[must_use]
    pub fn time(&self, ideal: Ideal) -> f64 {
        let fourth = |part: f64| part * part * part * part;
        let sum =
            fourth(ideal.memory / self.bandwidth_ratio) + fourth(ideal.compute / self.utilisation_ratio);
        self.launch_s + sum.sqrt().sqrt()
    }

    fn of_logs(logs: [f64; 3]) -> Self {
        Self {
            launch_s: logs[0].exp(),
            bandwidth_ratio: logs[1].min(0.0).exp(),
            utilisation_ratio: logs[2].min(0.0).exp(),
        }
    }

    fn to_logs(self) -> [f64; 3] {
        [self.launch_s, self.bandwidth_ratio, self.utilisation_ratio].map(f64::ln)
    }

    /// The constants of `runs` (what each needs, and what it took), by the sum of a loss of log(model / measured) that
    /// grows as the square for small errors and in proportion for large ones, so that a kernel of another kind does
    /// not bend the rest. `prior` is drawn to as by `prior.1` runs that lie on it.
    #[must_use]
    pub fn fitted(runs: &[(Ideal, f64)], prior: Option<(Self, f64)>) -> Self {
        const SMALL: f64 = 0.1;
        let (centre, pull) = prior.unwrap_or((USUAL, USUAL_WEIGHT));
        let centre = centre.to_logs();
        let cost = |logs: [f64; 3]| {
            let model = Self::of_logs(logs);
            // With a prior there are few runs and none to spare: plain squares, or the prior would outweigh them.
            let loss = |error: f64| match prior {
                Some(_) => error * error,
                None => 2.0 * SMALL * SMALL * ((1.0 + (error / SMALL).powi(2)).sqrt() - 1.0),
            };
            let data: f64 =
                runs.iter().map(|(ideal, measured)| loss((model.time(*ideal) / measured).ln())).sum();
            let away: f64 = logs.iter().zip(centre).map(|(value, centre)| (value - centre).powi(2)).sum();
            data + pull * away
        };
        let starts = LAUNCHES.map(|launch| [launch.ln(), centre[1], centre[2]]);
        let found = starts.map(|start| descend(start, &cost));
        let best = found.iter().min_by(|a, b| cost(**a).total_cmp(&cost(**b)));
        Self::of_logs(*best.unwrap_or(&centre))
    }
}

/// Where the search begins, and what a kernel of which little is known is drawn to.
const USUAL: Constants = Constants { launch_s: 1e-5, bandwidth_ratio: 0.7, utilisation_ratio: 0.6 };
/// How strongly it is drawn there: as by a four-hundredth of a run.
const USUAL_WEIGHT: f64 = 0.0025;
/// Launches that the search begins at, in seconds.
const LAUNCHES: [f64; 3] = [1e-6, 5e-6, 3e-5];

/// Steps along each coordinate and along the last success, halved when none helps.
fn descend(start: [f64; 3], cost: &impl Fn([f64; 3]) -> f64) -> [f64; 3] {
    let (mut at, mut value, mut step) = (start, cost(start), 0.5);
    for _ in 0..2000 {
        let mut moved = false;
        let before = at;
        for coordinate in 0..3 {
            for sign in [1.0, -1.0] {
                let mut next = at;
                next[coordinate] += sign * step;
                let there = cost(next);
                if there < value {
                    (at, value, moved) = (next, there, true);
                    break;
                }
            }
        }
        if moved {
            // On along the valley.
            let next = std::array::from_fn(|coordinate| 2.0 * at[coordinate] - before[coordinate]);
            let there = cost(next);
            if there < value {
                (at, value) = (next, there);
            }
        } else {
            step /= 2.0;
            if step < 1e-5 {
                break;
            }
        }
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_that_made_the_times_are_found_again() {
        let truth = Constants { launch_s: 4e-6, bandwidth_ratio: 0.8, utilisation_ratio: 0.55 };
        let runs: Vec<(Ideal, f64)> = (0..24)
            .map(|index: i32| {
                let ideal =
                    Ideal { memory: 1e-6 * 1.5_f64.powi(index % 12), compute: 2e-7 * 1.6_f64.powi(index) };
                (ideal, truth.time(ideal))
            })
            .collect();
        let found = Constants::fitted(&runs, Some((USUAL, 1e-9)));
        for (found, truth) in found.to_logs().into_iter().zip(truth.to_logs()) {
            assert!((found - truth).abs() < 0.02, "{found} {truth}");
        }
    }

    #[test]
    fn without_runs_the_prior_is_all_there_is() {
        let prior = Constants { launch_s: 2e-5, bandwidth_ratio: 0.5, utilisation_ratio: 0.4 };
        let found = Constants::fitted(&[], Some((prior, 1.0)));
        assert!((found.launch_s / prior.launch_s - 1.0).abs() < 1e-3, "{found:?}");
    }
}
