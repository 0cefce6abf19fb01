//! y = alpha W x for a few vectors at once, W in each stored format.

use crate::device::{Buffer, Device, Random, Tally, module};
use crate::formats::{FORMATS, Format, Weights, from_half, half};

/// A launch: rows, depth in multiples of the format's own, blocks, passes.
struct Case {
    n: usize,
    multiples: usize,
    grid: u32,
    passes: u32,
}

const fn case(n: usize, multiples: usize, grid: u32, passes: u32) -> Case {
    Case { n, multiples, grid, passes }
}

/// One row; one block of weights; rows short of and past a block's; more blocks than work and fewer.
const CASES: [Case; 9] = [
    case(1, 1, 1, 1),
    case(2, 3, 5, 1),
    case(15, 2, 1, 2),
    case(16, 4, 1, 1),
    case(17, 5, 2, 1),
    case(33, 9, 2, 3),
    case(3, 17, 1, 1),
    case(32, 8, 1, 2),
    case(7, 41, 3, 1),
];

/// Weights a row at which every loop of every kernel is full.
const WHOLE: usize = 2048;

#[test]
fn every_stored_format_multiplies_as_its_definition_says() {
    for format in FORMATS {
        let module = module(&format!("gemv_{}", format.name));
        let mut random = Random(3);
        let mut tally = Tally::default();
        for batch in [1, 2, 4, 8] {
            let name = format!("gemv_{}_b{batch}", format.name);
            let entry = module.entry(&name).unwrap_or_else(|| panic!("{name} is missing"));
            tally.entry();
            for case in CASES {
                run(&mut tally, entry, format, batch, &case, &mut random);
            }
            let whole = case(32, WHOLE / format.multiple, 2, 1);
            let counts = run(&mut tally, entry, format, batch, &whole, &mut random);
            let useful = (2 * batch * whole.n * WHOLE) as u64;
            let done = counts.mma_flops.values().sum::<u64>();
            if format.name == "f32" {
                // Beside the products, the sums over lanes and warps.
                let done = counts.fma_flops;
                assert!(done >= useful && done < 2 * useful, "{name}: {done} FLOPs, not {useful}");
            } else if batch == 8 {
                // No place of a tensor core's product is left empty. For bf16, x is two terms of that type; for q4_k,
                // the minima are a product of their own.
                let products = if ["bf16", "q4_k"].contains(&format.name) { 2 } else { 1 };
                assert_eq!(done, products * useful, "{name}");
            }
        }
        tally.report(&format!("gemv_{}", format.name));
    }
}

fn run(
    tally: &mut Tally,
    entry: &ptx::Entry,
    format: Format,
    batch: usize,
    case: &Case,
    random: &mut Random,
) -> ptx::Counts {
    let &Case { n, multiples, grid, passes } = case;
    let k = multiples * format.multiple;
    let what = format!("{}, n {n}, k {k}, {grid} blocks, {passes} passes", entry.name());
    let weights = Weights::random(format, n, k, random);
    let single = format.name == "f32";
    let (mut x, mut values) = (Vec::new(), Vec::new());
    for _ in 0..batch * k {
        let value = random.unit();
        if single {
            x.extend((value as f32).to_le_bytes());
            values.push(f64::from(value as f32));
        } else {
            x.extend(half(value).to_le_bytes());
            values.push(from_half(half(value)));
        }
    }
    let alpha = 0.625_f32;
    let mut device = Device::new();
    let (w, x) = (device.input(&weights.bytes), device.input(&x));
    let scales = (!weights.scales.is_empty()).then(|| device.input(&weights.scales));
    let y = device.output(4 * batch * n);
    let params = [
        w.param(),
        scales.map_or_else(|| vec![0; 8], Buffer::param),
        alpha.to_le_bytes().to_vec(),
        x.param(),
        (n as u32).to_le_bytes().to_vec(),
        (k as u32).to_le_bytes().to_vec(),
        passes.to_le_bytes().to_vec(),
        y.param(),
    ];
    let counts = device.launch(entry, grid, 256, &params);
    device.assert_written_once(y, &what);
    for (at, got) in device.floats(y).into_iter().enumerate() {
        let (vector, row) = (at / n, at % n);
        let x = &values[vector * k..(vector + 1) * k];
        let of_row = |values: &[f64], x: fn(f64) -> f64, from: &[f64]| -> f64 {
            values[row * k..(row + 1) * k].iter().zip(from).map(|(w, v)| w * x(*v)).sum()
        };
        let times = f64::from(alpha) * f64::from(passes);
        let wanted = times * of_row(&weights.values, |x| x, x);
        let magnitude = times * of_row(&weights.sizes, f64::abs, x);
        tally.compare(f64::from(got), wanted, magnitude, 1e-6, &|| {
            format!("{what}, vector {vector}, row {row}")
        });
    }
    // Every weight comes from memory once a pass; lanes past the last row read it again.
    let (least, _, bytes) = device.reads(w);
    let stored = (weights.bytes.len() * passes as usize) as u64;
    let once = if n >= 16 { least == passes } else { least >= passes };
    assert!(once, "{what}: some byte of W is read {least} times");
    assert_eq!(counts.global_written, (4 * batch * n) as u64, "{what}");
    if n.is_multiple_of(16) && k.is_multiple_of(WHOLE) {
        // Parts that begin at any even address are read with their neighbours' bytes.
        let more = if format.bytes_of_256.is_multiple_of(16) && !format.name.starts_with('q') {
            0
        } else {
            stored / 4
        };
        assert!(
            bytes >= stored && bytes <= stored + more,
            "{what}: {bytes} bytes of W are read, not {stored}"
        );
    }
    tally.case();
    counts
}
