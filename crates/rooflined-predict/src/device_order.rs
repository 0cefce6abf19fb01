//! Orders between cards: of one compute capability, a card with at least the bandwidth, memory, clock, multiprocessors and peaks of
//! another is no slower in any coefficient.
//!
//! Rows of two such cards come from different hosts, builds and models, and fits to them may say otherwise. Where they do, both
//! cards get the mean of the two costs, each weighed by its rows (pool adjacent violators). A card that nobody measured takes
//! the bound from its neighbours.

use std::collections::BTreeMap;

use crate::coefficients::{Coefficient, Coefficients, Scalar};
use rooflined_core::hardware::{Hardware, Kind};
use rooflined_core::precision::Precision;
use rooflined_core::units::Bytes;

/// What a card without rows weighs against one with a single row.
const UNMEASURED: f64 = 1e-3;
/// Clocks that differ by less are the same: reference and boost clocks of one chip.
const SAME_CLOCK: f64 = 0.95;
/// Most rounds of pooling; what is left over after them is settled for the greater card.
const ROUNDS: usize = 100;

/// A card and its logarithms of coefficients.
pub(crate) struct Card<'a> {
    pub hardware: &'a Hardware,
    pub log: Coefficients,
    pub rows: u32,
}

/// Whether `greater` has at least what `lesser` has, and both are of one family.
#[must_use]
pub fn is_no_less(greater: &Hardware, lesser: &Hardware) -> bool {
    let peak = |of: &Hardware, rate: f64| f64::from(of.sm) * of.gpu_clock.get() * rate;
    let has_peak = |(precision, rate): (&Precision, &f64)| {
        greater.rates.get(precision).is_some_and(|own| peak(greater, *own) >= peak(lesser, *rate))
    };
    greater.kind == Kind::Discrete
        && lesser.kind == Kind::Discrete
        && greater.compute_capability.is_some()
        && greater.compute_capability == lesser.compute_capability
        && greater.bandwidth.get() >= lesser.bandwidth.get()
        && greater.memory.map(Bytes::get) >= lesser.memory.map(Bytes::get)
        && greater.gpu_clock.get() >= SAME_CLOCK * lesser.gpu_clock.get()
        && lesser.rates.iter().all(has_peak)
}

/// How a coefficient enters a time: -1 if the time falls with it, else 1, and what a card's data sheet adds to its logarithm.
///
/// What products reach in 8 and 4 bits is counted against those in 16, whose peak differs between cards: so those of `card` go in, which
/// are put in order before.
fn scale(coefficient: Coefficient, card: &Card<'_>) -> (f64, f64) {
    let of = card.hardware;
    let (bandwidth, clock) = (of.bandwidth.get().ln(), of.gpu_clock.get().ln());
    let cycles = f64::from(of.sm).ln() + clock;
    let peak = |precisions: &[Precision]| {
        let rates = precisions.iter().filter_map(|precision| of.rates.get(precision));
        rates.copied().fold(1.0, f64::max).ln() + cycles
    };
    let product = card.log[Coefficient::Scalar(Scalar::Product).index()];
    match coefficient {
        Coefficient::Scalar(scalar) => match scalar {
            Scalar::Bandwidth => (-1.0, bandwidth),
            Scalar::Product | Scalar::Attention | Scalar::Scan => (-1.0, peak(&[Precision::Fp16])),
            Scalar::EightBit => (-1.0, product + peak(&[Precision::Int8, Precision::Fp8])),
            Scalar::FourBit => (-1.0, product + peak(&[Precision::Fp4, Precision::Int4])),
            Scalar::Cache | Scalar::State | Scalar::DenseRule | Scalar::ExpertRule => (1.0, -bandwidth),
            Scalar::Kernel | Scalar::LinearLayer | Scalar::ExpertLayer | Scalar::Sequence => {
                (1.0, -0.5 * clock)
            }
            Scalar::Expert | Scalar::Column | Scalar::Unpack | Scalar::HalfRows => (1.0, 0.0),
        },
        Coefficient::Cycles(_) => (1.0, -cycles),
    }
}

/// Moves the coefficients of `cards` until none is slower than one that has no more.
pub(crate) fn put_in_order(cards: &mut BTreeMap<&str, Card<'_>>) {
    let mut list: Vec<&mut Card<'_>> = cards.values_mut().collect();
    let mut pairs = Vec::new();
    for (greater, a) in list.iter().enumerate() {
        for (lesser, b) in list.iter().enumerate() {
            if greater != lesser && is_no_less(a.hardware, b.hardware) {
                pairs.push((greater, lesser));
            }
        }
    }
    let weight = |rows: u32| if rows > 0 { f64::from(rows) } else { UNMEASURED };
    let weights: Vec<f64> = list.iter().map(|card| weight(card.rows)).collect();
    for coefficient in Coefficient::all() {
        let place = coefficient.index();
        let scales: Vec<(f64, f64)> = list.iter().map(|card| scale(coefficient, card)).collect();
        let bounded = |log: f64| log.clamp(coefficient.least().ln(), coefficient.most().ln());
        let time = |card: &Card<'_>, (sign, offset): (f64, f64)| {
            if sign < 0.0 { -bounded(card.log[place]) - offset } else { bounded(card.log[place]) + offset }
        };
        let mut times: Vec<f64> = list.iter().zip(&scales).map(|(card, scale)| time(card, *scale)).collect();
        let before = times.clone();
        for _ in 0..ROUNDS {
            let mut is_moved = false;
            for &(greater, lesser) in &pairs {
                if times[greater] > times[lesser] + 1e-9 {
                    let [a, b] = [greater, lesser].map(|card| weights[card]);
                    let mean = (a * times[greater] + b * times[lesser]) / (a + b);
                    (times[greater], times[lesser]) = (mean, mean);
                    is_moved = true;
                }
            }
            if !is_moved {
                break;
            }
        }
        for _ in 0..list.len() {
            for &(greater, lesser) in &pairs {
                times[greater] = times[greater].min(times[lesser]);
            }
        }
        for (index, card) in list.iter_mut().enumerate() {
            if (times[index] - before[index]).abs() > 1e-12 {
                let (sign, offset) = scales[index];
                card.log[place] = if sign < 0.0 { -times[index] - offset } else { times[index] - offset };
            }
        }
    }
}
