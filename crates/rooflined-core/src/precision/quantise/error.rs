//! How far restored weights are from the original ones.

use serde::Serialize;

/// The error of one tensor.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct QuantError {
    /// Weights compared.
    pub elements: u64,
    /// Sum of the squared weights.
    pub signal: f64,
    /// Sum of the squared differences.
    pub noise: f64,
    /// Largest magnitude of a weight.
    pub largest: f64,
    /// Largest magnitude of a difference.
    pub largest_difference: f64,
}

impl QuantError {
    /// Between `original` weights and what became of them, pair by pair.
    #[must_use]
    pub fn between(original: &[f32], restored: &[f32]) -> Self {
        original.iter().zip(restored).fold(Self::default(), |sum, (original, restored)| {
            let (weight, difference) = (f64::from(*original), f64::from(*restored) - f64::from(*original));
            Self {
                elements: sum.elements + 1,
                signal: sum.signal + weight * weight,
                noise: sum.noise + difference * difference,
                largest: sum.largest.max(weight.abs()),
                largest_difference: sum.largest_difference.max(difference.abs()),
            }
        })
    }

    /// Signal-to-noise ratio in dB: 10 log10(sum w^2 / sum (w - w')^2). `None` where nothing was lost.
    #[must_use]
    pub fn snr_db(&self) -> Option<f64> {
        (self.noise > 0.0).then(|| 10.0 * (self.signal / self.noise).log10())
    }

    /// Relative root-mean-square error, sqrt(sum (w - w')^2 / sum w^2): 0 where nothing was lost, `None` where all weights
    /// are zero and still something was.
    #[must_use]
    pub fn relative_rms(&self) -> Option<f64> {
        if self.noise == 0.0 {
            return Some(0.0);
        }
        (self.signal > 0.0).then(|| (self.noise / self.signal).sqrt())
    }

    /// The largest difference as a part of the largest weight; `None` as in [`Self::relative_rms`].
    #[must_use]
    pub fn max_relative(&self) -> Option<f64> {
        if self.largest_difference == 0.0 {
            return Some(0.0);
        }
        (self.largest > 0.0).then(|| self.largest_difference / self.largest)
    }
}

/// The error of a model: the mean of its tensors' relative noise powers, weighted by their elements.
///
/// Tensors of small weights count as much as those of large ones; a sum over the model would hide them.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ModelError {
    elements: f64,
    noise: f64,
    max_relative: f64,
}

impl ModelError {
    /// Adds a tensor of `elements` weights, of which `error` saw all or a sample. A tensor without weights, or one of
    /// zeros that did not stay zeros, has no relative error and is left out.
    pub fn add(&mut self, elements: u64, error: &QuantError) {
        let (Some(rms), Some(most)) = (error.relative_rms(), error.max_relative()) else { return };
        let elements = elements as f64;
        self.elements += elements;
        self.noise += elements * rms * rms;
        self.max_relative = self.max_relative.max(most);
    }

    /// Relative root-mean-square error; `None` without weights.
    #[must_use]
    pub fn relative_rms(&self) -> Option<f64> {
        (self.elements > 0.0).then(|| (self.noise / self.elements).sqrt())
    }

    /// Signal-to-noise ratio in dB; `None` without weights, or where nothing was lost.
    #[must_use]
    pub fn snr_db(&self) -> Option<f64> {
        self.relative_rms().filter(|rms| *rms > 0.0).map(|rms| -20.0 * rms.log10())
    }

    /// The largest difference as a part of its tensor's largest weight; `None` without weights.
    #[must_use]
    pub fn max_relative(&self) -> Option<f64> {
        (self.elements > 0.0).then_some(self.max_relative)
    }
}
