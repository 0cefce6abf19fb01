//! Packing against known answers: scalar conversions, GGUF blocks, and the product's own layouts.

use rooflined_core::precision::WeightFormat;
use rooflined_core::precision::quantise::{
    Encoded, decode, decode_e2m1, decode_e4m3, decode_e5m2, decode_e8m0, encode, encode_bf16, encode_e2m1,
    encode_e4m3, encode_e5m2, encode_fp16, encode_tf32,
};

fn lines(text: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    text.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(' ').collect())
}

fn bytes(hex: &str) -> Vec<u8> {
    if hex == "-" {
        return Vec::new();
    }
    (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect()
}

fn floats(hex: &str) -> Vec<f32> {
    bytes(hex).chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
}

fn bits(weights: &[f32]) -> Vec<u32> {
    weights.iter().map(|weight| weight.to_bits()).collect()
}

/// A packed matrix of a line: bytes, and scales where the line has them.
fn packed(line: &[&str]) -> Encoded {
    Encoded {
        format: line[1].parse().unwrap(),
        rows: line[2].parse().unwrap(),
        columns: line[3].parse().unwrap(),
        bytes: bytes(line[5]),
        row_scales: line.get(6).map_or_else(Vec::new, |hex| floats(hex)),
        tensor_scale: line.get(7).map_or(1.0, |hex| floats(hex)[0]),
    }
}

#[test]
fn scalar_conversions_round_and_saturate_as_the_reference_does() {
    let mut seen = 0;
    for line in lines(include_str!("../vectors/scalars.txt")) {
        let code = u32::from_str_radix(line[3], 16).unwrap();
        if line[0] == "value" {
            let decode: fn(u8) -> f32 = match line[1] {
                "e4m3" => decode_e4m3,
                "e5m2" => decode_e5m2,
                "e2m1" => decode_e2m1,
                "e8m0" => decode_e8m0,
                other => panic!("{other}"),
            };
            let value = decode(u8::try_from(code).unwrap());
            match line[2] {
                "nan" => assert!(value.is_nan(), "{line:?}"),
                hex => assert_eq!(value.to_bits(), u32::from_str_radix(hex, 16).unwrap(), "{line:?}"),
            }
        } else {
            let value = f32::from_bits(u32::from_str_radix(line[2], 16).unwrap());
            let found = match line[1] {
                "e4m3" => encode_e4m3(value).into(),
                "e5m2" => encode_e5m2(value).into(),
                "e2m1" => encode_e2m1(value).into(),
                "bf16" => encode_bf16(value).into(),
                "fp16" => encode_fp16(value).into(),
                "tf32" => encode_tf32(value).to_bits(),
                other => panic!("{other}"),
            };
            assert_eq!(found, code, "{value} {line:?}");
        }
        seen += 1;
    }
    assert!(seen > 5000, "{seen}");
}

#[test]
fn what_is_no_number_keeps_being_none_and_infinities_saturate() {
    for (value, e4m3, e5m2) in [(f32::INFINITY, 0x7e, 0x7b), (f32::NEG_INFINITY, 0xfe, 0xfb)] {
        assert_eq!(encode_e4m3(value), e4m3);
        assert_eq!(encode_e5m2(value), e5m2);
    }
    assert!(decode_e4m3(encode_e4m3(f32::NAN)).is_nan() && decode_e5m2(encode_e5m2(f32::NAN)).is_nan());
    assert!(decode_e4m3(encode_e4m3(-f32::NAN)).is_nan() && encode_tf32(f32::NAN).is_nan());
    assert_eq!(encode_tf32(f32::NEG_INFINITY), f32::NEG_INFINITY);
}

/// Every line of the two files: what is packed, and what the packed bytes mean.
#[test]
fn blocks_are_packed_and_restored_to_the_bit() {
    let mut formats: Vec<WeightFormat> = Vec::new();
    let text = [include_str!("../vectors/gguf.txt"), include_str!("../vectors/definitions.txt")];
    for line in text.into_iter().flat_map(lines) {
        let known = packed(&line);
        let (format, weights) = (known.format, floats(line[4]));
        if line[0] != "decode" {
            let found = encode(format, known.rows, known.columns, &weights).unwrap();
            let block = known.bytes.len() / known.rows;
            for (row, (found, known)) in found.bytes.chunks(block).zip(known.bytes.chunks(block)).enumerate()
            {
                assert_eq!(found, known, "{format} row {row}");
            }
            assert_eq!(found, known, "{format}");
        }
        let restored = match line[0] {
            "decode" => weights,
            "both" => floats(line[8]),
            _ => continue,
        };
        assert_eq!(bits(&decode(&known).unwrap()), bits(&restored), "{format} {:?}", &line[..4]);
        formats.push(format);
    }
    formats.sort_unstable();
    formats.dedup();
    // All but the four that store the value itself.
    let missing: Vec<_> = WeightFormat::ALL.iter().filter(|format| !formats.contains(format)).collect();
    assert_eq!(missing, [&WeightFormat::Fp32, &WeightFormat::Tf32, &WeightFormat::Fp16, &WeightFormat::Bf16]);
}
