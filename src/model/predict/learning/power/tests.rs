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
    Coefficients { static_w: 60.0, byte_j: 110e-12, flop_j: Some(5e-12), weight_j: 40e-12, busy_w: None }
}

fn noisy(next: &mut impl FnMut() -> f64, noise: f64) -> Sample {
    let mut sample =
        Sample { bytes: next() * 1.5e12, flops: next() * 2e13, dequantized: next() * 1e12, power: 1.0 };
    sample.power = sample.predicted(&truth()) * (1.0 + noise * (next() * 2.0 - 1.0));
    sample
}

#[test]
fn a_fit_recovers_known_coefficients_from_noise() {
    for seed in 1..20 {
        let mut next = numbers(seed);
        let samples: Vec<Sample> = (0..60).map(|_| noisy(&mut next, 0.03)).collect();
        let of = fit(&samples, true, None);
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
        let of = fit(&samples, seed % 2 == 0, None);
        assert!(of.static_w >= 0.0 && of.byte_j >= 0.0 && of.weight_j >= 0.0, "{of:?}");
        assert!(of.flop_j.unwrap_or(0.0) >= 0.0);
    }
    assert_eq!(fit(&[], true, None), Coefficients { flop_j: Some(0.0), ..Coefficients::default() });
}

fn point(mode: &str, clock: f64, scale: f64) -> Point {
    let run = |model: &str, dequantized: f64, speed: f64| {
        let mut sample = Sample { bytes: dequantized * 0.6, flops: 0.0, dequantized, power: 0.0 };
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
        tie: None,
    }
}

#[test]
fn the_slope_of_the_voltage_is_found_again() {
    let slope = 0.4;
    let of = |mode, clock: f64| {
        let voltage = 1.0 + slope * (clock - 1e9) / 1e9;
        point(mode, clock, voltage * voltage)
    };
    let points = [of("1", 4e8), of("2", 6e8), of("3", 8e8), of("4", 1e9)];
    let carried = ClockScaling::of(&points.iter().collect::<Vec<_>>()).unwrap();
    assert!((carried.slope - slope).abs() < 0.01, "{carried:?}");
    assert_eq!(ClockScaling::of(&points.iter().take(2).collect::<Vec<_>>()), None);
}

#[test]
fn rows_of_one_model_are_divided_by_the_proportions_of_another_machine() {
    // Two formats of one model: bytes and weights go together, and so the fit alone gives all to one of them.
    let samples = [(108e9, 176e9), (120e9, 200e9), (96e9, 158e9)].map(|(bytes, dequantized)| {
        let mut sample = Sample { bytes, flops: 0.0, dequantized, power: 0.0 };
        sample.power = sample.predicted(&Coefficients { static_w: 11.0, ..truth() });
        sample
    });
    let idle = Sample { bytes: 0.0, flops: 0.0, dequantized: 0.0, power: 11.0 };
    let samples: Vec<Sample> = samples.into_iter().chain([idle]).collect();
    let tie = Proportions { weight: 40.0 / 110.0, flop: 0.05 };
    let tied = fit(&samples, false, Some(&tie));
    assert!((tied.weight_j / tied.byte_j / tie.weight - 1.0).abs() < 0.05, "{tied:?}");
    assert!((tied.flop_j.unwrap() / tied.byte_j / tie.flop - 1.0).abs() < 0.05, "{tied:?}");
    assert!(samples.iter().all(|sample| sample.error(&tied).abs() < 0.02), "{tied:?}");
}
