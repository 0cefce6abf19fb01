use super::*;
use rooflined_core::board::OperatingPoint;
use rooflined_core::ceilings::datasheet;
use rooflined_core::hardware::registry;
use rooflined_core::precision::WeightFormat;
use rooflined_core::units::{BytesPerSecond, FlopsPerSecond};

/// A product in fp16 on hardware of the registry at its reference clocks.
fn of(key: &str, shape: [u64; 3], format: WeightFormat) -> Result<Tiling, TilingError> {
    let hardware = registry().get(key).unwrap();
    let roofline = datasheet(hardware, &OperatingPoint::default());
    tiling(hardware, &roofline, shape, &NumericFormat::stored(format))
}

fn orin(shape: [u64; 3]) -> Tiling {
    of("jetson-agx-orin-64gb", shape, WeightFormat::Fp16).unwrap()
}

fn cut(tiling: &Tiling, m: u32, n: u32, split: u32) -> &Candidate {
    let same =
        |candidate: &&Candidate| (candidate.tile.m, candidate.tile.n, candidate.tile.split) == (m, n, split);
    tiling.candidates.iter().find(same).unwrap()
}

#[test]
fn tiles_waves_and_what_a_block_reads_are_as_computed_by_hand() {
    let tiling = orin([1000, 4096, 4096]);
    let candidate = cut(&tiling, 128, 128, 1);
    // 8 rows of blocks (the last of them 104 rows deep) by 32 columns.
    assert_eq!(candidate.tiles, 256);
    assert_eq!(tiling.sm, 16);
    let waves = 256.0 / (16.0 * f64::from(candidate.resident));
    assert!((candidate.waves - waves).abs() < 1e-12);
    assert!((candidate.wave_efficiency - waves / waves.ceil()).abs() < 1e-12);
    assert!((candidate.tile_efficiency - 1000.0 / 1024.0).abs() < 1e-12);
    // Both operands of 4096 steps, two bytes each.
    assert_eq!(candidate.tile_bytes, Bytes(2.0 * 4096.0 * (128.0 + 128.0)));
    // 2 x 128 x 128 operations for 2 x (128 + 128) bytes.
    assert!((candidate.tile_intensity - 64.0).abs() < 1e-12);
    let step = 2 * (128 + 128) * candidate.tile.k;
    assert_eq!(candidate.shared_memory, candidate.tile.stages * step);
    assert!(candidate.shared_memory <= tiling.limits.block_shared_memory);
    // 16 rounds of blocks on each of 16 SMs, 2 x 128 x 128 x 4096 operations each, at 2048 a clock; eight
    // warps at least are resident.
    assert!(candidate.resident * candidate.tile.warps >= 8);
    let compute = 16.0 * 2.0 * 128.0 * 128.0 * 4096.0 / (2048.0 * 1.3005e9);
    assert!((candidate.parts.compute.get() / compute - 1.0).abs() < 1e-3, "{:?}", candidate.parts);
    // Without reuse A is read for each column of blocks and B for each row.
    let (a, b, c) = (1000.0 * 4096.0 * 2.0, 4096.0 * 4096.0 * 2.0, 1000.0 * 4096.0 * 2.0);
    assert_eq!(candidate.bytes_without_reuse, Bytes(a * 32.0 + b * 8.0 + c));
    // Neither operand fits into half of 4 MiB: the patch of r x c blocks that reads least.
    let slots = 16 * u64::from(candidate.resident);
    let patch = |down: u64| {
        a * (32_u64.div_ceil((slots / down).clamp(1, 32))) as f64 + b * 8_u64.div_ceil(down) as f64
    };
    let least = [1, 2, 4, 8].map(patch).into_iter().fold(f64::INFINITY, f64::min);
    assert_eq!(candidate.bytes, Bytes(least + c));
}

#[test]
fn an_operand_that_stays_in_the_cache_is_read_once() {
    let tiling = orin([64, 4096, 4096]);
    let (a, b, c) = (64.0 * 4096.0 * 2.0, 4096.0 * 4096.0 * 2.0, 64.0 * 4096.0 * 2.0);
    assert_eq!(cut(&tiling, 64, 64, 1).bytes, Bytes(a + b + c));
    assert!(cut(&tiling, 16, 64, 1).bytes_without_reuse > cut(&tiling, 64, 64, 1).bytes_without_reuse);
}

#[test]
fn a_deep_narrow_product_is_split_and_a_large_one_is_not() {
    let deep = of("h100-sxm", [64, 128, 65_536], WeightFormat::Fp16).unwrap();
    assert!(deep.candidates[0].tile.split > 1, "{:?}", deep.candidates[0]);
    assert_eq!(deep.candidates[0].parts.launch, cut(&deep, 64, 64, 1).parts.launch * 2.0);
    let large = of("h100-sxm", [8192, 8192, 8192], WeightFormat::Fp16).unwrap();
    assert!(large.candidates.iter().all(|candidate| candidate.tile.split == 1));
    assert_eq!(large.candidates[0].limit, TileLimit::Compute);
}

#[test]
fn a_few_rows_are_a_matter_of_memory_and_take_no_deep_tiles() {
    let few = orin([8, 14_336, 4096]);
    assert_eq!(few.candidates[0].limit, TileLimit::Dram);
    assert!(few.candidates[0].tile.m <= 64, "{:?}", few.candidates[0]);
    assert!((cut(&few, 16, 64, 1).tile_efficiency - 0.5).abs() < 1e-12, "8 of 16 rows are padding");
}

#[test]
fn more_sms_never_make_more_waves_nor_more_time() {
    let hardware = registry().get("jetson-agx-orin-64gb").unwrap();
    for shape in [[1, 4096, 4096], [300, 1000, 700], [4096, 4096, 4096]] {
        let at = |sm: u32| {
            let point = OperatingPoint { sm_online: Some(sm), ..OperatingPoint::default() };
            let roofline = datasheet(hardware, &point);
            tiling(hardware, &roofline, shape, &NumericFormat::stored(WeightFormat::Fp16)).unwrap()
        };
        let mut before: Option<Tiling> = None;
        for sm in [4, 6, 8, 14, 16] {
            let now = at(sm);
            if let Some(before) = &before {
                for candidate in now.candidates.iter().filter(|candidate| candidate.tile.split == 1) {
                    let known = cut(before, candidate.tile.m, candidate.tile.n, 1);
                    if known.tile == candidate.tile {
                        assert!(candidate.waves <= known.waves);
                    }
                }
                assert!(now.candidates[0].time <= before.candidates[0].time, "{shape:?} {sm}");
            }
            before = Some(now);
        }
    }
}

#[test]
fn a_larger_product_is_never_faster_and_none_beats_the_roofline() {
    for format in [WeightFormat::Fp16, WeightFormat::Q4KM, WeightFormat::Int8, WeightFormat::Fp32] {
        let mut before = Seconds::ZERO;
        for m in [1, 2, 16, 17, 64, 65, 128, 500, 4096] {
            let tiling = of("jetson-orin-nano-8gb-super", [m, 4096, 4096], format).unwrap();
            let best = &tiling.candidates[0];
            assert!(best.time >= before * (1.0 - 1e-9), "{format} {m}");
            assert!(best.time >= tiling.roofline_time);
            for candidate in &tiling.candidates {
                assert!(candidate.bytes <= candidate.bytes_without_reuse);
                assert!((0.0..=1.0).contains(&candidate.wave_efficiency));
                assert!((0.0..=1.0 + 1e-12).contains(&candidate.tile_efficiency));
                assert!(candidate.occupancy <= 1.0 && candidate.resident >= 1);
                assert!(candidate.registers <= MOST_REGISTERS);
            }
            before = best.time;
        }
    }
}

#[test]
fn every_gpu_has_tiles_for_every_product_that_can_exist() {
    for hardware in registry().entries().filter(|hardware| hardware.sm > 0) {
        for shape in [[1, 1, 1], [1, 1 << 32, 1], [1 << 32, 1 << 32, 1 << 32], [7, 13, 11]] {
            let tiling = of(&hardware.key, shape, WeightFormat::Fp16).unwrap();
            let best = tiling.candidates.first().unwrap();
            assert!(best.time.is_positive() && best.time.get().is_finite(), "{} {shape:?}", hardware.key);
            assert!(tiling.candidates.is_sorted_by(|a, b| a.time <= b.time));
        }
    }
}

#[test]
fn hardware_that_cannot_is_refused_with_what_to_do() {
    let error = of("cpu", [64, 64, 64], WeightFormat::Fp16).unwrap_err();
    assert!(matches!(error, TilingError::Cpu { .. }));
    assert!(error.hint().contains("hardware list"));
    for shape in [[0, 1, 1], [1, 0, 1], [1, 1, 0], [1, 1 << 40, 1]] {
        assert!(matches!(of("gb10", shape, WeightFormat::Fp16), Err(TilingError::Op(_))), "{shape:?}");
    }
    let mut unknown = registry().get("gb10").unwrap().clone();
    unknown.compute_capability = Some((3, 5));
    let roofline = datasheet(&unknown, &OperatingPoint::default());
    let format = NumericFormat::stored(WeightFormat::Fp16);
    let error = tiling(&unknown, &roofline, [8, 8, 8], &format).unwrap_err();
    assert!(matches!(error, TilingError::UnknownCapability { .. }));
    let fp64 = NumericFormat { compute: Precision::Fp64, ..format };
    let orin = registry().get("jetson-orin-nano-8gb").unwrap();
    let roofline = datasheet(orin, &OperatingPoint::default());
    assert!(matches!(tiling(orin, &roofline, [8, 8, 8], &fp64), Err(TilingError::NoUnit { .. })));
}

#[test]
fn a_format_without_a_unit_is_computed_wider_and_says_so() {
    let tiling = of("jetson-orin-nano-8gb", [64, 64, 64], WeightFormat::Fp8E4m3).unwrap();
    assert_eq!(tiling.compute, Precision::Fp16);
    assert_eq!(tiling.warnings.len(), 1);
}

#[test]
fn an_idle_memory_and_a_free_launch_leave_arithmetic() {
    let hardware = registry().get("h100-sxm").unwrap();
    let mut roofline = datasheet(hardware, &OperatingPoint::default());
    roofline.bandwidth.value = BytesPerSecond(1e18);
    roofline.memory_limit = None;
    roofline.launch.value = Seconds::ZERO;
    roofline.compute.values_mut().for_each(|peak| peak.value = FlopsPerSecond(1e12));
    let tiling =
        tiling(hardware, &roofline, [4096, 4096, 4096], &NumericFormat::stored(WeightFormat::Fp16)).unwrap();
    assert_eq!(tiling.candidates[0].limit, TileLimit::Compute);
}
