//! One step of a model, layer by layer, with the kernels that are calibrated one by one, as one run of a graph.
//!
//! Every matrix and every cache has the size it really has. Inputs are random numbers that no layer computes: the kernels
//! take fp16 and give fp32, and what an engine does between them (norm, rotation, activation, residual) is an empty kernel
//! here, so that its start is in the time and its work is not. Several sequences take the kernel for as many or
//! the next more, in one pass over the weights.
//!
//! Layers lie in memory of their own. Where not all of them find room, those that are alike share places in turn, as
//! long as what is read between two uses of a place does not fit into the cache; the sample says how much was shared.
//!
//! Before anything is timed, every layer runs once over poisoned outputs: each row of each product is compared with the
//! reference, and some heads of the attention. Each place repeats its random rows from another one on, so that a kernel
//! that reads another place's shows.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::attention::{Places, Sizes, Tokens};
use super::driver::{Arg, Buffer, GpuError, Launch};
use super::matrix::{BATCHES, LONGEST_ROW, ROWS_OF_BLOCK, ROWS_OF_BLOCK_F32, encoded};
use super::stored::{ALPHA, Layout, Row};
use super::{CACHES_APART, Cuda, Job, POISON, WRONG, deviation, floats, launch, words};
use rooflined_core::precision::WeightFormat;
use rooflined_core::units::{Bytes, Flops};
use rooflined_predict::calibration::{ForwardLayer, ForwardModel, Step};

/// Rows that differ, and their weights, which the CPU multiplies too; a prime, as for a product alone.
const DISTINCT_ROWS: usize = 127;
const DISTINCT_WEIGHTS: usize = 1 << 19;
/// Heads of a layer's attention that are compared with the reference.
const CHECKED_HEADS: usize = 8;
/// Matrices of a place begin with rows this far apart, and those of the next place one further on.
const ROWS_APART: usize = 7;

/// A matrix as its kernel takes it.
#[derive(Debug, Clone, Copy)]
struct Matrix {
    rows: usize,
    k: usize,
    padded: usize,
    format: WeightFormat,
    layout: Layout,
    /// Where its planes begin in its place.
    codes: usize,
    scales: usize,
}

/// Hands out parts of a place.
#[derive(Default)]
struct Cursor(u64);

impl Cursor {
    fn take(&mut self, bytes: u64) -> usize {
        let at = self.0;
        // Kernels may look past the end by less than this.
        self.0 =
            at.saturating_add(bytes).saturating_add(64).checked_next_multiple_of(256).unwrap_or(u64::MAX);
        size(at)
    }
}

impl Matrix {
    fn new((rows, k, format): (u64, u64, WeightFormat), cursor: &mut Cursor) -> Result<Self, GpuError> {
        let layout = Layout::of(format)
            .ok_or_else(|| GpuError::Step(format!("there is no GPU kernel for {format}")))?;
        let (rows, k) = (size(rows), size(k));
        let padded = layout
            .padded(k)
            .filter(|padded| *padded <= LONGEST_ROW)
            .ok_or_else(|| GpuError::Step(format!("rows of {k} are longer than a kernel's")))?;
        let mut plane = |bytes: usize| cursor.take((bytes as u64).saturating_mul(rows as u64));
        let codes = plane(layout.code_bytes(padded));
        let scales = plane(layout.scale_bytes(padded));
        Ok(Self { rows, k, padded, format, layout, codes, scales })
    }

    /// What a pass over it reads.
    fn bytes(&self) -> u64 {
        let row = self.layout.code_bytes(self.padded) + self.layout.scale_bytes(self.padded);
        (row as u64).saturating_mul(self.rows as u64)
    }

    /// Bytes of an element of its vectors.
    fn element(&self) -> usize {
        if self.format == WeightFormat::Fp32 { 4 } else { 2 }
    }
}

/// Layers that are alike: how one lies in its place.
struct Kind {
    layer: ForwardLayer,
    /// In the order of use.
    matrices: Vec<Matrix>,
    attention: Sizes,
    keys: usize,
    values: usize,
    /// Of a place.
    bytes: u64,
    /// What a step reads of it.
    read: u64,
}

impl Kind {
    fn new(
        model: &ForwardModel,
        layer: &ForwardLayer,
        batch: u64,
        context_tokens: u64,
        threads: u32,
    ) -> Result<Self, GpuError> {
        let mut cursor = Cursor::default();
        let matrices = layer
            .matrices(model.hidden)
            .map(|matrix| Matrix::new(matrix, &mut cursor))
            .collect::<Result<Vec<_>, _>>()?;
        let context = layer.keys(context_tokens);
        let attention = Sizes::new([batch, layer.heads, layer.kv_heads, layer.head_dim, context], threads)?;
        let cache = attention.cache_bytes();
        let (keys, values) = (cursor.take(cache), cursor.take(cache));
        let read = matrices.iter().fold(cache.saturating_mul(2), |sum, m| sum.saturating_add(m.bytes()));
        Ok(Self { layer: *layer, matrices, attention, keys, values, bytes: cursor.0, read })
    }
}

/// Vectors beside the weights. Each is a buffer, so that what uses one is plain; layers use them in turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Vector {
    Input {
        k: usize,
        padded: usize,
        element: usize,
    },
    /// Of the layer's matrix with this number, or of the head.
    Output {
        matrix: Option<usize>,
        bytes: u64,
    },
    Query {
        bytes: u64,
    },
    Between {
        bytes: u64,
    },
    Mixed {
        bytes: u64,
    },
}

impl Vector {
    fn input(matrix: &Matrix) -> Self {
        Self::Input { k: matrix.k, padded: matrix.padded, element: matrix.element() }
    }

    fn output(number: Option<usize>, matrix: &Matrix, columns: usize) -> Self {
        Self::Output { matrix: number, bytes: (matrix.rows * columns * 4) as u64 }
    }

    fn of_attention(sizes: &Sizes) -> [Self; 3] {
        [
            Self::Query { bytes: sizes.queries() * 2 },
            Self::Between { bytes: sizes.between_bytes() },
            Self::Mixed { bytes: sizes.queries() * 4 },
        ]
    }

    fn bytes(self, columns: usize) -> u64 {
        match self {
            Self::Input { padded, element, .. } => (padded * columns * element) as u64,
            Self::Output { bytes, .. }
            | Self::Query { bytes }
            | Self::Between { bytes }
            | Self::Mixed { bytes } => bytes,
        }
    }
}

/// Random rows that matrices of one format and length repeat, and what they give.
struct Template {
    rows: Vec<Row>,
    /// By column and row.
    wanted: Vec<f64>,
}

impl Template {
    fn plane(&self, part: fn(&Row) -> &[u8], first: usize) -> Vec<u8> {
        let turned = self.rows.iter().cycle().skip(first).take(self.rows.len());
        turned.flat_map(part).copied().collect()
    }

    /// What a matrix of `rows` that begins with row `first` gives.
    fn results(&self, first: usize, rows: usize) -> impl Iterator<Item = f64> + '_ {
        self.wanted
            .chunks(self.rows.len())
            .flat_map(move |column| column.iter().copied().cycle().skip(first).take(rows))
    }

    /// The row with which number `matrix` of place `place` begins.
    fn first(&self, place: usize, matrix: usize) -> usize {
        (place + ROWS_APART * matrix) % self.rows.len()
    }
}

/// What all layers read and check against.
struct Content {
    templates: BTreeMap<(WeightFormat, usize), Template>,
    /// Queries and cached tokens by the shape of the attention.
    attention: Vec<(Sizes, Vec<f64>, Tokens)>,
    columns: usize,
}

impl Content {
    fn template(&self, matrix: &Matrix) -> Result<&Template, GpuError> {
        let known = self.templates.get(&(matrix.format, matrix.k));
        known.ok_or_else(|| GpuError::Step("a matrix without content".into()))
    }

    fn tokens(&self, sizes: &Sizes) -> Result<(&[f64], &Tokens), GpuError> {
        let known = self.attention.iter().find(|(known, ..)| known == sizes);
        known
            .map(|(_, q, tokens)| (q.as_slice(), tokens))
            .ok_or_else(|| GpuError::Step("a cache without content".into()))
    }
}

/// The buffers of a model.
struct Memory {
    /// The head is the last.
    places: Vec<Buffer>,
    vectors: BTreeMap<Vector, Buffer>,
}

impl Memory {
    fn vector(&self, vector: Vector) -> Result<&Buffer, GpuError> {
        self.vectors.get(&vector).ok_or_else(|| GpuError::Step("a vector without a buffer".into()))
    }
}

impl Cuda {
    pub(super) fn forward(
        &mut self,
        step: &Step,
        model: u32,
        batch: u64,
        context_tokens: u64,
    ) -> Result<Job, GpuError> {
        let Some(model) = self.models.get(model as usize).cloned() else {
            return Err(GpuError::Step(format!("the plan has no model {model}")));
        };
        model.check(batch, context_tokens).and_then(|()| model.check_gpu(batch)).map_err(GpuError::Step)?;
        let columns = BATCHES.into_iter().rev().find(|taken| *taken >= batch).unwrap_or(1);
        let columns = size(columns);

        let mut kinds: Vec<Kind> = Vec::new();
        let mut kind_of = Vec::new();
        for layer in &model.layers {
            let known = kinds.iter().position(|kind| kind.layer == *layer);
            kind_of.push(known.unwrap_or(kinds.len()));
            if known.is_none() {
                kinds.push(Kind::new(&model, layer, batch, context_tokens, step.threads)?);
            }
        }
        let mut cursor = Cursor::default();
        let head = Matrix::new((model.vocab, model.hidden, model.head), &mut cursor)?;

        let vectors = vectors_of(&kinds, &head, columns);
        let beside = vectors.iter().fold(cursor.0, |sum, vector| sum.saturating_add(vector.bytes(columns)));
        let held = self.reference.as_ref().map_or(0, |reference| reference.bytes() as u64);
        let room = self.limit.saturating_sub(held).saturating_sub(beside);
        let costs: Vec<(u64, u64)> = kinds.iter().map(|kind| (kind.bytes, kind.read)).collect();
        let apart = CACHES_APART * self.l2_bytes();
        let place_of = share(&kind_of, &costs, head.bytes(), room, apart).map_err(GpuError::Step)?;

        // The kind in each place.
        let mut places: Vec<usize> = Vec::new();
        for (place, kind) in place_of.iter().zip(&kind_of) {
            if *place == places.len() {
                places.push(*kind);
            }
        }
        let sizes: Vec<u64> = places
            .iter()
            .map(|kind| kinds[*kind].bytes)
            .chain([cursor.0])
            .chain(vectors.iter().map(|vector| vector.bytes(columns)))
            .collect();
        let mut buffers = self.allocate(&sizes)?;
        let small = buffers.split_off(places.len() + 1);
        let memory = Memory { places: buffers, vectors: vectors.into_iter().zip(small).collect() };
        let content = self.content(&kinds, &head, &memory, columns)?;

        let mut error = 0.0_f64;
        let mut layers = Vec::new();
        for (place, kind) in places.iter().enumerate() {
            let kind = &kinds[*kind];
            fill(kind, &memory.places[place], &content, place)?;
            let launches = self.layer(step, kind, &memory, place, columns)?;
            error = error.max(self.check_layer(kind, &launches, &memory, &content, place)?);
            layers.push(launches);
        }
        let last = places.len();
        fill_matrix(&head, &memory.places[last], content.template(&head)?, last, 0)?;
        let end = self.head(step, &head, &memory, columns)?;
        error = error.max(self.check_head(&head, &end, &memory, &content, last)?);

        let run: Vec<Launch> =
            place_of.iter().flat_map(|place| &layers[*place]).chain(&end).cloned().collect();
        let read: Vec<u64> = kind_of.iter().map(|kind| kinds[*kind].read).collect();
        let mut seen = vec![false; places.len()];
        let again =
            place_of.iter().zip(&read).filter(|(place, _)| std::mem::replace(&mut seen[**place], true));
        #[expect(clippy::cast_precision_loss, reason = "bytes of a model")]
        let (again, all) = (
            again.map(|(_, read)| *read as f64).sum::<f64>(),
            read.iter().map(|read| *read as f64).sum::<f64>() + head.bytes() as f64,
        );
        self.reused_ratio = again / all;
        let mut buffers = memory.places;
        buffers.extend(memory.vectors.into_values());
        Ok(Job {
            runs: vec![run],
            flops: Flops(model.work(batch, context_tokens)),
            bytes: Bytes(all),
            weights: model.weights(),
            error: Some(error),
            _buffers: buffers,
        })
    }

    /// Random weights, inputs and caches, and what they give.
    fn content(
        &mut self,
        kinds: &[Kind],
        head: &Matrix,
        memory: &Memory,
        columns: usize,
    ) -> Result<Content, GpuError> {
        let mut inputs = BTreeMap::new();
        let mut content = Content { templates: BTreeMap::new(), attention: Vec::new(), columns };
        for matrix in kinds.iter().flat_map(|kind| &kind.matrices).chain([head]) {
            let vector = Vector::input(matrix);
            if let Entry::Vacant(place) = inputs.entry(vector) {
                let input = self.inputs(matrix.k, matrix.padded, columns);
                memory.vector(vector)?.write(0, &encoded(&input, matrix.element()))?;
                place.insert(input);
            }
            let key = (matrix.format, matrix.k);
            if let (Some(input), false) = (inputs.get(&vector), content.templates.contains_key(&key)) {
                let distinct = DISTINCT_ROWS.min((DISTINCT_WEIGHTS / matrix.padded).max(1));
                let rows: Vec<Row> = (0..distinct)
                    .map(|_| matrix.layout.random_row(&mut self.rng, matrix.k, matrix.padded))
                    .collect();
                let dot = |row: &Row, x: &[f64]| {
                    row.weights.iter().zip(x).map(|(w, x)| w * x).sum::<f64>() * f64::from(ALPHA)
                };
                let wanted =
                    input.chunks(matrix.padded).flat_map(|x| rows.iter().map(move |row| dot(row, x)));
                content.templates.insert(key, Template { wanted: wanted.collect(), rows });
            }
        }
        for kind in kinds {
            if content.tokens(&kind.attention).is_err() {
                let (q, tokens) = kind.attention.random(&mut self.rng);
                content.attention.push((kind.attention, q, tokens));
            }
        }
        Ok(content)
    }

    fn product(
        &mut self,
        step: &Step,
        matrix: &Matrix,
        place: &Buffer,
        [x, y]: [Arg; 2],
        columns: usize,
    ) -> Result<Launch, GpuError> {
        let narrow = |value: usize| {
            u32::try_from(value).map_err(|_| GpuError::Step("a dimension is beyond 32 bits".into()))
        };
        let (function, entry) = self.kernel(&format!("gemv_{}_b{columns}", matrix.layout.name))?;
        let of_block = if matrix.format == WeightFormat::Fp32 { ROWS_OF_BLOCK_F32 } else { ROWS_OF_BLOCK };
        let rows = narrow(matrix.rows)?;
        let blocks = self.fill(function, entry, step)?.min(rows.div_ceil(of_block));
        let scales = match matrix.layout.scale_bytes(matrix.padded) {
            0 => Arg::NULL,
            _ => place.at(matrix.scales),
        };
        let args = vec![
            place.at(matrix.codes),
            scales,
            Arg::F32(ALPHA),
            x,
            Arg::U32(rows),
            Arg::U32(narrow(matrix.padded)?),
            Arg::U32(1),
            y,
        ];
        Ok(launch(function, entry, blocks, args))
    }

    /// What stands for a small kernel.
    fn small(&mut self) -> Result<Launch, GpuError> {
        let (function, entry) = self.kernel("empty")?;
        Ok(launch(function, entry, 1, Vec::new()))
    }

    /// The kernels of a layer in the order of use.
    fn layer(
        &mut self,
        step: &Step,
        kind: &Kind,
        memory: &Memory,
        place: usize,
        columns: usize,
    ) -> Result<Vec<Launch>, GpuError> {
        let buffer = &memory.places[place];
        let small = self.small()?;
        let mut products = Vec::new();
        for (number, matrix) in kind.matrices.iter().enumerate() {
            let x = memory.vector(Vector::input(matrix))?.at(0);
            let y = memory.vector(Vector::output(Some(number), matrix, columns))?.at(0);
            products.push(self.product(step, matrix, buffer, [x, y], columns)?);
        }
        let [query, between, out] = Vector::of_attention(&kind.attention);
        let places = Places {
            query: memory.vector(query)?.at(0),
            keys: buffer.at(kind.keys),
            values: buffer.at(kind.values),
            between: memory.vector(between)?.at(0),
            out: memory.vector(out)?.at(0),
        };
        let attention = kind.attention.launches(self, &places)?;
        let mut products = products.into_iter();
        let mut some = |count: usize| products.by_ref().take(count).collect::<Vec<_>>();
        let mut layer = vec![small.clone()]; // norm
        layer.extend(some(3)); // query, key, value
        layer.push(small.clone()); // rotation, and the new key and value
        layer.extend(attention);
        layer.extend(some(1)); // output
        layer.extend([small.clone(), small.clone()]); // residual, norm
        layer.extend(some(1 + usize::from(kind.layer.gate.is_some()))); // gate and up
        layer.push(small.clone()); // activation
        layer.extend(some(1)); // down
        layer.push(small); // residual
        Ok(layer)
    }

    /// The kernels after the last layer.
    fn head(
        &mut self,
        step: &Step,
        head: &Matrix,
        memory: &Memory,
        columns: usize,
    ) -> Result<Vec<Launch>, GpuError> {
        let Some(place) = memory.places.last() else {
            return Err(GpuError::Step("no head".into()));
        };
        let x = memory.vector(Vector::input(head))?.at(0);
        let y = memory.vector(Vector::output(None, head, columns))?.at(0);
        // Norm, product, largest logit.
        Ok(vec![self.small()?, self.product(step, head, place, [x, y], columns)?, self.small()?])
    }

    /// Runs a layer once. Returns the largest deviation of what it computes.
    fn check_layer(
        &self,
        kind: &Kind,
        launches: &[Launch],
        memory: &Memory,
        content: &Content,
        place: usize,
    ) -> Result<f64, GpuError> {
        let sizes = &kind.attention;
        let [query, between, mixed] = Vector::of_attention(sizes).map(|vector| memory.vector(vector));
        let (query, between, mixed) = (query?, between?, mixed?);
        let (q, tokens) = content.tokens(sizes)?;
        // Another kind of layer may have left its own.
        query.write(0, &encoded(q, 2))?;
        between.set(POISON)?;
        mixed.set(POISON)?;
        for (number, matrix) in kind.matrices.iter().enumerate() {
            memory.vector(Vector::output(Some(number), matrix, content.columns))?.set(POISON)?;
        }
        self.device.run(launches)?;
        let mut error = 0.0_f64;
        for (number, matrix) in kind.matrices.iter().enumerate() {
            let y = memory.vector(Vector::output(Some(number), matrix, content.columns))?;
            error = error.max(compared(matrix, y, content.template(matrix)?, place, number)?);
        }
        let bytes = mixed.read(0, mixed.bytes())?;
        if words(&bytes).any(|word| word == u32::from_le_bytes([POISON; 4])) {
            return Ok(WRONG);
        }
        let found: Vec<f64> = floats(&bytes).collect();
        let width = q.len() / sizes.all_heads();
        let apart = (sizes.all_heads() / CHECKED_HEADS).max(1);
        for index in (0..sizes.all_heads()).step_by(apart).chain([sizes.all_heads() - 1]) {
            let wanted = sizes.wanted(q, tokens, place, index);
            let found = found[index * width..][..width].iter().copied();
            error = error.max(deviation(found, wanted.into_iter()));
        }
        Ok(error)
    }

    fn check_head(
        &self,
        head: &Matrix,
        launches: &[Launch],
        memory: &Memory,
        content: &Content,
        place: usize,
    ) -> Result<f64, GpuError> {
        let y = memory.vector(Vector::output(None, head, content.columns))?;
        y.set(POISON)?;
        self.device.run(launches)?;
        compared(head, y, content.template(head)?, place, 0)
    }
}

/// The largest deviation of a product's results, all of them.
fn compared(
    matrix: &Matrix,
    y: &Buffer,
    template: &Template,
    place: usize,
    number: usize,
) -> Result<f64, GpuError> {
    let found = y.read(0, y.bytes())?;
    Ok(deviation(floats(&found), template.results(template.first(place, number), matrix.rows)))
}

/// Every vector that a step uses, once.
fn vectors_of(kinds: &[Kind], head: &Matrix, columns: usize) -> Vec<Vector> {
    let mut vectors: Vec<Vector> = kinds
        .iter()
        .flat_map(|kind| {
            let numbered = kind.matrices.iter().enumerate();
            numbered
                .flat_map(|(number, matrix)| {
                    [Vector::input(matrix), Vector::output(Some(number), matrix, columns)]
                })
                .chain(Vector::of_attention(&kind.attention))
        })
        .chain([Vector::input(head), Vector::output(None, head, columns)])
        .collect();
    vectors.sort_unstable();
    vectors.dedup();
    vectors
}

fn fill(kind: &Kind, buffer: &Buffer, content: &Content, place: usize) -> Result<(), GpuError> {
    for (number, matrix) in kind.matrices.iter().enumerate() {
        fill_matrix(matrix, buffer, content.template(matrix)?, place, number)?;
    }
    let [keys, values] = content.tokens(&kind.attention)?.1.stored(place);
    let cache = size(kind.attention.cache_bytes());
    buffer.repeat(kind.keys, &keys, cache)?;
    buffer.repeat(kind.values, &values, cache)
}

fn fill_matrix(
    matrix: &Matrix,
    buffer: &Buffer,
    template: &Template,
    place: usize,
    number: usize,
) -> Result<(), GpuError> {
    let first = template.first(place, number);
    let (codes, scales) = (template.plane(|row| &row.codes, first), template.plane(|row| &row.scales, first));
    buffer.repeat(matrix.codes, &codes, matrix.layout.code_bytes(matrix.padded) * matrix.rows)?;
    buffer.repeat(matrix.scales, &scales, matrix.layout.scale_bytes(matrix.padded) * matrix.rows)
}

/// The place of every layer, numbered in the order of first use. `kind_of` tells which layers are alike, `costs` what one of
/// a kind takes and a step reads of it, `tail` what is read after the layers.
///
/// # Errors
/// There is not room for one of every kind, or for so many that the cache forgets a place before it is used again.
fn share(
    kind_of: &[usize],
    costs: &[(u64, u64)],
    tail: u64,
    room: u64,
    apart: u64,
) -> Result<Vec<usize>, String> {
    let bytes = |kind: usize| costs.get(kind).map_or(0, |(bytes, _)| *bytes);
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    let few = |least: u64| {
        format!(
            "needs {} of buffers for its layers at least, and {} are left for them: end other programs, or take a smaller \
             model, format, batch or context",
            Bytes(least as f64),
            Bytes(room as f64)
        )
    };
    let least = (0..costs.len()).fold(0_u64, |sum, kind| sum.saturating_add(bytes(kind)));
    if least > room {
        return Err(few(least));
    }
    // Places of every kind: one, and one for each further layer as long as there is room.
    let (mut taken, mut counts, mut met) = (least, vec![1_usize; costs.len()], vec![false; costs.len()]);
    for &kind in kind_of {
        if !std::mem::replace(&mut met[kind], true) {
            continue;
        }
        if let Some(sum) = taken.checked_add(bytes(kind)).filter(|sum| *sum <= room) {
            taken = sum;
            counts[kind] += 1;
        }
    }
    // So many that the last use in a step is not right before the first of the next one.
    for (kind, count) in counts.iter_mut().enumerate() {
        let layers = kind_of.iter().filter(|of| **of == kind).count().max(1);
        let between = |places: &usize| (layers - 1) % places;
        *count = (1..=*count).max_by_key(between).unwrap_or(1);
    }
    let mut places: Vec<Vec<usize>> = vec![Vec::new(); costs.len()];
    let (mut turn, mut next) = (vec![0_usize; costs.len()], 0);
    let mut place_of = Vec::new();
    for &kind in kind_of {
        let at = turn[kind] % counts[kind];
        turn[kind] += 1;
        if at == places[kind].len() {
            places[kind].push(next);
            next += 1;
        }
        place_of.push(places[kind][at]);
    }
    // Twice round: the first layers of the next step follow the last of this one.
    let (mut at, mut ends) = (0_u64, vec![None::<u64>; next]);
    for _ in 0..2 {
        for (&kind, &place) in kind_of.iter().zip(&place_of) {
            if turn[kind] > counts[kind] && ends[place].is_some_and(|end| at - end < apart) {
                return Err(few(least.saturating_add(apart)));
            }
            at = at.saturating_add(costs[kind].1);
            ends[place] = Some(at);
        }
        at = at.saturating_add(tail);
    }
    Ok(place_of)
}

fn size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_have_places_of_their_own_where_there_is_room() {
        let all = share(&[0, 0, 1, 0], &[(10, 9), (20, 19)], 5, 50, 1 << 20);
        assert_eq!(all, Ok(vec![0, 1, 2, 3]), "and then the cache may hold them");
    }

    #[test]
    fn without_room_layers_alike_take_turns_as_far_apart_as_can_be() {
        let kinds = [0, 0, 1, 0, 0, 1, 0];
        let costs = [(10, 9), (20, 19)];
        // One of the second kind, and two of the first, whose last use and the next step's first are 5 bytes apart.
        assert_eq!(share(&kinds, &costs, 5, 40, 5), Ok(vec![0, 1, 2, 0, 1, 2, 0]));
        assert!(share(&kinds, &costs, 5, 40, 6).is_err());
        // Four of six in turn would end a step with the second; three end it with the last.
        assert_eq!(share(&[0; 6], &[(10, 9)], 0, 40, 18), Ok(vec![0, 1, 2, 0, 1, 2]));
        assert!(share(&kinds, &costs, 5, 29, 0).unwrap_err().contains("at least"));
    }

    #[test]
    fn sizes_that_cannot_be_do_not_overflow() {
        let huge = (u64::MAX, u64::MAX);
        assert!(share(&[0, 1, 0], &[huge, huge], u64::MAX, u64::MAX - 1, 1).is_err());
        assert!(share(&[0, 0, 0], &[huge], u64::MAX, u64::MAX, 0).is_ok());
        assert_eq!(share(&[], &[], 0, 0, 7), Ok(Vec::new()));
    }
}
