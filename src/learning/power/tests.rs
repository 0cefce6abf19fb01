use super::*;

/// Deterministic numbers in 0..1.
fn numbers(seed: u64) -> impl FnMut() -> f64 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        f64::from(u32::try_from(state >> 32).unwrap()) / f64::from(u32::MAX)
    }
}

fn truth() -> Coefficients {
    Coefficients { static_w: 60.0, byte_j: 110e-12, flop_j: Some(5e-12), weight_j: 40e-12 }
}

fn noisy(next: &mut impl FnMut() -> f64, noise: f64) -> Sample {
    let mut sample =
        Sample { bytes: next() * 1.5e12, flops: next() * 2e13, unpacked: next() * 1e12, power: 1.0 };
    sample.power = sample.predicted(&truth()) * (1.0 + noise * (next() * 2.0 - 1.0));
    sample
}

#[test]
fn a_fit_recovers_known_coefficients_from_noise() {
    for seed in 1..20 {
        let mut next = numbers(seed);
        let samples: Vec<Sample> = (0..60).map(|_| noisy(&mut next, 0.03)).collect();
        let of = fit(&samples, true);
        for (found, wanted) in
            [(of.static_w, 60.0), (of.byte_j, 110e-12), (of.flop_j.unwrap(), 5e-12), (of.weight_j, 40e-12)]
        {
            assert!((found / wanted - 1.0).abs() < 0.15, "seed {seed}: {of:?}");
        }
    }
}

#[test]
fn coefficients_are_never_negative_whatever_the_rows_say() {
    for seed in 1..50 {
        let mut next = numbers(seed);
        let samples: Vec<Sample> =
            (0..5).map(|_| Sample { power: next() * 100.0, ..noisy(&mut next, 0.0) }).collect();
        let of = fit(&samples, seed % 2 == 0);
        assert!(of.static_w >= 0.0 && of.byte_j >= 0.0 && of.weight_j >= 0.0, "{of:?}");
        assert!(of.flop_j.unwrap_or(0.0) >= 0.0);
    }
    assert_eq!(fit(&[], true), Coefficients { flop_j: Some(0.0), ..Coefficients::default() });
}

#[test]
fn four_kernels_are_the_extremes_and_what_lies_farthest_from_them() {
    let sample = |bytes, flops| Sample { bytes, flops, unpacked: 0.0, power: 1.0 };
    let kernels = [
        sample(10.0, 1.0),
        sample(9.9, 2.0),
        sample(9.5, 9.0),
        sample(5.0, 9.5),
        sample(1.0, 10.0),
        sample(1.1, 9.9),
    ];
    let chosen = four_points(&kernels);
    assert_eq!(&chosen[..2], &[0, 4]);
    assert_eq!(chosen.len(), 4);
    assert!(four_points(&kernels[..1]).len() == 1 && four_points(&[]).is_empty());
}

fn point(mode: &str, clock: f64, scale: f64) -> Point {
    let run = |model: &str, unpacked: f64, speed: f64| {
        let mut sample = Sample { bytes: unpacked * 0.6, flops: 0.0, unpacked, power: 0.0 };
        let of = Coefficients { weight_j: 40e-12 * scale, byte_j: 110e-12 * scale, ..truth() };
        sample.power = sample.predicted(&of);
        Measured {
            model: model.to_owned(),
            file: "q4_0".to_owned(),
            decode: true,
            tokens_per_s: speed,
            sample,
        }
    };
    Point {
        hardware: "a".to_owned(),
        rails: Rails::Module,
        mode: mode.to_owned(),
        clock,
        sm: 8,
        memory: 1e11,
        precision: Precision::Int8,
        runs: vec![run("x", 1e11, 10.0), run("y", 3e11, 20.0), run("z", 7e11, 5.0)],
        kernels: Vec::new(),
    }
}

#[test]
fn exact_powers_of_a_left_out_model_are_predicted_exactly() {
    let errors = left_out_errors(&point("a", 1e9, 1.0));
    assert_eq!(errors.len(), 3);
    assert!(errors.iter().all(|(_, error)| error.abs() < 1e-6), "{errors:?}");
}

#[test]
fn the_slope_of_the_voltage_is_found_again() {
    let slope = 0.4;
    let of = |mode, clock: f64| {
        let voltage = 1.0 + slope * (clock - 1e9) / 1e9;
        point(mode, clock, voltage * voltage)
    };
    let points = [of("1", 4e8), of("2", 6e8), of("3", 8e8), of("4", 1e9)];
    let carried = Carried::of(&points.iter().collect::<Vec<_>>()).unwrap();
    assert!((carried.slope - slope).abs() < 0.01, "{carried:?}");
    assert_eq!(Carried::of(&points.iter().take(2).collect::<Vec<_>>()), None);
}

#[test]
fn models_alike_are_given_their_best_mode() {
    let mut points = [point("slow", 6e8, 1.0), point("fast", 1e9, 1.5)];
    for point in &mut points {
        // Alike in what they draw; how fast they are differs.
        let sample = point.runs[0].sample;
        point.runs.iter_mut().for_each(|run| run.sample = sample);
    }
    points[1].runs.iter_mut().for_each(|run| run.tokens_per_s *= 1.2);
    let choices = choose_modes(&points);
    assert_eq!((choices.len(), choices[0].files, choices[0].missed), (1, 3, 0));
    assert!(choices[0].free.worst < 1e-9, "{choices:?}");
}
