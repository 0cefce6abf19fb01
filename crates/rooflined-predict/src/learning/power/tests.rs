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

/// Coefficients are the energies where everything is as at the reference.
fn reference() -> Reference {
    Reference {
        clock_hz: 1e9,
        workers: 8,
        memory_bytes_per_s: 1e11,
        size: 1.0,
        voltage_slope: 0.4,
        voltage_floor: 0.835,
    }
}

fn truth() -> Energies {
    Energies {
        idle_w: 60.0,
        active_w: 15.0,
        byte_j: 110e-12,
        flop_j: Some(5e-12),
        weight_j: 40e-12,
        busy_w: None,
    }
}

fn here() -> Factors {
    reference().own_factors(&Place { clock_hz: 1e9, workers: 8, memory_bytes_per_s: 1e11 })
}

fn noisy(next: &mut impl FnMut() -> f64, noise: f64) -> Sample {
    let mut sample =
        Sample { bytes: next() * 1.5e12, flops: next() * 2e13, dequantized: next() * 1e12, power: 1.0 };
    sample.power = sample.predicted(&truth().at(&here())) * (1.0 + noise * (next() * 2.0 - 1.0));
    sample
}

/// A point of kernels and, where there is one, of the idle machine.
fn point(place: Place, kernels: Vec<Sample>, idle: Option<f64>) -> Point {
    let idle = idle.map(|power| Measured {
        model: String::new(),
        file: String::new(),
        decode: false,
        tokens_per_s: 0.0,
        lab: String::new(),
        sample: Sample::idle(power),
    });
    Point {
        hardware: "a".to_owned(),
        rails: Rails::Module,
        mode: String::new(),
        place,
        size: 1.0,
        precision: Precision::Int8,
        runs: idle.into_iter().collect(),
        kernels,
    }
}

const FULL: Place = Place { clock_hz: 1e9, workers: 8, memory_bytes_per_s: 1e11 };

#[test]
fn a_fit_recovers_known_energies_from_noise() {
    for seed in 1..20 {
        let mut next = numbers(seed);
        let point = point(FULL, (0..60).map(|_| noisy(&mut next, 0.03)).collect(), Some(60.0));
        let of = fit(&[&point], &reference(), |_, _| false);
        for (found, wanted) in [
            (of.idle_w, 60.0),
            (of.idle_w + of.active_w, 75.0),
            (of.byte_j, 110e-12),
            (of.flop_j.unwrap(), 5e-12),
            (of.weight_j, 40e-12),
        ] {
            assert!((found / wanted - 1.0).abs() < 0.15, "seed {seed}: {of:?}");
        }
    }
}

#[test]
fn without_an_idle_machine_half_of_what_stands_is_that_of_busy_cores() {
    let mut next = numbers(3);
    let point = point(FULL, (0..60).map(|_| noisy(&mut next, 0.0)).collect(), None);
    let of = fit(&[&point], &reference(), |_, _| false);
    assert!((of.idle_w - 37.5).abs() < 0.1 && of.idle_w.to_bits() == of.active_w.to_bits(), "{of:?}");
}

#[test]
fn energies_are_never_negative_whatever_the_rows_say() {
    for seed in 1..50 {
        let mut next = numbers(seed);
        let samples: Vec<Sample> =
            (0..5).map(|_| Sample { power: next() * 100.0, ..noisy(&mut next, 0.0) }).collect();
        let point = point(FULL, samples, (seed % 2 == 0).then_some(50.0));
        let of = fit(&[&point], &reference(), |_, _| false);
        let parts = [of.idle_w, of.active_w, of.byte_j, of.flop_j.unwrap_or(0.0), of.weight_j];
        assert!(parts.iter().all(|part| *part >= 0.0 && part.is_finite()), "{of:?}");
    }
    assert_eq!(fit(&[], &reference(), |_, _| false), Energies::default());
}

#[test]
fn points_of_other_clocks_cores_and_boards_are_fitted_by_one_set() {
    let places = [
        (FULL, 1.0),
        (Place { clock_hz: 6e8, workers: 4, ..FULL }, 1.0),
        (Place { clock_hz: 8e8, workers: 4, memory_bytes_per_s: 5e10 }, 0.5),
    ];
    let mut next = numbers(5);
    let points: Vec<Point> = places
        .into_iter()
        .map(|(place, size)| {
            let factors = reference().factors(&place, size, 1e9);
            let of = truth().at(&factors);
            let kernels = (0..8).map(|_| {
                let sample = noisy(&mut next, 0.0);
                Sample { power: sample.predicted(&of), ..sample }
            });
            Point { size, ..point(place, kernels.collect(), Some(of.idle_w)) }
        })
        .collect();
    let of = fit(&points.iter().collect::<Vec<_>>(), &reference(), |_, _| false);
    for (found, wanted) in [(of.idle_w, 60.0), (of.active_w, 15.0), (of.byte_j, 110e-12)] {
        assert!((found / wanted - 1.0).abs() < 1e-6, "{of:?}");
    }
}

#[test]
fn a_lab_counts_once_however_many_rows_it_published() {
    let mut next = numbers(7);
    let mut whole = point(FULL, Vec::new(), None);
    let mut add = |lab: &str, rows: u32, factor: f64| {
        for _ in 0..rows {
            let sample = noisy(&mut next, 0.0);
            let sample = Sample { power: sample.power * factor, ..sample };
            let (model, file, lab) = ("m".to_owned(), String::new(), lab.to_owned());
            whole.runs.push(Measured { model, file, decode: true, tokens_per_s: 1.0, lab, sample });
        }
    };
    add("one", 90, 1.2);
    add("other", 10, 0.8);
    let of = fit(&[&whole], &reference(), |_, _| false).at(&here());
    let mean = |lab: &str| {
        let own = whole.runs.iter().filter(|run| run.lab == lab).map(|run| run.sample.error(&of));
        own.clone().sum::<f64>() / f64::from(u32::try_from(own.count()).unwrap())
    };
    let (high, low) = (mean("one"), mean("other"));
    assert!(high < -0.1 && low > 0.1, "the fit lies between both: {high} {low}");
}
