//! The measures of an error, and what formats are expected to lose.

use rooflined_core::precision::WeightFormat;
use rooflined_core::precision::quantise::{
    ModelError, QuantError, quality_loss, quant_error, without_encoder,
};

use super::gaussian;

#[test]
fn the_measures_follow_their_formulas() {
    let error = QuantError::between(&[3.0, -4.0, 0.0], &[3.0, -3.5, 0.1]);
    // Sum of squares 25; differences 0.5 and 0.1.
    let noise = 0.25 + f64::from(0.1_f32).powi(2);
    assert_eq!((error.elements, error.signal, error.noise), (3, 25.0, noise));
    assert_eq!(error.snr_db(), Some(10.0 * (25.0 / noise).log10()));
    assert_eq!(error.relative_rms(), Some((noise / 25.0).sqrt()));
    assert_eq!(error.max_relative(), Some(0.5 / 4.0));
}

#[test]
fn nothing_lost_is_no_ratio_and_zeros_have_no_relative_error() {
    let exact = QuantError::between(&[1.0, 2.0], &[1.0, 2.0]);
    assert_eq!((exact.snr_db(), exact.relative_rms(), exact.max_relative()), (None, Some(0.0), Some(0.0)));
    let zeros = QuantError::between(&[0.0], &[0.5]);
    assert_eq!((zeros.relative_rms(), zeros.max_relative()), (None, None));
    let empty = QuantError::between(&[], &[]);
    assert_eq!((empty.snr_db(), empty.relative_rms()), (None, Some(0.0)));
    assert_eq!(ModelError::default().relative_rms(), None);
}

#[test]
fn a_models_error_weighs_its_tensors_by_their_elements_and_not_by_their_magnitude() {
    let (mut model, loud) = (ModelError::default(), QuantError::between(&[100.0], &[90.0]));
    let quiet = QuantError::between(&[0.001], &[0.0012]);
    model.add(3000, &loud);
    model.add(1000, &quiet);
    let expected = ((3000.0 * 0.01 + 1000.0 * quiet.relative_rms().unwrap().powi(2)) / 4000.0).sqrt();
    assert!((model.relative_rms().unwrap() / expected - 1.0).abs() < 1e-12);
    assert!((model.snr_db().unwrap() + 20.0 * expected.log10()).abs() < 1e-9);
    assert_eq!(model.max_relative(), quiet.max_relative());
}

#[test]
fn expected_errors_are_what_gaussian_weights_lose() {
    let (rows, columns) = (64, 4096);
    let weights = gaussian(20_261_121, rows * columns);
    let mut wrong = String::new();
    for format in &WeightFormat::ALL {
        let found = match quant_error(*format, rows, columns, &weights) {
            Ok(error) => error.relative_rms(),
            Err(_) => {
                assert!(without_encoder(*format).is_some(), "{format}");
                None
            }
        };
        let same = match (found, format.expected_error()) {
            (Some(found), Some(expected)) => (found - expected).abs() <= 0.001 * expected,
            (found, expected) => found == expected,
        };
        if !same {
            wrong.push_str(&format!("{format:?} {found:?}\n"));
        }
    }
    assert!(wrong.is_empty(), "computed:\n{wrong}");
}

/// Files of one block type, rounded without looking at activations: perplexity of Llama-3-8B, and the type's own error.
/// Q8_0 is left out, whose loss is smaller than the uncertainty of the perplexity.
#[test]
fn the_loss_grows_with_the_square_of_the_error_of_the_weights() {
    let own = |format: WeightFormat| (format.perplexity().unwrap(), format.expected_error().unwrap());
    let mut sensitivity: Vec<f64> = [
        own(WeightFormat::Q6K),
        own(WeightFormat::Q5KS),
        own(WeightFormat::Q5_1),
        own(WeightFormat::Q5_0),
        own(WeightFormat::Q4KS),
        own(WeightFormat::Q4_1),
        own(WeightFormat::Q4_0),
        // Q3_K_S, whose matrices are all Q3_K.
        (7.863_786, WeightFormat::Q3KM.expected_error().unwrap()),
    ]
    .iter()
    .map(|(perplexity, error)| (perplexity / 6.233_160_f64).ln() / (error * error))
    .collect();
    sensitivity.sort_by(f64::total_cmp);
    let median = f64::midpoint(sensitivity[3], sensitivity[4]);
    let one = quality_loss(1.0).ln_1p();
    assert!((one / median - 1.0).abs() < 0.002, "{one} {median}");
    assert!(sensitivity[0] > 0.7 * median && sensitivity[7] < 1.15 * median, "{sensitivity:?}");
}

#[test]
fn every_format_has_an_expected_loss_and_more_bits_lose_less() {
    use WeightFormat as F;
    for format in F::ALL {
        assert!(format.expected_loss().is_finite() && format.expected_loss() >= 0.0, "{format}");
    }
    for family in [
        &[F::Fp16, F::Int8, F::Int4G32, F::Int4G64, F::Int4G128, F::Int4][..],
        &[F::Bf16, F::Q8_0, F::Q6K, F::Q5KM, F::Q4KM, F::Q3KM, F::Q2K],
        &[F::Q8_0, F::Q5_1, F::Q5_0, F::Q4_1, F::Q4_0],
        &[F::Iq4Xs, F::Iq3S, F::Iq3Xxs, F::Iq2S, F::Iq2Xs, F::Iq2Xxs, F::Iq1M, F::Iq1S],
        &[F::Fp8E4m3, F::Nvfp4, F::Mxfp4],
    ] {
        assert!(family.is_sorted_by(|a, b| a.expected_loss() < b.expected_loss()), "{family:?}");
    }
    assert_eq!(F::Fp32.expected_loss(), 0.0);
    assert!((F::Q4KM.expected_loss() - 0.0279).abs() < 1e-4);
    // A method that looks at activations loses less than the error of rounding says.
    for format in [F::AwqInt4, F::GptqInt4] {
        let rounded = quality_loss(format.expected_error().unwrap());
        assert!((0.02..rounded).contains(&format.expected_loss()), "{format}");
    }
}

/// Relative RMS errors of llama.cpp's own quantisers without an importance matrix (`quantize_row_*_ref` of the sources in
/// the crate llama-cpp-sys-2 0.1.161, gcc 12) on the weights of the test above.
const REFERENCE: &[(WeightFormat, f64)] = &[
    (WeightFormat::Q2K, 0.296_325),
    (WeightFormat::Q3KM, 0.150_702),
    (WeightFormat::Q4KM, 0.071_353),
    (WeightFormat::Q5KM, 0.036_157),
    (WeightFormat::Q6K, 0.017_716),
    (WeightFormat::Iq4Nl, 0.078_744),
    (WeightFormat::Iq4Xs, 0.076_841),
];

#[test]
fn the_search_for_scales_does_not_lose_to_the_references() {
    let weights = gaussian(20_261_121, 64 * 4096);
    for (format, reference) in REFERENCE {
        let found = quant_error(*format, 64, 4096, &weights).unwrap().relative_rms().unwrap();
        assert!(found <= *reference, "{format}: {found}, the reference {reference}");
    }
}
