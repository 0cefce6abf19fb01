//! Figures with their intervals.

use serde::{Deserialize, Serialize};

/// An estimate with its 90 % interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct EstimateAnswer {
    /// Best estimate.
    pub value: f64,
    /// 5 % lies below.
    pub low: f64,
    /// 5 % lies above.
    pub high: f64,
}

/// A power with its 90 % interval and what it covers. Only powers of one scope can be compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(utoipa::ToSchema))]
pub struct PowerAnswer {
    /// Best estimate.
    pub value: f64,
    /// 5 % lies below.
    pub low: f64,
    /// 5 % lies above.
    pub high: f64,
    /// `module`: what the board's supply delivers to the module; `total_input`: module and carrier board; `gpu`: what NVML calls the
    /// power of a card; `rail:NAME`: one rail, such as `rail:package` of a CPU.
    #[cfg_attr(test, schema(value_type = crate::schema::PowerScope))]
    pub scope: String,
}

impl PowerAnswer {
    /// `of` of that scope.
    #[must_use]
    pub fn new(of: EstimateAnswer, scope: &str) -> Self {
        Self { value: of.value, low: of.low, high: of.high, scope: scope.to_owned() }
    }

    /// The figure without its scope.
    #[must_use]
    pub const fn estimate(&self) -> EstimateAnswer {
        EstimateAnswer { value: self.value, low: self.low, high: self.high }
    }
}

impl EstimateAnswer {
    /// `amount` for each of these: the rate of something that takes a time, with its interval turned round.
    #[must_use]
    pub fn rate(amount: f64, time: Self) -> Self {
        Self { value: amount / time.value, low: amount / time.high, high: amount / time.low }
    }

    /// The same divided by a positive number.
    #[must_use]
    pub fn per(self, divisor: f64) -> Self {
        Self { value: self.value / divisor, low: self.low / divisor, high: self.high / divisor }
    }
}
