//! Whole models in the probe of a GPU, against a mock driver: what a step computes, what it takes, and what is refused.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a failed test panics")]

use fake_cuda::{Corrupt, Scenario};
use rooflined_core::precision::WeightFormat;
use rooflined_predict::calibration::{
    Accelerator, ForwardLayer, ForwardModel, GemvCase, Kernel, Plan, Sample, Step, centre, vet,
};

use super::gpu::{Run, measure};

/// Neither rows nor lengths are whole numbers of tiles or blocks.
const HIDDEN: u64 = 200;

fn layer(format: WeightFormat) -> ForwardLayer {
    ForwardLayer {
        heads: 6,
        kv_heads: 2,
        head_dim: 32,
        window: None,
        intermediate: 171,
        query: format,
        key: format,
        value: format,
        output: format,
        gate: Some(format),
        up: format,
        down: format,
    }
}

/// Layers of three kinds.
fn model(format: WeightFormat) -> ForwardModel {
    let whole = layer(format);
    let windowed = ForwardLayer { window: Some(40), heads: 4, kv_heads: 4, ..whole };
    let plain = ForwardLayer { gate: None, head_dim: 64, kv_heads: 1, ..whole };
    ForwardModel { hidden: HIDDEN, vocab: 301, head: format, layers: vec![whole, windowed, plain, whole] }
}

const fn forward(model: u32, batch: u64, context_tokens: u64) -> Kernel {
    Kernel::Forward { model, batch, context_tokens }
}

fn plan(models: Vec<ForwardModel>, kernels: &[Kernel]) -> Plan {
    Plan {
        steps: kernels.iter().map(|kernel| Step { kernel: *kernel, threads: 2, budget_s: 0.005 }).collect(),
        holds: Vec::new(),
        models,
        accelerator: Accelerator::Gpu,
        cpus: Vec::new(),
        warm_up_s: 0.05,
        time_limit_s: 300.0,
        filling_s: 0.0,
        memory_limit_bytes: 64 << 20,
        seed: 3,
    }
}

fn sample(run: &Run, kernel: Kernel) -> &Sample {
    let found = run.samples.iter().find(|sample| sample.kernel == kernel);
    found.unwrap_or_else(|| panic!("{}: {} {:?}", kernel.describe(), run.errors, run.skipped))
}

fn time(run: &Run, kernel: Kernel) -> f64 {
    centre(&sample(run, kernel).times).get()
}

#[test]
fn every_storage_batch_and_context_is_computed_as_it_should() {
    let formats = Accelerator::Gpu.formats();
    assert_eq!(formats.len(), 12);
    let models: Vec<ForwardModel> = formats.iter().map(|format| model(*format)).collect();
    // Three sequences take the kernel for four.
    let kernels: Vec<Kernel> = (0..12)
        .map(|model| forward(model, [1, 2, 3, 8][model as usize % 4], 70 * u64::from(model % 3)))
        .collect();
    let run = measure(&Scenario::toy(), &plan(models, &kernels));
    assert!(run.finished && run.skipped.is_empty(), "{} {:?}", run.errors, run.skipped);
    let mut worst = 0.0_f64;
    for (kernel, format) in kernels.iter().zip(formats) {
        let sample = sample(&run, *kernel);
        assert_eq!(vet(sample), None, "{format}");
        worst = worst.max(sample.max_error_ratio.unwrap());
        let Kernel::Forward { batch, context_tokens, .. } = *kernel else { unreachable!() };
        let model = model(*format);
        let ratio = |found: f64, of: f64| found / of;
        assert_eq!(ratio(sample.flops.get(), model.work(batch, context_tokens)), 1.0);
        // Padded rows are read too; caches are as large as the context and the window say.
        let least = (model.weight_bytes() + model.cache_bytes(batch, context_tokens)).get();
        assert!((0.99..1.5).contains(&ratio(sample.bytes.get(), least)), "{format}: {:?}", sample.bytes);
        assert_eq!(sample.reused_ratio, 0.0);
    }
    println!("worst error of a step of whole models in {} formats: {worst:.1e}", formats.len());
    assert!(worst < 1e-5, "{worst}");
}

/// As in a file of the most common kind: the head, and some values and ways down, in six bits, the rest in four.
#[test]
fn a_mix_of_storages_is_one_model() {
    let (four, six) = (WeightFormat::Q4KM, WeightFormat::Q6K);
    let mut mixed = ForwardModel { head: six, ..model(four) };
    for at in [0, 2] {
        mixed.layers[at] = ForwardLayer { value: six, down: six, ..mixed.layers[at] };
    }
    // The same of one storage, which has more bytes and fewer.
    let models = vec![mixed, model(four), model(six)];
    let kernels = [0, 1, 2].map(|model| forward(model, 2, 90));
    let run = measure(&Scenario::toy(), &plan(models, &kernels));
    assert!(run.finished && run.skipped.is_empty(), "{} {:?}", run.errors, run.skipped);
    for kernel in kernels {
        let sample = sample(&run, kernel);
        assert_eq!(vet(sample), None, "{kernel:?}");
        assert!(sample.max_error_ratio.unwrap() < 1e-5, "{kernel:?} {:?}", sample.max_error_ratio);
    }
    let [mixed, four, six] = kernels.map(|kernel| sample(&run, kernel).bytes.get());
    assert!(four < mixed && mixed < six, "{four} {mixed} {six}");
    let [mixed, four, six] = kernels.map(|kernel| time(&run, kernel));
    assert!(four < mixed && mixed < six, "{four} {mixed} {six}");
    // Both storages of the mix are multiplied by their own kernels.
    for entry in ["gemv_q4_k_b2", "gemv_q6_k_b2"] {
        let corrupt = vec![Corrupt { entry: entry.into(), words: 1 }];
        let mut mixed = ForwardModel { head: WeightFormat::Q6K, ..model(WeightFormat::Q4KM) };
        mixed.layers.truncate(1);
        let run = measure(&Scenario { corrupt, ..Scenario::toy() }, &plan(vec![mixed], &[forward(0, 2, 0)]));
        let code = vet(sample(&run, forward(0, 2, 0))).map(|rejection| rejection.code);
        assert_eq!(code.as_deref(), Some("wrong_result"), "{entry}");
    }
}

/// The truth of the mock is its kernels: a step is the sum of each of them alone, and of the empty ones.
#[test]
fn a_step_takes_what_its_kernels_take() {
    let (format, batch, context) = (WeightFormat::Q8_0, 2, 300);
    let one = ForwardLayer { heads: 4, kv_heads: 2, head_dim: 64, intermediate: 704, ..layer(format) };
    let model = ForwardModel { hidden: 256, vocab: 1024, head: format, layers: vec![one; 3] };
    let gemv = |n, k| Kernel::Gemv { n, k, columns: batch, format, case: GemvCase::Dram };
    let attention = Kernel::Attention { batch, heads: 4, kv_heads: 2, head_dim: 64, context_tokens: context };
    let matrices: Vec<Kernel> = model.matrices().map(|(rows, columns, _)| gemv(rows, columns)).collect();
    let mut kernels = vec![forward(0, batch, context), attention, Kernel::Wake];
    for kernel in &matrices {
        if !kernels.contains(kernel) {
            kernels.push(*kernel);
        }
    }
    let run = measure(&Scenario::toy(), &plan(vec![model], &kernels));
    let alone: f64 = matrices.iter().map(|kernel| time(&run, *kernel)).sum::<f64>()
        + 3.0 * time(&run, attention)
        + f64::from(3 * 6 + 2) * time(&run, Kernel::Wake);
    let ratio = time(&run, forward(0, batch, context)) / alone;
    println!("a step over the sum of its kernels: {ratio:.4}");
    assert!((0.98..1.02).contains(&ratio), "{ratio}");
    let memory = Scenario::toy().memory.dram_bytes_per_s;
    let share = sample(&run, kernels[0]).bytes.get() / time(&run, kernels[0]) / memory;
    assert!((0.5..1.02).contains(&share), "nothing comes from the cache: {share}");
}

/// What a step loses when every kernel starts later is the number of its kernels.
#[test]
fn a_step_is_one_graph_of_as_many_kernels_as_are_predicted() {
    let with = |graph_s: f64| {
        let mut scenario = Scenario::toy();
        scenario.launch.graph_s = graph_s;
        let run = measure(&scenario, &plan(vec![model(WeightFormat::Fp16)], &[forward(0, 1, 10)]));
        time(&run, forward(0, 1, 10))
    };
    // Four layers, one of them without a gate: products, two kernels of attention, six small ones; norm, head, largest.
    let kernels = 4.0 * (7.0 + 2.0 + 6.0) - 1.0 + 3.0;
    let found = (with(101e-6) - with(1e-6)) / 100e-6;
    // The start of a graph is shared by as many steps as it holds.
    assert!((found - kernels).abs() < 0.2, "{found} of {kernels}");
}

#[test]
fn layers_that_find_no_room_share_memory_past_the_cache() {
    let scenario = Scenario::toy();
    let one = ForwardLayer { intermediate: 512, ..layer(WeightFormat::Fp16) };
    let model = ForwardModel { hidden: 192, vocab: 1024, head: WeightFormat::Fp16, layers: vec![one; 12] };
    let with = |bytes: u64| {
        let plan = Plan { memory_limit_bytes: bytes, ..plan(vec![model.clone()], &[forward(0, 1, 5)]) };
        measure(&scenario, &plan)
    };
    let whole = with(64 << 20);
    assert_eq!(sample(&whole, forward(0, 1, 5)).reused_ratio, 0.0);
    // A layer has 0.79 MB, the head 0.39 MB, and a quarter is the reference's: six find room.
    let little = with(7 << 20);
    let found = sample(&little, forward(0, 1, 5));
    assert!((0.3..0.8).contains(&found.reused_ratio), "{}", found.reused_ratio);
    assert_eq!((found.bytes, vet(found)), (sample(&whole, forward(0, 1, 5)).bytes, None));
    let ratio = time(&little, forward(0, 1, 5)) / time(&whole, forward(0, 1, 5));
    assert!((0.98..1.02).contains(&ratio), "{ratio}");
    let none = with(1 << 20);
    assert!(none.finished && none.samples.is_empty(), "{:?}", none.skipped);
    assert!(none.skipped[0].contains("for its layers at least"), "{:?}", none.skipped);
}

#[test]
fn what_cannot_be_run_and_what_is_wrong_is_told_by_name() {
    let fp16 = model(WeightFormat::Fp16);
    let mut int4 = fp16.clone();
    int4.layers[2].down = WeightFormat::Int4;
    let mut wide = fp16.clone();
    wide.layers[1].head_dim = 80;
    let mut uneven = fp16.clone();
    uneven.layers[0].kv_heads = 5;
    let models = vec![int4, wide, uneven, fp16.clone()];
    let kernels = [
        forward(0, 1, 0),
        forward(1, 1, 0),
        forward(2, 1, 0),
        forward(3, 9, 0),
        forward(7, 1, 0),
        forward(3, 1, 0),
    ];
    let run = measure(&Scenario::toy(), &plan(models, &kernels));
    assert!(run.finished && run.samples.len() == 1, "{} {:?}", run.errors, run.skipped);
    let said = run.skipped.join("\n");
    for part in ["no GPU kernel for int4", "heads of 80", "5 key/value heads", "batch is 9", "no model 7"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    // One word of one kernel in one layer.
    for entry in ["gemv_f16_b1", "attention_merge"] {
        let corrupt = vec![Corrupt { entry: entry.into(), words: 1 }];
        let run =
            measure(&Scenario { corrupt, ..Scenario::toy() }, &plan(vec![fp16.clone()], &[forward(0, 1, 0)]));
        let code = vet(sample(&run, forward(0, 1, 0))).map(|rejection| rejection.code);
        assert_eq!(code.as_deref(), Some("wrong_result"), "{entry}");
    }
}
