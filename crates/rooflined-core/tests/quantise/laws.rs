//! Laws of packing.

use proptest::prelude::*;
use rooflined_core::precision::WeightFormat::{self, *};
use rooflined_core::precision::quantise::{Encoded, Refusal, decode, encode, quant_error, without_encoder};

use super::gaussian;

fn encodable() -> impl Iterator<Item = WeightFormat> {
    WeightFormat::ALL.iter().copied().filter(|format| without_encoder(*format).is_none())
}

fn snr(format: WeightFormat, columns: usize, weights: &[f32]) -> f64 {
    let error = quant_error(format, weights.len() / columns, columns, weights).unwrap();
    error.snr_db().unwrap_or(f64::INFINITY)
}

/// Formats of one construction, fewer bits first.
const FAMILIES: &[&[WeightFormat]] = &[
    &[Q2K, Q3KM, Q4KM, Q5KM, Q6K],
    &[Q4_0, Q5_0, Q8_0],
    &[Q4_1, Q5_1],
    &[Int4, Int8, Fp32],
    &[Int4, Int4G128, Int4G64, Int4G32],
    &[Fp8E5m2, Fp8E4m3, Bf16, Fp16, Fp32],
    &[Tf32, Fp32],
    &[Mxfp4, Mxfp8, Fp32],
    &[Mxfp4, Nvfp4],
    &[Iq4Xs, Iq4Nl],
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn more_bits_are_never_worse_within_a_family(seed: u64, sigma in 0.01_f32..10.0) {
        let weights: Vec<f32> = gaussian(seed, 8 * 1024).iter().map(|weight| weight * sigma).collect();
        for family in FAMILIES {
            for pair in family.windows(2) {
                let (fewer, more) = (snr(pair[0], 1024, &weights), snr(pair[1], 1024, &weights));
                prop_assert!(fewer <= more, "{} {fewer} dB, {} {more} dB", pair[0], pair[1]);
            }
        }
    }

    #[test]
    fn a_power_of_two_keeps_the_relative_error(seed: u64, power in 0_i32..9) {
        // Nothing near zero and no smaller powers: fp16, and the scales stored in it, keep their precision down to 2^-14.
        let weights: Vec<f32> = gaussian(seed, 2 * 512)
            .iter()
            .map(|weight| weight.signum() * (weight.abs() + 0.05))
            .collect();
        let scaled: Vec<f32> = weights.iter().map(|weight| weight * 2.0_f32.powi(power)).collect();
        for format in encodable() {
            let (one, other) = (snr(format, 512, &weights), snr(format, 512, &scaled));
            prop_assert!((one - other).abs() < 1e-9 || one == other, "{format}: {one} dB and {other} dB");
        }
    }

    #[test]
    fn weights_that_a_format_represents_come_back_exactly(seed: u64) {
        for format in encodable() {
            let weights = representable(format, seed);
            let restored = decode(&encode(format, 2, 256, &weights).unwrap()).unwrap();
            prop_assert_eq!(&restored, &weights, "{}", format);
        }
    }

    #[test]
    fn whatever_the_weights_packing_does_not_fail_and_errors_stay_below_the_weights(
        weights in prop::collection::vec(
            prop_oneof![4 => -1e3_f32..1e3, 1 => Just(0.0), 1 => -1e-38_f32..1e-38, 1 => -6e4_f32..6e4], 256),
    ) {
        for format in encodable() {
            let error = quant_error(format, 1, 256, &weights).unwrap();
            // One bit a weight can be wrong by the mean, which is below the largest; all others by less than it.
            prop_assert!(error.largest_difference <= error.largest * 1.001, "{format}: {error:?}");
        }
    }
}

/// Two rows of 256 weights that the format can store: its codes, times scales that are powers of two.
fn representable(format: WeightFormat, seed: u64) -> Vec<f32> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let power = |rng: &mut fastrand::Rng| 2.0_f32.powi(rng.i32(-4..4));
    // Groups of `size`, each of codes `low..=high` with a scale of its own, the first `first` of them given.
    let mut grouped = |size: usize, low: i32, high: i32, first: &[f32]| -> Vec<f32> {
        let mut weights = Vec::new();
        while weights.len() < 512 {
            let scale = power(&mut rng);
            weights.extend((0..size).map(|i| {
                let code = rng.i32(low..=high) as f32;
                first.get(i).copied().unwrap_or(code) * scale
            }));
        }
        weights
    };
    match format {
        Fp32 | Tf32 | Fp16 | Bf16 => grouped(1, -128, 127, &[]),
        // The largest code makes the scale a power of two.
        Fp8E4m3 => grouped(512, -8, 8, &[448.0, 0.015_625, -13.0]),
        Fp8E5m2 => grouped(512, -4, 4, &[57344.0, 0.25, -7.0]),
        Int8 => grouped(256, -127, 127, &[127.0]),
        Int4 => grouped(256, -7, 7, &[-7.0]),
        Int4G32 => grouped(32, -7, 7, &[7.0]),
        Int4G64 => grouped(64, -7, 7, &[-7.0]),
        Int4G128 => grouped(128, -7, 7, &[7.0]),
        Nf4 => grouped(64, -1, 1, &[-1.0, 1.0, 0.079_580_3, 0.722_956_84, -0.394_917_5]),
        Mxfp4 => grouped(32, -4, 4, &[6.0, -0.5, 1.5]),
        Mxfp8 => grouped(32, -16, 16, &[448.0, -0.25, 0.125]),
        // The tensor's largest block has the largest scale; 6 in a block makes its scale exact.
        Nvfp4 => {
            let mut weights = grouped(16, -4, 4, &[6.0, -0.5, 1.5]);
            let most = weights.iter().fold(0.0_f32, |most, weight| weight.abs().max(most)) / 6.0;
            weights[..16].fill(0.0);
            weights[0] = 6.0 * 448.0 * most / 256.0;
            weights
        }
        AwqInt4 | GptqInt4 => grouped(128, -5, 10, &[-5.0, 10.0]),
        Q4_0 => grouped(32, -7, 7, &[-8.0]),
        Q4_1 => grouped(32, -3, 12, &[-3.0, 12.0]),
        Q5_0 => grouped(32, -15, 15, &[-16.0]),
        Q5_1 => grouped(32, 4, 35, &[4.0, 35.0]),
        Q8_0 => grouped(32, -127, 127, &[127.0]),
        Iq4Nl => grouped(32, 1, 1, &[-127.0, -104.0, 113.0, 13.0, 38.0]),
        Tq1_0 | Tq2_0 => grouped(256, -1, 1, &[1.0]),
        Q2_0 => grouped(128, -1, 1, &[-1.0]),
        Q1_0 => {
            let mut sign = fastrand::Rng::with_seed(seed);
            grouped(128, 1, 1, &[]).iter().map(|weight| if sign.bool() { *weight } else { -weight }).collect()
        }
        Q2K => sub_blocks(&mut rng, 16, 15, 0..=3, true),
        Q4KS | Q4KM => sub_blocks(&mut rng, 32, 63, 0..=15, true),
        Q5KS | Q5KM => sub_blocks(&mut rng, 32, 63, 0..=31, true),
        Q3KM => sub_blocks(&mut rng, 16, -32, -4..=3, false),
        Q6K => sub_blocks(&mut rng, 16, -128, -32..=31, false),
        Iq4Xs => sub_blocks(&mut rng, 32, -32, -127..=-127, false),
        other => panic!("add an arm with weights that {other} stores exactly"),
    }
}

/// Super-blocks: whole scales (and minima) up to `most` for every `size` weights, the ends of `codes` in each.
fn sub_blocks(
    rng: &mut fastrand::Rng,
    size: usize,
    most: i32,
    codes: std::ops::RangeInclusive<i32>,
    with_minima: bool,
) -> Vec<f32> {
    let mut weights = Vec::new();
    let (low, high) = (*codes.start(), *codes.end());
    for part in 0..512 / size {
        let is_first = (part * size).is_multiple_of(256);
        let scale = if is_first { most } else { rng.i32(1..most.abs()) * most.signum() };
        let minimum = match (with_minima, is_first) {
            (true, true) => most,
            (true, false) => rng.i32(0..most),
            (false, _) => 0,
        };
        weights.extend((0..size).map(|i| {
            let code = [low, high].get(i).copied().unwrap_or_else(|| rng.i32(codes.clone()));
            (scale * code - minimum) as f32 / 1024.0
        }));
    }
    weights
}

#[test]
fn zeros_are_exact_in_every_format() {
    for format in encodable() {
        let encoded = encode(format, 3, 256, &[0.0; 768]).unwrap();
        assert!(decode(&encoded).unwrap().iter().all(|weight| *weight == 0.0), "{format}");
        assert!(encoded.row_scales.iter().all(|scale| *scale == 0.0), "{format}");
    }
}

#[test]
fn what_is_no_number_is_refused_with_its_place() {
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut weights = vec![0.5; 512];
        weights[300] = bad;
        weights[511] = bad;
        for format in encodable() {
            let found = encode(format, 2, 256, &weights);
            assert_eq!(found, Err(Refusal::NotFinite { count: 2, row: 1, column: 44 }), "{format}");
        }
    }
}

#[test]
fn weights_beyond_a_format_are_refused_and_not_made_infinite() {
    let mut weights = [1.0_f32; 256];
    weights[7] = 3e38;
    for format in encodable() {
        let found = quant_error(format, 1, 256, &weights);
        let has_range =
            matches!(format, Fp32 | Tf32 | Bf16 | Fp8E4m3 | Fp8E5m2 | Int8 | Int4 | Mxfp4 | Mxfp8 | Nvfp4);
        match found {
            Ok(_) => assert!(has_range, "{format}"),
            Err(Refusal::OutOfRange { .. }) => assert!(!has_range, "{format}"),
            Err(other) => panic!("{format}: {other}"),
        }
    }
}

#[test]
fn rows_that_end_within_a_block_are_refused_or_padded_as_the_format_says() {
    let weights = gaussian(1, 3 * 45);
    for format in encodable() {
        let block = format.layout().elements;
        let refuses = matches!(format, AwqInt4 | GptqInt4 | Q1_0 | Q2_0)
            || format.key().starts_with(['q', 'i', 't'])
                && !matches!(format, Int8 | Int4 | Int4G32 | Int4G64 | Int4G128 | Tf32);
        match encode(format, 3, 45, &weights) {
            Ok(encoded) => {
                assert!(!refuses, "{format}");
                let restored = decode(&encoded).unwrap();
                assert_eq!(restored.len(), weights.len(), "{format}");
                let worst = restored.iter().zip(&weights).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(worst < 0.6, "{format}: {worst}");
            }
            Err(refusal) => {
                assert!(refuses, "{format}");
                assert_eq!(refusal, Refusal::Ragged { format, columns: 45, block: block as usize });
            }
        }
    }
}

#[test]
fn nothing_is_packed_into_nothing_and_wrong_sizes_are_refused() {
    for format in encodable() {
        for (rows, columns) in [(0, 256), (3, 0), (0, 0)] {
            let encoded = encode(format, rows, columns, &[]).unwrap();
            assert!(encoded.bytes.is_empty(), "{format}");
            assert_eq!(decode(&encoded), Ok(Vec::new()), "{format}");
        }
        assert!(matches!(encode(format, 2, 256, &[0.0; 256]), Err(Refusal::Size { .. })));
        assert!(matches!(encode(format, usize::MAX, 256, &[]), Err(Refusal::Size { .. })));
    }
    for format in &WeightFormat::ALL {
        let cut = Encoded {
            format: *format,
            rows: 1,
            columns: 256,
            bytes: vec![0],
            row_scales: Vec::new(),
            tensor_scale: 1.0,
        };
        assert!(matches!(decode(&cut), Err(Refusal::Size { .. })), "{format}");
        let huge = Encoded { rows: usize::MAX, bytes: Vec::new(), ..cut };
        assert!(matches!(decode(&huge), Err(Refusal::Size { .. })), "{format}");
    }
}

#[test]
fn formats_without_an_encoder_say_why() {
    for format in WeightFormat::ALL.iter().filter(|format| without_encoder(**format).is_some()) {
        let refusal = encode(*format, 1, 256, &[0.0; 256]).unwrap_err();
        assert!(refusal.to_string().contains("is not implemented: its encoder weighs"), "{refusal}");
    }
}
