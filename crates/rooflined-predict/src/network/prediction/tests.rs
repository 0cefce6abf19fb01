use proptest::prelude::*;

use super::*;
use rooflined_core::board::OperatingPoint;
use rooflined_core::ceilings::datasheet;
use rooflined_core::hardware::registry;
use rooflined_core::units::Hertz;

fn hardware(key: &str) -> &'static Hardware {
    registry().get(key).unwrap()
}

fn convolution(window: f64, cin: f64, cout: f64, positions: f64) -> Layer {
    Layer {
        name: format!("conv {cin} {cout}"),
        kind: if window > 1.0 { LayerKind::Convolution } else { LayerKind::Pointwise },
        flops: 2.0 * window * cin * cout * positions,
        reads: cin * positions,
        writes: cout * positions,
        weights: window * cin * cout,
        inner: window * cin,
        columns: cout,
        window,
        exponentials: cout * positions,
        apart: cout * positions,
        apart_kernels: 1.0,
        quantised: false,
    }
}

/// A few stages, each with half the rows and columns of the one before, for pictures `size` times 32 high and wide.
fn network(size: f64) -> Layers {
    let stage = |index: i32| {
        let (positions, channels) = ((size * 32.0 / 2f64.powi(index)).powi(2), 16.0 * 2f64.powi(index));
        let copy = Layer {
            kind: LayerKind::Copy,
            flops: 0.0,
            weights: 0.0,
            ..convolution(1.0, channels, channels, positions)
        };
        [
            convolution(9.0, channels, channels, positions),
            convolution(1.0, channels, channels, positions),
            copy,
        ]
    };
    let input_elements = 3.0 * (size * 32.0).powi(2);
    Layers {
        name: "stages".to_owned(),
        batch: 1,
        inputs: vec![("images".to_owned(), vec![1, 3, 640, 640])],
        input_elements,
        output_elements: 84.0 * 8400.0,
        parameters: 1e6,
        live_elements: Some(2.0 * input_elements),
        unknown_nodes: 0,
        undescribed: Vec::new(),
        open_inputs: Vec::new(),
        missing: Vec::new(),
        layers: (1..6).flat_map(stage).collect(),
    }
}

fn at(hardware: &Hardware, clock: f64, memory: f64, sm: f64) -> Roofline {
    let of = |part: f64, whole: Hertz| Some(whole * part);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a small number")]
    let sm_online = Some(((f64::from(hardware.sm) * sm) as u32).max(1));
    datasheet(
        hardware,
        &OperatingPoint {
            gpu_clock: of(clock, hardware.gpu_clock),
            memory_clock: hardware.memory_clock.and_then(|whole| of(memory, whole)),
            sm_online,
            ..OperatingPoint::default()
        },
    )
}

fn seconds(key: &str, layers: &Layers, roofline: &Roofline, precision: Precision, batch: u64) -> f64 {
    let of =
        predict_network(layers, NetworkEngine::TensorRt, Some(hardware(key)), roofline, precision, batch);
    of.unwrap().latency.value.get()
}

const BOARDS: [&str; 5] = [
    "jetson-orin-nano-8gb-super",
    "jetson-agx-orin-64gb",
    "jetson-xavier-nx",
    "rtx-3090",
    "jetson-agx-thor-t5000",
];

proptest! {
    #[test]
    fn higher_clocks_and_more_units_are_never_slower(
        board in 0..BOARDS.len(), size in 1.0..40.0f64,
        (clock, memory, sm) in (0.2..1.0f64, 0.3..1.0f64, 0.2..1.0f64),
        (faster, wider, more) in (1.0..2.0f64, 1.0..2.0f64, 1.0..2.0f64),
    ) {
        let (key, layers) = (BOARDS[board], network(size));
        let of = |clock, memory, sm| seconds(key, &layers, &at(hardware(key), clock, memory, sm), Precision::Fp16, 1);
        let slow = of(clock, memory, sm);
        let fast = of((clock * faster).min(1.0), (memory * wider).min(1.0), (sm * more).min(1.0));
        prop_assert!(fast <= slow * (1.0 + 1e-9), "{fast} {slow}");
    }

    #[test]
    fn larger_pictures_and_batches_are_never_faster(
        board in 0..BOARDS.len(), size in 1.0..40.0f64, larger in 1.0..3.0f64, batch in 1..64u64,
    ) {
        let key = BOARDS[board];
        let roofline = at(hardware(key), 1.0, 1.0, 1.0);
        let of = |size, batch| seconds(key, &network(size), &roofline, Precision::Fp16, batch);
        prop_assert!(of(size * larger, 1) >= of(size, 1));
        let (one, several) = (of(size, batch), of(size, batch + 1));
        prop_assert!(several >= one);
        let a_picture = |time: f64, batch: u64| time / f64::from(u32::try_from(batch).unwrap());
        prop_assert!(a_picture(several, batch + 1) <= a_picture(one, batch) * (1.0 + 1e-9));
    }

    #[test]
    fn no_prediction_beats_the_roofline_and_8_bits_gain_less_than_twice(
        board in 0..BOARDS.len(), size in 1.0..60.0f64, batch in 1..16u64,
    ) {
        let (key, layers) = (BOARDS[board], network(size));
        let roofline = at(hardware(key), 1.0, 1.0, 1.0);
        let of = |precision| {
            predict_network(&layers, NetworkEngine::TensorRt, Some(hardware(key)), &roofline, precision, batch).unwrap()
        };
        let (fp16, int8) = (of(Precision::Fp16), of(Precision::Int8));
        for prediction in [&fp16, &int8] {
            prop_assert!(prediction.latency.low >= prediction.roofline_time);
            prop_assert!(prediction.latency.low <= prediction.latency.value);
            prop_assert!(prediction.latency.value <= prediction.latency.high);
        }
        let gain = fp16.latency.value / int8.latency.value;
        prop_assert!((1.0..2.0).contains(&gain), "{gain}");
    }
}

#[test]
fn the_time_is_the_formula() {
    let nano = hardware("jetson-orin-nano-8gb");
    let layers = Layers { layers: vec![convolution(9.0, 64.0, 64.0, 6400.0)], ..network(1.0) };
    let roofline = at(nano, 1.0, 1.0, 1.0);
    let tiles = 6400.0 * 64.0 / (64.0 * 64.0 * 8.0);
    let of_size = (576.0 / (576.0 + 20.8)) * (64.0 / (64.0 + 202.0)) * (tiles / (tiles + 0.75));
    let compute = 2.0 * 9.0 * 64.0 * 64.0 * 6400.0 / (2048.0 * 8.0 * 624.75e6 * 1.453 * of_size);
    let expected = compute + 8_240.0 / 624.75e6;
    let found = seconds("jetson-orin-nano-8gb", &layers, &roofline, Precision::Fp16, 1);
    assert!((found / expected - 1.0).abs() < 1e-9, "{found} {expected}");
    // Three channels are computed as eight.
    assert!(
        (convolution(9.0, 3.0, 16.0, 100.0).padded_flops(8.0) / convolution(9.0, 8.0, 16.0, 100.0).flops
            - 1.0)
            .abs()
            < 1e-12
    );
}

#[test]
fn small_networks_are_bound_by_launches_and_large_ones_by_what_they_compute() {
    let key = "jetson-agx-orin-64gb";
    let roofline = at(hardware(key), 1.0, 1.0, 1.0);
    let of = |size| {
        let of = Some(hardware(key));
        predict_network(&network(size), NetworkEngine::TensorRt, of, &roofline, Precision::Fp16, 1).unwrap()
    };
    let small = of(1.0);
    assert!(small.launch_share() > 0.5, "{}", small.launch_share());
    assert!(small.warnings.iter().any(|warning| warning.contains("CUDA graph")));
    let large = of(60.0);
    assert!(
        large.launch_share() < 0.1 && large.time_of(LayerBound::Compute) > large.time_of(LayerBound::Launch)
    );
    assert!(large.warnings.is_empty(), "{:?}", large.warnings);
}

#[test]
fn doubt_widens_the_interval_and_other_generations_have_the_widest() {
    let slack = |key: &str, precision, batch, clock| {
        let roofline = at(hardware(key), clock, 1.0, 1.0);
        let engine = NetworkEngine::TensorRt;
        let of = predict_network(&network(20.0), engine, Some(hardware(key)), &roofline, precision, batch)
            .unwrap();
        of.latency.high / of.latency.value - 1.0
    };
    let nano = "jetson-orin-nano-8gb-super";
    let known = slack(nano, Precision::Fp16, 1, 1.0);
    assert!((known - 0.12).abs() < 1e-9);
    assert!(slack(nano, Precision::Int8, 1, 1.0) > known && slack(nano, Precision::Int8, 1, 1.0) < 0.25);
    assert!(slack(nano, Precision::Fp16, 4, 1.0) > known);
    assert!(slack(nano, Precision::Fp16, 1, 0.5) > known);
    assert!(slack("jetson-agx-thor-t5000", Precision::Fp16, 1, 1.0) > 0.5);
}

#[test]
fn what_the_accelerator_has_no_unit_for_is_refused_with_what_it_has() {
    let key = "jetson-xavier-nx";
    let roofline = at(hardware(key), 1.0, 1.0, 1.0);
    let ask = |precision, batch, of| {
        predict_network(&network(1.0), NetworkEngine::TensorRt, of, &roofline, precision, batch)
    };
    let refused = ask(Precision::Fp4, 1, Some(hardware(key))).unwrap_err();
    assert!(refused.to_string().contains("fp16") && refused.to_string().contains("int8"), "{refused}");
    assert_eq!(ask(Precision::Fp16, 0, Some(hardware(key))), Err(NetworkError::Batch));
    assert_eq!(ask(Precision::Fp16, 1, None), Err(NetworkError::NeedsGpu));
}
