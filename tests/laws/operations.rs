//! Laws that hold for every roofline, profile and operation, whatever the numbers.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeMap;

use proptest::prelude::*;
use rooflined_core::ceilings::{Bound, Ceiling, Provenance, Roofline, scaling};
use rooflined_core::operation::Op;
use rooflined_core::precision::{NumericFormat, Precision, WeightFormat};
use rooflined_core::units::{Bytes, BytesPerSecond, Flops, FlopsPerSecond, Hertz, Seconds};
use rooflined_predict::{Engine, EngineProfile, FormatCost, GemmCost, GemmPoint, Prediction, predict};

fn ceiling<R: Copy>(value: R) -> Ceiling<R> {
    Ceiling { value, low: value, high: value, provenance: Provenance::Measured }
}

prop_compose! {
    fn rooflines()(
        bandwidth in 1e9..1e13_f64,
        peak in 1e9..1e16_f64,
        launch in 0.0..1e-3_f64,
        ramp in 0.0..1e-3_f64,
        workers in 1u32..256,
        clock in 1e8..6e9_f64,
    ) -> Roofline {
        Roofline {
            bandwidth: ceiling(BytesPerSecond(bandwidth)),
            memory_limit: None,
            pull_limit: None,
            curve: Vec::new(),
            copy: None,
            triad: None,
            compute: [Precision::Fp32, Precision::Fp16, Precision::Int8]
                .into_iter()
                .map(|precision| (precision, ceiling(FlopsPerSecond(peak))))
                .collect(),
            launch: ceiling(Seconds(launch)),
            ramp: Seconds(ramp),
            workers,
            clock: Some(Hertz(clock)),
        }
    }
}

prop_compose! {
    fn profiles()(
        cycles_per_weight in 1e-3..100.0_f64,
        column_ratio in 0.0..1.5_f64,
        bandwidth_ratio in 0.01..1.0_f64,
        ramp in 0.0..1e-3_f64,
        points in prop::collection::vec((1.0..4096.0_f64, 1e-3..100.0_f64), 0..6),
        repacking in 0.0..10.0_f64,
        half_width_ratio in 0.0..1.0_f64,
    ) -> EngineProfile {
        let cost = FormatCost {
            compute: Precision::Fp32,
            cycles_per_weight,
            column_ratio,
            bandwidth_ratio,
            ramp: Seconds(ramp),
            half_width_ratio,
        };
        let points = points
            .into_iter()
            .map(|(m, time_ratio)| GemmPoint { m, n: 1024.0, k: 1024.0, time_ratio })
            .collect();
        let gemm = GemmCost::new(repacking, bandwidth_ratio, points, half_width_ratio);
        EngineProfile {
            formats: WeightFormat::ALL.iter().map(|format| (*format, cost)).collect(),
            gemm: BTreeMap::from([(Precision::Fp32, gemm)]),
            ..EngineProfile::unknown(Engine::Bare)
        }
    }
}

fn formats() -> impl Strategy<Value = WeightFormat> {
    prop::sample::select(WeightFormat::ALL.to_vec())
}

fn ops() -> impl Strategy<Value = Op> {
    let size = 1u64..20_000;
    prop_oneof![
        (size.clone(), size.clone()).prop_map(|(n, k)| Op::Gemv { n, k }),
        (1u64..2000, size.clone(), size).prop_map(|(m, n, k)| Op::Gemm { m, n, k }),
        (1u64..8, 1u64..8, 1u64..8, 1u64..300, 0u64..5000, 1u64..256, prop::option::of(1u64..4096)).prop_map(
            |(batch, kv_heads, group, query_tokens, context_tokens, head_dim, window)| Op::Attention {
                batch,
                heads: kv_heads * group,
                kv_heads,
                query_tokens,
                context_tokens,
                head_dim,
                window,
            }
        ),
    ]
}

fn run(roofline: &Roofline, profile: &EngineProfile, op: &Op, format: WeightFormat) -> Prediction {
    predict(roofline, profile, op, &NumericFormat::stored(format)).unwrap()
}

proptest! {
    #[test]
    fn no_prediction_lies_under_the_physical_bound(
        roofline in rooflines(), profile in profiles(), op in ops(), format in formats(),
    ) {
        let prediction = run(&roofline, &profile, &op, format);
        let cost = op.cost(&NumericFormat::stored(format));
        let peak = roofline.compute(prediction.compute).unwrap().value;
        // max(bytes / bandwidth, work / peak), written out
        let bound = (cost.traffic.get() / roofline.bandwidth.value.get()).max(cost.work.get() / peak.get());
        prop_assert!(prediction.time.low.get() >= bound * (1.0 - 1e-12), "{prediction:?}");
        prop_assert!(prediction.time.low <= prediction.time.value && prediction.time.value <= prediction.time.high);
        prop_assert!(prediction.time.high.get().is_finite());
    }

    #[test]
    fn more_bandwidth_is_never_slower(
        roofline in rooflines(), profile in profiles(), op in ops(), format in formats(), factor in 1.0..100.0_f64,
    ) {
        let mut faster = roofline.clone();
        faster.bandwidth = ceiling(roofline.bandwidth.value * factor);
        let (before, after) = (run(&roofline, &profile, &op, format), run(&faster, &profile, &op, format));
        prop_assert!(after.time.value.get() <= before.time.value.get() * (1.0 + 1e-9));
    }

    #[test]
    fn less_traffic_is_never_slower(
        roofline in rooflines(), profile in profiles(), n in 1u64..20_000, k in 1u64..20_000, format in formats(),
    ) {
        // Same shape, same dequantization cost, fewer bits a weight.
        let wide = run(&roofline, &profile, &Op::Gemv { n, k }, WeightFormat::Fp32);
        let mut numeric = NumericFormat::stored(format);
        numeric.activations = WeightFormat::Fp32;
        let narrow = predict(&roofline, &profile, &Op::Gemv { n, k }, &numeric).unwrap();
        prop_assert!(narrow.cost.traffic <= wide.cost.traffic);
        prop_assert!(narrow.time.value.get() <= wide.time.value.get() * (1.0 + 1e-9));
    }

    #[test]
    fn a_larger_operation_is_never_faster(
        roofline in rooflines(), profile in profiles(), n in 1u64..20_000, k in 1u64..20_000, more in 0u64..5000,
        format in formats(),
    ) {
        let small = run(&roofline, &profile, &Op::Gemv { n, k }, format);
        let large = run(&roofline, &profile, &Op::Gemv { n: n + more, k }, format);
        prop_assert!(large.time.value.get() >= small.time.value.get() * (1.0 - 1e-9));
    }

    #[test]
    fn memory_and_compute_time_meet_at_the_ridge(roofline in rooflines(), bytes in 1.0..1e12_f64) {
        let ridge = roofline.ridge(Precision::Fp16).unwrap();
        let work = ridge * Bytes(bytes);
        let memory = Bytes(bytes) / roofline.bandwidth.value;
        let compute = work / roofline.compute(Precision::Fp16).unwrap().value;
        prop_assert!((memory / compute - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_faster_clock_never_lowers_a_ceiling(
        roofline in rooflines(), clock in 1e8..6e9_f64, factor in 1.0..10.0_f64, workers in 1u32..256,
    ) {
        let slow = scaling::to_clock(&roofline, workers, Some(Hertz(clock)));
        let fast = scaling::to_clock(&roofline, workers, Some(Hertz(clock * factor)));
        // A change of under half a percent is within what a clock reading is worth and scales nothing.
        prop_assert!(fast.bandwidth.value.get() >= slow.bandwidth.value.get() * (1.0 - 1e-9));
        for (precision, ceiling) in &slow.compute {
            prop_assert!(fast.compute[precision].value.get() >= ceiling.value.get() * (1.0 - 0.006));
        }
        prop_assert!(fast.launch.value.get() <= slow.launch.value.get() * (1.0 + 0.006));
    }

    #[test]
    fn more_cores_never_lower_a_ceiling(roofline in rooflines(), few in 1u32..128, more in 0u32..128) {
        let small = scaling::to_clock(&roofline, few, roofline.clock);
        let large = scaling::to_clock(&roofline, few + more, roofline.clock);
        prop_assert!(large.bandwidth.value.get() >= small.bandwidth.value.get() * (1.0 - 1e-9));
        for (precision, ceiling) in &small.compute {
            prop_assert!(large.compute[precision].value.get() >= ceiling.value.get() * (1.0 - 1e-9));
        }
    }

    #[test]
    fn neighbours_taking_bandwidth_never_make_anything_faster(
        roofline in rooflines(), profile in profiles(), op in ops(), format in formats(), left in 0.01..1.0_f64,
    ) {
        let alone = run(&roofline, &profile, &op, format);
        let crowded = run(&roofline, &profile.clone().with_bandwidth_drift(left), &op, format);
        prop_assert!(crowded.time.value.get() >= alone.time.value.get() * (1.0 - 1e-9));
        prop_assert_eq!(crowded.roofline_time, alone.roofline_time);
    }

    #[test]
    fn one_row_of_a_gemm_costs_what_the_gemv_costs(n in 1u64..20_000, k in 1u64..20_000, format in formats()) {
        let numeric = NumericFormat::stored(format);
        prop_assert_eq!(Op::Gemv { n, k }.cost(&numeric), Op::Gemm { m: 1, n, k }.cost(&numeric));
    }

    #[test]
    fn a_window_never_adds_work_or_traffic(op in ops(), format in formats()) {
        let Op::Attention { batch, heads, kv_heads, query_tokens, context_tokens, head_dim, window: Some(_) } = op else {
            return Ok(());
        };
        let full = Op::Attention { batch, heads, kv_heads, query_tokens, context_tokens, head_dim, window: None };
        let numeric = NumericFormat::stored(format);
        prop_assert!(op.cost(&numeric).work <= full.cost(&numeric).work);
        prop_assert!(op.cost(&numeric).traffic <= full.cost(&numeric).traffic);
    }

    #[test]
    fn any_dimensions_are_refused_or_predicted_but_never_panic(
        n in any::<u64>(), k in any::<u64>(), m in any::<u64>(), roofline in rooflines(), profile in profiles(),
    ) {
        for op in [Op::Gemv { n, k }, Op::Gemm { m, n, k }] {
            if let Ok(prediction) = predict(&roofline, &profile, &op, &NumericFormat::stored(WeightFormat::Fp32)) {
                prop_assert!(prediction.time.value.is_positive());
            }
        }
    }
}

/// Written out for the figures everyone quotes: 4096 x 4096 at a known bandwidth.
#[test]
fn known_gemv_times_come_out_of_the_predictor() {
    let machine = |bandwidth: f64, peak: f64| Roofline {
        bandwidth: ceiling(BytesPerSecond(bandwidth)),
        memory_limit: None,
        pull_limit: None,
        curve: Vec::new(),
        copy: None,
        triad: None,
        compute: [Precision::Fp16, Precision::Int8]
            .into_iter()
            .map(|p| (p, ceiling(FlopsPerSecond(peak))))
            .collect(),
        launch: ceiling(Seconds::ZERO),
        ramp: Seconds::ZERO,
        workers: 1,
        clock: None,
    };
    let op = Op::Gemv { n: 4096, k: 4096 };
    // The quoted times count weights only; the vectors add two parts in a thousand at most.
    let check = |roofline: &Roofline, format: WeightFormat, quoted: f64| {
        let prediction = run(roofline, &EngineProfile::unknown(Engine::Bare), &op, format);
        assert_eq!(prediction.bound, Bound::Memory);
        let time = prediction.time.value.get();
        assert!((quoted..quoted * 1.002).contains(&time), "{format}: {time} s, quoted {quoted} s");
    };
    check(&machine(287e9, 62e12), WeightFormat::Fp16, 116.9e-6);
    // 280 µs is widely copied for this one; it counts one byte for each fp16 weight.
    check(&machine(60e9, 2.7e12), WeightFormat::Fp16, 559.2e-6);
    check(&machine(60e9, 2.7e12), WeightFormat::Int8, 279.6e-6);
    let cost = op.cost(&NumericFormat::stored(WeightFormat::Fp16));
    assert_eq!(cost.work, Flops(33_554_432.0));
}
