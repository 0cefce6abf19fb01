//! Matrix times vectors over stored formats.

use super::driver::{Arg, GpuError, Launch};
use super::stored::{ALPHA, Layout, Row};
use super::{Cuda, Job, LARGEST, POISON, deviation, floats, from_memory, launch};
use half::f16;
use rooflined_core::precision::WeightFormat;
use rooflined_core::units::{Bytes, Flops};
use rooflined_predict::calibration::{GemvCase, Step};

/// Vectors that one launch takes, most first.
const BATCHES: [u64; 4] = [8, 4, 2, 1];
/// Vectors beyond which passes over the weights are no GEMV any more.
const MAX_COLUMNS: u64 = 64;
/// Rows that a block takes, of plain floats fewer; more blocks would find nothing to do.
const ROWS_OF_BLOCK: u32 = 16;
const ROWS_OF_BLOCK_F32: u32 = 4;
/// Longest row, and most results, that the CPU computes as well.
const LONGEST_ROW: usize = 1 << 21;
const MOST_RESULTS: usize = 1 << 24;
/// Rows that differ; a prime, so that they and the blocks of a launch do not march in step.
const DISTINCT_ROWS: usize = 251;
/// Weights of all distinct rows together, which the CPU multiplies too.
const DISTINCT_WEIGHTS: usize = 1 << 20;
/// Weights times vectors of one launch on cached weights, so that its start does not show.
const CACHED_WORK: u64 = 1 << 28;
/// The same for a GPU whose cache is so small that everything about it is.
const PASSES_OF_CACHE: u64 = 64;

impl Cuda {
    pub(super) fn gemv(
        &mut self,
        step: &Step,
        (n, k, columns): (u64, u64, u64),
        format: WeightFormat,
        case: GemvCase,
    ) -> Result<Job, GpuError> {
        let refuse = |reason: String| Err(GpuError::Step(reason));
        let Some(layout) = Layout::of(format) else {
            return refuse(format!("there is no GPU kernel for {format}"));
        };
        if n == 0 || k == 0 || columns == 0 || columns > MAX_COLUMNS {
            return refuse(format!(
                "a dimension of {n} x {k} with {columns} vectors is zero, or there are more than {MAX_COLUMNS} vectors"
            ));
        }
        let too_large = || GpuError::Step(format!("{n} x {k} is larger than a kernel's dimensions"));
        let narrow = |value: u64| u32::try_from(value).map_err(|_| too_large());
        let (rows, k, columns) = (narrow(n)? as usize, narrow(k)? as usize, narrow(columns)? as usize);
        let padded = layout.padded(k).ok_or_else(too_large)?;
        // The CPU holds rows, inputs and results too.
        let held_by_the_cpu = padded > LONGEST_ROW || rows * columns > MOST_RESULTS;
        if held_by_the_cpu || rows.checked_mul(padded).is_none_or(|weights| weights as u64 > LARGEST) {
            return Err(too_large());
        }
        let (n32, k32) = (narrow(n)?, narrow(padded as u64)?);

        let (code_bytes, scale_bytes) = (layout.code_bytes(padded), layout.scale_bytes(padded));
        let matrix = (code_bytes + scale_bytes) as u64 * n;
        let copies = if from_memory(case) { self.copies(matrix)? } else { 1 };
        let place = |bytes: usize| (bytes as u64 * n + 64).next_multiple_of(256);
        let (element, rows_of_block) =
            if format == WeightFormat::Fp32 { (4, ROWS_OF_BLOCK_F32) } else { (2, ROWS_OF_BLOCK) };
        let vectors = (padded * columns * element) as u64;
        let results = (rows * columns * 4) as u64;
        let sizes = [
            place(code_bytes).saturating_mul(copies as u64),
            place(scale_bytes).saturating_mul(copies as u64),
            vectors,
            results,
        ];
        let buffers = self.allocate(&sizes)?;
        let [codes, scales, x, y] = buffers.as_slice() else {
            return refuse("no buffers".into());
        };

        let distinct = DISTINCT_ROWS.min(rows).min((DISTINCT_WEIGHTS / padded).max(1));
        let stored: Vec<Row> = (0..distinct).map(|_| layout.random_row(&mut self.rng, k, padded)).collect();
        let plane = |part: fn(&Row) -> &[u8]| stored.iter().flat_map(part).copied().collect::<Vec<u8>>();
        let (code_rows, scale_rows) = (plane(|row| &row.codes), plane(|row| &row.scales));
        let start = |bytes: usize, copy: usize| {
            usize::try_from(place(bytes)).unwrap_or(usize::MAX).saturating_mul(copy)
        };
        for copy in 0..copies {
            codes.repeat(start(code_bytes, copy), &code_rows, code_bytes * rows)?;
            scales.repeat(start(scale_bytes, copy), &scale_rows, scale_bytes * rows)?;
        }
        let input = self.inputs(k, padded, columns);
        x.write(0, &encoded(&input, element))?;

        let passes = if from_memory(case) {
            1
        } else {
            let work = (rows * padded * columns) as u64;
            let most = CACHED_WORK.min(PASSES_OF_CACHE * self.l2_bytes());
            u32::try_from((most / work.max(1)).clamp(1, 4096)).unwrap_or(1)
        };
        let blocks_of = |cuda: &mut Self, batch: u64| -> Result<_, GpuError> {
            let (function, entry) = cuda.kernel(&format!("gemv_{}_b{batch}", layout.name))?;
            let blocks = cuda.fill(function, entry, step)?.min(n32.div_ceil(rows_of_block));
            Ok((batch, function, entry, blocks))
        };
        let mut parts = Vec::new();
        let mut done = 0;
        while done < columns as u64 {
            let left = columns as u64 - done;
            let batch = BATCHES.into_iter().find(|batch| *batch <= left).unwrap_or(1);
            parts.push((done, blocks_of(self, batch)?));
            done += batch;
        }
        let runs: Vec<Vec<Launch>> = (0..copies)
            .map(|copy| {
                let one = |&(first, (_, function, entry, blocks)): &(u64, (u64, _, _, u32))| {
                    let first = usize::try_from(first).unwrap_or(0);
                    let scale =
                        if scale_bytes == 0 { Arg::NULL } else { scales.at(start(scale_bytes, copy)) };
                    let args = vec![
                        codes.at(start(code_bytes, copy)),
                        scale,
                        Arg::F32(ALPHA),
                        x.at(first * padded * element),
                        Arg::U32(n32),
                        Arg::U32(k32),
                        Arg::U32(passes),
                        y.at(first * rows * 4),
                    ];
                    launch(function, entry, blocks, args)
                };
                parts.iter().map(one).collect()
            })
            .collect();

        // The first and the last copy, so that a wrong place shows.
        let mut error = 0.0_f64;
        for run in [runs.first(), runs.last()].into_iter().flatten() {
            y.set(POISON)?;
            self.device.run(run)?;
            let found = y.read(0, rows * columns * 4)?;
            let wanted: Vec<f64> = input
                .chunks(padded)
                .flat_map(|x| {
                    let dot = |row: &Row| {
                        let sum: f64 = row.weights.iter().zip(x).map(|(w, x)| w * x).sum();
                        sum * f64::from(ALPHA) * f64::from(passes)
                    };
                    stored.iter().map(dot).collect::<Vec<f64>>().into_iter().cycle().take(rows)
                })
                .collect();
            error = error.max(deviation(floats(&found), wanted.into_iter()));
        }
        let over = parts.len() as f64 * f64::from(passes);
        #[expect(clippy::cast_precision_loss, reason = "dimensions of a matrix")]
        let (weights, matrix) = ((rows * k) as f64 * f64::from(passes), matrix as f64);
        #[expect(clippy::cast_precision_loss, reason = "some tens")]
        let columns = columns as f64;
        Ok(Job {
            runs,
            flops: Flops(2.0 * weights * columns),
            bytes: Bytes(matrix * over),
            weights,
            error: Some(error),
            _buffers: buffers,
        })
    }

    /// `columns` vectors of `k` values that fp16 holds exactly, each padded with zeros.
    fn inputs(&mut self, k: usize, padded: usize, columns: usize) -> Vec<f64> {
        (0..columns * padded)
            .map(|i| {
                let value = f16::from_f32(0.05 + 0.95 * self.rng.f32()).to_f64();
                if i % padded >= k {
                    0.0
                } else if self.rng.bool() {
                    value
                } else {
                    -value
                }
            })
            .collect()
    }
}

/// Values that fp16 holds exactly, as fp16 (two bytes) or fp32.
fn encoded(values: &[f64], bytes: usize) -> Vec<u8> {
    #[expect(clippy::cast_possible_truncation, reason = "exact")]
    if bytes == 2 {
        values.iter().flat_map(|value| f16::from_f64(*value).to_le_bytes()).collect()
    } else {
        values.iter().flat_map(|value| (*value as f32).to_le_bytes()).collect()
    }
}
