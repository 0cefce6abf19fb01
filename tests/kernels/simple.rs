//! Streams over memory, launches and single-precision arithmetic.

use crate::device::{Device, Random, Tally, module, singles};

/// Elements of 16 bytes: none, fewer than threads, whole groups of loads and their tails.
fn sizes(threads: usize) -> [usize; 9] {
    [0, 1, 2, threads - 1, threads, threads + 1, 4 * threads, 4 * threads + 3, 9 * threads + threads / 2 + 1]
}

const GRIDS: [u32; 3] = [1, 2, 3];

#[test]
fn streams_touch_each_byte_once_and_compute_what_they_say() {
    let module = module("stream");
    let entry = |name| module.entry(name).unwrap();
    let mut tally = Tally::default();
    let mut random = Random(1);
    for name in ["stream_read", "l2_read"] {
        tally.entry();
        for grid in GRIDS {
            let threads = 256 * grid as usize;
            for (n16, passes) in sizes(threads).into_iter().flat_map(|n16| [(n16, 1_u32), (n16, 3)]) {
                if name == "stream_read" && passes > 1 {
                    continue;
                }
                let what = format!("{name}, {n16} elements, {grid} blocks, {passes} passes");
                let mut device = Device::new();
                let a = device.input(&random.words(4 * n16));
                let out = device.output(4 * threads);
                let mut params = vec![a.param(), (n16 as u64).to_le_bytes().to_vec()];
                if name == "l2_read" {
                    params.push(passes.to_le_bytes().to_vec());
                }
                params.push(out.param());
                let counts = device.launch(entry(name), grid, 256, &params);
                let words = device.words(a);
                let mut sums = vec![0_u32; threads];
                for (i, element) in words.chunks_exact(4).enumerate() {
                    let sum = element.iter().fold(0_u32, |sum, &word| sum.wrapping_add(word));
                    sums[i % threads] = sums[i % threads].wrapping_add(sum.wrapping_mul(passes));
                }
                assert_eq!(device.words(out), sums, "{what}");
                device.assert_written_once(out, &what);
                assert_eq!(counts.global_read, 16 * n16 as u64 * u64::from(passes), "{what}");
                assert_eq!(counts.global_written, 4 * threads as u64, "{what}");
                assert_eq!(counts.fma_flops, 0, "{what}");
                tally.case();
            }
        }
    }
    for name in ["stream_write", "stream_copy", "stream_triad"] {
        tally.entry();
        for grid in GRIDS {
            for n16 in sizes(256 * grid as usize) {
                moved(&mut tally, &module, name, grid, n16, &mut random);
            }
        }
    }
    tally.report("stream");
}

fn moved(tally: &mut Tally, module: &ptx::Module, name: &str, grid: u32, n16: usize, random: &mut Random) {
    let what = format!("{name}, {n16} elements, {grid} blocks");
    let mut device = Device::new();
    let mut values = || (0..4 * n16).map(|_| random.unit() as f32).collect::<Vec<_>>();
    let (b, c) = (values(), values());
    let a = device.output(16 * n16);
    let (left, right) = (device.input(&singles(&b)), device.input(&singles(&c)));
    let size = (n16 as u64).to_le_bytes().to_vec();
    let (seed, s) = (0xffff_fff0_u32, 1.375_f32);
    let params = match name {
        "stream_write" => vec![a.param(), size, seed.to_le_bytes().to_vec()],
        "stream_copy" => vec![left.param(), a.param(), size],
        _ => vec![a.param(), left.param(), right.param(), s.to_le_bytes().to_vec(), size],
    };
    let counts = device.launch(module.entry(name).unwrap(), grid, 256, &params);
    device.assert_written_once(a, &what);
    let arrays = match name {
        "stream_write" => {
            for (j, word) in device.words(a).into_iter().enumerate() {
                assert_eq!(word, seed.wrapping_add(j as u32), "{what}, word {j}");
            }
            0
        }
        "stream_copy" => {
            assert_eq!(device.bytes(a), device.bytes(left), "{what}");
            1
        }
        _ => {
            for (j, got) in device.floats(a).into_iter().enumerate() {
                let (b, c) = (f64::from(b[j]), f64::from(c[j]));
                let wanted = b + f64::from(s) * c;
                // Rounded once: half a unit in the last place.
                tally.compare(f64::from(got), wanted, wanted.abs(), 6e-8, &|| format!("{what}, word {j}"));
            }
            2
        }
    };
    assert_eq!(counts.global_read, arrays * 16 * n16 as u64, "{what}");
    assert_eq!(counts.global_written, 16 * n16 as u64, "{what}");
    assert_eq!(counts.fma_flops, if name == "stream_triad" { 8 * n16 as u64 } else { 0 }, "{what}");
    tally.case();
}

#[test]
fn launches_cost_nothing_but_themselves() {
    let module = module("launch");
    let mut tally = Tally::default();
    tally.entry();
    for grid in GRIDS {
        let counts = Device::new().launch(module.entry("empty").unwrap(), grid, 32, &[]);
        assert_eq!((counts.global_read, counts.global_written, counts.fma_flops), (0, 0, 0));
        assert!(counts.longest_warp <= 2, "{counts:?}");
        tally.case();
    }
    tally.entry();
    for iterations in [0_u32, 1, 2, 5, 1000] {
        let mut device = Device::new();
        let out = device.output(24);
        let params = [out.param(), iterations.to_le_bytes().to_vec()];
        let counts = device.launch(module.entry("spin").unwrap(), 1, 32, &params);
        let words = device.words(out);
        // The generator that the source names.
        let chain =
            (0..iterations).fold(1_u32, |value, _| value.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
        assert_eq!(words[2..4], [chain, 0], "{iterations} iterations");
        assert!(words[0] >= iterations && words[1] == 0, "{words:?}");
        assert!(counts.longest_warp >= u64::from(iterations));
        assert_eq!((counts.global_read, counts.global_written, counts.fma_flops), (0, 24, 0));
        device.assert_written_once(out, "spin");
        tally.case();
    }
    tally.report("launch");
}

#[test]
fn fma_chains_do_every_iteration() {
    let module = module("fma");
    let mut tally = Tally::default();
    tally.entry();
    let mut random = Random(2);
    let (a, b) = (0.875_f32, 0.3_f32);
    for grid in GRIDS {
        for iterations in [0_u32, 1, 2, 15, 16, 17, 37] {
            let threads = 256 * grid as usize;
            let x: Vec<f32> = (0..8 * threads).map(|_| random.unit() as f32).collect();
            let mut device = Device::new();
            let (input, out) = (device.input(&singles(&x)), device.output(32 * threads));
            let scalars = [a.to_le_bytes(), b.to_le_bytes(), iterations.to_le_bytes()].map(Vec::from);
            let [by, plus, times] = scalars;
            let params = [input.param(), by, plus, times, out.param()];
            let counts = device.launch(module.entry("fma_f32").unwrap(), grid, 256, &params);
            device.assert_written_once(out, "fma_f32");
            for (j, got) in device.floats(out).into_iter().enumerate() {
                let (a, b) = (f64::from(a), f64::from(b));
                let wanted = (0..iterations).fold(f64::from(x[j]), |acc, _| acc * a + b);
                // Each step adds half a unit in the last place of at most 3.4 and shrinks what was there.
                let magnitude = 1.0 + b / (1.0 - a);
                tally.compare(f64::from(got), wanted, magnitude, 5e-7, &|| format!("fma_f32, word {j}"));
            }
            assert_eq!(counts.fma_flops, 16 * threads as u64 * u64::from(iterations));
            assert_eq!(
                (counts.global_read, counts.global_written),
                (32 * threads as u64, 32 * threads as u64)
            );
            tally.case();
        }
    }
    tally.report("fma");
}
