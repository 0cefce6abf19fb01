//! Power coefficients of this machine, from loads that were held while its meter was read.
//!
//! Each operating point has an idle point, loads that read memory, that calculate and that decode. Each is judged by a fit of
//! its own; one set of energies is then fitted to all that pass, as to boards that others measured.

use super::conformal::conformal;
use super::power::{Measured, Point, Sample, fit};
use crate::power::{Coefficients, ErrorsOf, JETSON_VOLTAGE, Place, PowerFile, Rails, Reference};
use rooflined_core::hardware::{Hardware, Kind};
use rooflined_core::precision::Precision;
use rooflined_core::units::Watts;

/// Decodes that a metered point has at least: with fewer nothing is left over to judge the fit by.
const LEAST_DECODES: usize = 3;
/// No meter and no load is steadier than this.
const LEAST_HALF_WIDTH: f64 = 0.03;
/// Beyond this the points contradict each other, and the fit says nothing.
const WORST_HALF_WIDTH: f64 = 0.5;
/// A meter that sees the accelerator shows at least this much more under a load than at idle.
const SEEN: f64 = 1.05;

/// What a held load was there for, and what it did in a second.
#[derive(Debug, Clone, PartialEq)]
pub enum Load {
    /// Nothing ran.
    Idle,
    Bandwidth,
    Compute,
    /// Weights of one format went by.
    Decode(String),
}

/// An operating point with the loads that were held there.
#[derive(Debug, Clone, PartialEq)]
pub struct MeteredPoint {
    /// Power mode; empty where there is none.
    pub name: String,
    pub place: Place,
    /// What the meter covers.
    pub rails: Rails,
    /// What operations are counted in.
    pub precision: Precision,
    /// The loads. Operations of another precision are counted as those of `precision` that take the same energy.
    pub loads: Vec<(Load, Sample)>,
}

/// A metered point that was fitted.
#[derive(Debug, Clone, PartialEq)]
pub struct Fitted {
    pub coefficients: Coefficients,
    /// Relative half-width of the 90 % interval.
    pub half_width_ratio: f64,
    /// Errors that it was taken from.
    pub errors: usize,
}

impl MeteredPoint {
    fn count(&self, wanted: impl Fn(&Load) -> bool) -> usize {
        self.loads.iter().filter(|(load, _)| wanted(load)).count()
    }

    fn power(&self, wanted: impl Fn(&Load) -> bool) -> Option<f64> {
        let powers = self.loads.iter().filter(|(load, _)| wanted(load)).map(|(_, sample)| sample.power);
        powers.reduce(f64::max)
    }

    /// The same as [`Point`], so that it is fitted and carried as published ones are.
    fn point(&self, hardware: &str, size: f64) -> Point {
        let runs = self.loads.iter().map(|(load, sample)| {
            let (model, file) = match load {
                Load::Idle => (String::new(), String::new()),
                Load::Bandwidth => ("bandwidth".to_owned(), String::new()),
                Load::Compute => ("compute".to_owned(), String::new()),
                Load::Decode(format) => ("decode".to_owned(), format.clone()),
            };
            let decode = matches!(load, Load::Decode(_));
            Measured { model, file, decode, tokens_per_s: 0.0, lab: String::new(), sample: *sample }
        });
        Point {
            hardware: hardware.to_owned(),
            rails: self.rails,
            mode: self.name.clone(),
            place: self.place,
            size,
            precision: self.precision,
            runs: runs.collect(),
            kernels: Vec::new(),
        }
    }

    /// What power costs here.
    ///
    /// # Errors
    /// Too few loads, a meter that does not see them, or loads that contradict each other; in words.
    pub fn fit(&self) -> Result<Fitted, String> {
        for (what, wanted, least) in [
            ("idle", self.count(|load| *load == Load::Idle), 1),
            ("bandwidth", self.count(|load| *load == Load::Bandwidth), 1),
            ("compute", self.count(|load| *load == Load::Compute), 1),
            ("decode", self.count(|load| matches!(load, Load::Decode(_))), LEAST_DECODES),
        ] {
            if wanted < least {
                return Err(format!("{wanted} points of {what} have a power, {least} are wanted"));
            }
        }
        let (idle, loaded) = (self.power(|load| *load == Load::Idle), self.power(|load| *load != Load::Idle));
        if let (Some(idle), Some(loaded)) = (idle, loaded)
            && loaded < idle * SEEN
        {
            return Err(format!(
                "the meter does not see the load: {idle:.2} W at idle, {loaded:.2} W at most under it"
            ));
        }
        let here = reference_of(None, &[self.place]);
        let point = self.point("", here.size);
        let factors = point.factors(&here);
        let coefficients = fit(&[&point], &here, |_, _| false).at(&factors);
        for (what, value) in
            [("standing still", coefficients.idle_w), ("an operation", coefficients.flop_j.unwrap_or(0.0))]
        {
            if value <= 0.0 {
                return Err(format!("the points leave no energy for {what}: they contradict each other"));
            }
        }
        let errors = point.runs.iter().filter(|run| !run.is_idle()).map(|run| {
            // Without one of the others a coefficient would be unknown: they are judged by the fit itself.
            let without = |of: &Measured| run.decode && of == run;
            run.sample.error(&fit(&[&point], &here, |_, of| without(of)).at(&factors))
        });
        let errors: Vec<f64> = errors.collect();
        // The largest of n holds n / (n + 1) of what follows; fewer than ten errors have no better bound.
        let largest = errors.iter().fold(0.0_f64, |most, error| most.max(error.abs())).exp_m1();
        let half_width_ratio = conformal(errors.iter().copied()).unwrap_or(largest).max(LEAST_HALF_WIDTH);
        if half_width_ratio.is_nan() || half_width_ratio > WORST_HALF_WIDTH {
            return Err(format!(
                "the points are {:.0} % off what fits them best, at most {:.0} % is believed",
                half_width_ratio * 100.0,
                WORST_HALF_WIDTH * 100.0
            ));
        }
        Ok(Fitted { coefficients, half_width_ratio, errors: errors.len() })
    }
}

/// Where the energies of a machine are stated: at its full configuration; of a CPU, or a machine that nobody knows, at the
/// most that was measured of each.
fn reference_of(hardware: Option<&Hardware>, places: &[Place]) -> Reference {
    let most = |of: fn(&Place) -> f64| places.iter().map(of).fold(0.0, f64::max);
    let clock_hz = most(|place| place.clock_hz);
    match hardware.map(Reference::of) {
        Some(full) => Reference { clock_hz: clock_hz.max(full.clock_hz), ..full },
        // A machine outside the registry is taken to follow the voltage of a Jetson.
        None => Reference {
            clock_hz,
            workers: places.iter().map(|place| place.workers).max().unwrap_or(1),
            memory_bytes_per_s: most(|place| place.memory_bytes_per_s),
            size: 1.0,
            voltage_slope: JETSON_VOLTAGE.0,
            voltage_floor: JETSON_VOLTAGE.1,
        },
    }
}

/// What power costs at all metered points that can be fitted and whose meter covers the same as that of the first of them, and
/// why the others cannot be, by position. `hardware` = the accelerator, where it is no CPU and known.
#[must_use]
pub fn power_file(
    key: &str,
    metered_points: &[MeteredPoint],
    hardware: Option<&Hardware>,
) -> (Option<PowerFile>, Vec<(usize, String)>) {
    let (mut refused, mut fitted) = (Vec::new(), Vec::<(&MeteredPoint, Fitted)>::new());
    for (index, metered) in metered_points.iter().enumerate() {
        match (metered.fit(), fitted.first()) {
            (Err(why), _) => refused.push((index, why)),
            (Ok(_), Some((first, _)))
                if first.rails != metered.rails || first.precision != metered.precision =>
            {
                refused.push((
                    index,
                    format!(
                        "its meter covers {}, that of newer points {}",
                        metered.rails.key(),
                        first.rails.key()
                    ),
                ));
            }
            (Ok(fit), _) => fitted.push((metered, fit)),
        }
    }
    let Some((first, _)) = fitted.first() else { return (None, refused) };
    let (rails, precision) = (first.rails, first.precision);
    fitted.sort_by(|a, b| a.0.place.clock_hz.total_cmp(&b.0.place.clock_hz));
    let places: Vec<Place> = fitted.iter().map(|(metered, _)| metered.place).collect();
    let hardware = hardware.filter(|_| rails != Rails::Package);
    let reference = reference_of(hardware, &places);
    let points: Vec<Point> = fitted.iter().map(|(metered, _)| metered.point(key, reference.size)).collect();
    let energies = fit(&points.iter().collect::<Vec<_>>(), &reference, |_, _| false);
    // Each point by itself is met within its own half-width; on one curve through all of them it may lie farther off.
    let errors: Vec<f64> = points
        .iter()
        .flat_map(|point| {
            let here = energies.at(&point.factors(&reference));
            point.runs.iter().filter(|run| !run.is_idle()).map(move |run| run.sample.error(&here))
        })
        .collect();
    let own = fitted.iter().map(|(_, fit)| fit.half_width_ratio).fold(0.0, f64::max);
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let cap = hardware.filter(|of| of.kind == Kind::Discrete && rails == Rails::Gpu).and_then(|of| of.tdp);
    let file = PowerFile {
        hardware: key.to_owned(),
        boards: vec![key.to_owned()],
        rails,
        rows: count(points.iter().map(|point| point.runs.len()).sum()),
        half_width_ratio: own.max(conformal(errors.iter().copied()).unwrap_or(0.0)),
        errors: count(fitted.iter().map(|(_, fit)| fit.errors).sum()),
        errors_of: ErrorsOf::Hardware,
        flop_precision: precision,
        cap_w: cap.map(Watts::get),
        energies,
        reference,
        points: places,
    };
    match file.check() {
        Ok(()) => (Some(file), refused),
        Err(problem) => {
            refused.extend((0..metered_points.len()).map(|index| (index, problem.to_string())));
            (None, refused)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::Noise;

    /// What the machine draws at its highest clock; busy cores draw 3 W whatever they do.
    const TRUTH: Coefficients = Coefficients {
        idle_w: 12.0,
        static_w: 15.0,
        byte_j: 90e-12,
        flop_j: Some(6e-12),
        weight_j: 40e-12,
        busy_w: None,
    };

    /// The same at a clock, relative to the highest. The voltage has not reached its floor at 0.6 of it.
    fn truth_at(clock: f64) -> Coefficients {
        let squared = (1.0_f64 - 0.4 * (1.0 - clock)).max(0.835).powi(2);
        let idle_w = TRUTH.idle_w * (0.7 + 0.3 * squared);
        Coefficients {
            idle_w,
            static_w: idle_w + 3.0 * clock * squared,
            byte_j: TRUTH.byte_j,
            flop_j: TRUTH.flop_j.map(|flop| flop * squared),
            weight_j: TRUTH.weight_j * squared,
            busy_w: None,
        }
    }

    /// Loads of a machine of 100 GB/s and 2 TFLOP/s at a clock, relative to the highest.
    fn metered_point(name: &str, clock: f64, seed: u64, noise: f64) -> MeteredPoint {
        let truth = truth_at(clock);
        let mut random = Noise::new(seed);
        let mut load = |load: Load, bytes: f64, flops: f64, dequantized: f64| {
            let mut sample = Sample { bytes, flops: flops * clock, dequantized, power: 1.0 };
            let watts = if load == Load::Idle { truth.idle_w } else { sample.predicted(&truth) };
            sample.power = watts * (1.0 + noise * random.normal());
            (load, sample)
        };
        let decode = |format: &str| Load::Decode(format.to_owned());
        let loads = vec![
            load(Load::Idle, 0.0, 0.0, 0.0),
            load(Load::Bandwidth, 100e9, 0.0, 0.0),
            load(Load::Compute, 0.0, 2e12, 0.0),
            load(decode("fp16"), 95e9, 95e9, 0.0),
            load(decode("int8"), 93e9, 186e9, 93e9),
            load(decode("q8_0"), 80e9, 150e9, 75e9),
            load(decode("int4"), 70e9, 280e9, 140e9),
            load(decode("q4_0"), 60e9, 213e9, 107e9),
        ];
        MeteredPoint {
            name: name.to_owned(),
            place: Place { clock_hz: clock * 1e9, workers: 8, memory_bytes_per_s: 120e9 },
            rails: Rails::Module,
            precision: Precision::Fp16,
            loads,
        }
    }

    fn within(found: f64, truth: f64, ratio: f64) -> bool {
        (found / truth - 1.0).abs() <= ratio
    }

    #[test]
    fn exact_points_give_back_the_coefficients_that_made_them() {
        let fit = metered_point("a", 1.0, 1, 0.0).fit().unwrap();
        let of = fit.coefficients;
        assert!(within(of.static_w, TRUTH.static_w, 1e-6) && within(of.byte_j, TRUTH.byte_j, 1e-6), "{of:?}");
        assert!(within(of.flop_j.unwrap(), 6e-12, 1e-6) && within(of.weight_j, TRUTH.weight_j, 1e-6));
        assert!((fit.half_width_ratio - LEAST_HALF_WIDTH).abs() < 1e-12, "no better than a meter is");
    }

    #[test]
    fn coefficients_come_back_from_noisy_points_and_power_stays_inside_its_interval() {
        let (mut inside, mut all) = (0, 0);
        for seed in 1..=200 {
            let fit = metered_point("a", 1.0, seed, 0.01).fit().unwrap();
            let of = fit.coefficients;
            assert!(within(of.idle_w, TRUTH.idle_w, 0.06), "{of:?}");
            // What stands while cores are busy and what goes with the bytes cannot be told apart as well as their sum.
            for (bytes, flops, dequantized) in [(100e9, 0.0, 0.0), (0.0, 2e12, 0.0), (50e9, 8e11, 3e10)] {
                let unseen = Sample { bytes, flops, dequantized, power: 1.0 };
                assert!(within(unseen.predicted(&of), unseen.predicted(&TRUTH), 0.06), "{of:?}");
            }
            let unseen = Sample { bytes: 85e9, flops: 1.5e11, dequantized: 60e9, power: 0.0 };
            let error = unseen.predicted(&of) / unseen.predicted(&TRUTH) - 1.0;
            inside += u32::from(error.abs() <= fit.half_width_ratio);
            all += 1;
        }
        assert!(inside * 10 >= all * 9, "{inside} of {all}");
    }

    #[test]
    fn too_few_or_blind_or_contradicting_points_are_refused_with_the_reason() {
        let mut few = metered_point("a", 1.0, 1, 0.01);
        few.loads.truncate(5);
        assert!(few.fit().unwrap_err().contains("2 points of decode"));
        let mut no_idle = metered_point("a", 1.0, 1, 0.01);
        no_idle.loads.remove(0);
        assert!(no_idle.fit().unwrap_err().contains("0 points of idle"));
        let mut blind = metered_point("a", 1.0, 1, 0.0);
        blind.loads.iter_mut().for_each(|(_, sample)| sample.power = 12.0);
        assert!(blind.fit().unwrap_err().contains("does not see the load"));
        let mut absurd = metered_point("a", 1.0, 1, 0.0);
        absurd.loads[4].1.power *= 9.0;
        let why = absurd.fit().unwrap_err();
        assert!(why.contains("off what fits") || why.contains("no energy"), "{why}");
    }

    #[test]
    fn meters_of_other_rails_are_never_mixed() {
        let mut other = metered_point("b", 0.8, 2, 0.0);
        other.rails = Rails::VddCpuGpuCv;
        let (file, refused) = power_file("x", &[metered_point("a", 1.0, 1, 0.0), other], None);
        assert_eq!(file.unwrap().points.len(), 1);
        assert!(refused[0].0 == 1 && refused[0].1.contains("vdd_cpu_gpu_cv"), "{refused:?}");
        assert_eq!(power_file("x", &[], None), (None, Vec::new()));
    }

    #[test]
    fn one_set_of_energies_meets_every_clock_and_those_between() {
        let metered_points: Vec<MeteredPoint> = [(1.0, "a"), (0.8, "b"), (0.4, "d")]
            .map(|(clock, name)| metered_point(name, clock, 3, 0.0))
            .to_vec();
        let (file, refused) = power_file("x", &metered_points, None);
        assert_eq!(refused, []);
        let file = file.unwrap();
        let clocks: Vec<_> = file.points.iter().map(|place| place.clock_hz).collect();
        assert_eq!(clocks, [4e8, 8e8, 1e9]);
        for clock in [0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0] {
            let place = Place { clock_hz: clock * 1e9, ..file.points[0] };
            let (of, truth) = (file.energies.at(&file.reference.own_factors(&place)), truth_at(clock));
            for (found, wanted) in
                [(of.idle_w, truth.idle_w), (of.static_w, truth.static_w), (of.weight_j, truth.weight_j)]
            {
                assert!(within(found, wanted, 1e-3), "{clock}: {of:?} {truth:?}");
            }
        }
    }
}
