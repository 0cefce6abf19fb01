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
        Sample { bytes: next() * 1.5e12, flops: next() * 2e13, dequantized: next() * 1e12, power: 1.0 };
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
