//! Power coefficients of this machine, from loads that were held while its meter was read.
//!
//! Each operating point has an idle point, loads that read memory, that calculate and that decode. Each is
//! fitted by itself with [`nnls`](super::nnls); how coefficients scale between them is learnt from three or more, as of boards
//! that others measured ([`ClockScaling`]).

use super::conformal::conformal;
use super::power::{ClockScaling, Measured, Point, Sample};
use crate::power::{Coefficients, ErrorsOf, ModeFile, PowerFile, PowerTable, Rails};
use roofline::precision::Precision;

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
    /// Clock of the workers, in hertz.
    pub clock: f64,
    pub workers: u32,
    /// Nominal bandwidth of the memory, in bytes a second.
    pub memory: f64,
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
    fn point(&self, hardware: &str) -> Point {
        let runs = self.loads.iter().map(|(load, sample)| {
            let (model, file) = match load {
                Load::Idle => (String::new(), String::new()),
                Load::Bandwidth => ("bandwidth".to_owned(), String::new()),
                Load::Compute => ("compute".to_owned(), String::new()),
                Load::Decode(format) => ("decode".to_owned(), format.clone()),
            };
            let decode = matches!(load, Load::Decode(_));
            Measured { model, file, decode, tokens_per_s: 0.0, sample: *sample }
        });
        Point {
            hardware: hardware.to_owned(),
            rails: self.rails,
            mode: self.name.clone(),
            clock: self.clock,
            sm: self.workers,
            memory: self.memory,
            precision: self.precision,
            runs: runs.collect(),
            kernels: Vec::new(),
            tie: None,
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
        let point = self.point("");
        let coefficients = point.fit(|_| false);
        for (what, value) in [
            ("standing still", coefficients.static_w),
            ("a byte", coefficients.byte_j),
            ("an operation", coefficients.flop_j.unwrap_or(0.0)),
        ] {
            if value <= 0.0 {
                return Err(format!("the points leave no energy for {what}: they contradict each other"));
            }
        }
        let errors = errors(&point, &coefficients);
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

/// Of each decode, from the fit without it; of the others, without which a coefficient would be unknown, from the fit
/// itself. ln(predicted / measured).
fn errors(point: &Point, whole: &Coefficients) -> Vec<f64> {
    let errors = point.runs.iter().filter(|run| !run.model.is_empty()).map(|run| {
        if run.decode {
            run.sample.error(&point.fit(|left_out| left_out == run))
        } else {
            run.sample.error(whole)
        }
    });
    errors.collect()
}

/// What power costs at all metered points that can be fitted and whose meter covers the same as that of the first of them, and why
/// the others cannot be, by position.
#[must_use]
pub fn power_file(
    hardware: &str,
    metered_points: &[MeteredPoint],
    cap_w: Option<f64>,
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
    fitted.sort_by(|a, b| a.0.clock.total_cmp(&b.0.clock));
    let points: Vec<Point> = fitted.iter().map(|(metered, _)| metered.point(hardware)).collect();
    let carried = ClockScaling::of(&points.iter().collect::<Vec<_>>());
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let file = PowerFile {
        hardware: hardware.to_owned(),
        rails,
        rows: count(points.iter().map(|point| point.runs.len()).sum()),
        half_width_ratio: fitted.iter().map(|(_, fit)| fit.half_width_ratio).fold(0.0, f64::max),
        errors: count(fitted.iter().map(|(_, fit)| fit.errors).sum()),
        errors_of: ErrorsOf::Hardware,
        flop_precision: precision,
        cap_w: cap_w.filter(|_| rails == Rails::Gpu),
        voltage_per_ghz: carried.map(|carried| carried.slope),
        carried_half_width_ratio: carried.map(|carried| carried.half_width),
        below_half_width_ratio: carried.map(|carried| carried.below),
        modes: fitted.iter().map(|(metered, fit)| mode(metered, fit)).collect(),
    };
    match PowerTable::new(file.clone()) {
        Ok(_) => (Some(file), refused),
        Err(problem) => {
            refused.extend((0..metered_points.len()).map(|index| (index, problem.to_string())));
            (None, refused)
        }
    }
}

fn mode(metered: &MeteredPoint, fit: &Fitted) -> ModeFile {
    let of = &fit.coefficients;
    ModeFile {
        name: metered.name.clone(),
        gpu_clock_hz: metered.clock,
        sm_online: metered.workers,
        memory_bytes_per_s: metered.memory,
        rows: u32::try_from(metered.loads.len()).unwrap_or(u32::MAX),
        static_w: of.static_w,
        byte_j: of.byte_j,
        flop_j: of.flop_j,
        weight_j: of.weight_j,
        busy_w: of.busy_w,
        half_width_ratio: Some(fit.half_width_ratio),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::Noise;

    const TRUTH: Coefficients =
        Coefficients { static_w: 12.0, byte_j: 90e-12, flop_j: Some(6e-12), weight_j: 40e-12, busy_w: None };

    /// Loads of a machine of 100 GB/s and 2 TFLOP/s at a clock, relative to the highest, whose dynamic coefficients go
    /// with the square of the voltage.
    fn metered_point(name: &str, clock: f64, seed: u64, noise: f64) -> MeteredPoint {
        let squared = (1.0 + 0.5 * (clock - 1.0)).powi(2);
        let truth = Coefficients {
            static_w: TRUTH.static_w,
            byte_j: TRUTH.byte_j * squared,
            flop_j: TRUTH.flop_j.map(|flop| flop * squared),
            weight_j: TRUTH.weight_j * squared,
            busy_w: None,
        };
        let mut random = Noise::new(seed);
        let mut load = |load, bytes: f64, flops: f64, dequantized: f64| {
            let mut sample = Sample { bytes, flops: flops * clock, dequantized, power: 1.0 };
            sample.power = sample.predicted(&truth) * (1.0 + noise * random.normal());
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
            clock: clock * 1e9,
            workers: 8,
            memory: 120e9,
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
            assert!(within(of.static_w, TRUTH.static_w, 0.06), "{of:?}");
            assert!(within(of.byte_j, TRUTH.byte_j, 0.25), "{of:?}");
            assert!(within(of.flop_j.unwrap(), 6e-12, 0.12), "{of:?}");
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
        assert_eq!(file.unwrap().modes.len(), 1);
        assert!(refused[0].0 == 1 && refused[0].1.contains("vdd_cpu_gpu_cv"), "{refused:?}");
        assert_eq!(power_file("x", &[], None), (None, Vec::new()));
    }

    #[test]
    fn three_places_tell_the_voltage_and_two_do_not() {
        let metered_points: Vec<MeteredPoint> = [(1.0, "a"), (0.8, "b"), (0.6, "c"), (0.4, "d")]
            .map(|(clock, name)| metered_point(name, clock, 3, 0.0))
            .to_vec();
        let (file, refused) = power_file("x", &metered_points, None);
        assert_eq!(refused, []);
        let file = file.unwrap();
        assert!(within(file.voltage_per_ghz.unwrap(), 0.5, 0.02), "{file:?}");
        let clocks: Vec<_> = file.modes.iter().map(|mode| mode.name.as_str()).collect();
        assert_eq!(clocks, ["d", "c", "b", "a"]);
        let (two, _) = power_file("x", &metered_points[..2], None);
        assert_eq!(two.unwrap().voltage_per_ghz, None);
    }
}
