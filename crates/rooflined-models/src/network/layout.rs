//! Shapes of operators that move, pick or repeat elements.

use super::element::ElementType;
use super::fact::{Call, Dims, Fact, broadcast, place, product, written};
use super::onnx::MAX_RANK;
use super::operator::Operator;
use super::values;

pub fn infer(call: &Call<'_>) -> Result<Vec<Fact>, String> {
    use Operator as O;
    let one = |dims: Option<Dims>| -> Result<Vec<Fact>, String> { Ok(vec![Fact::of(call.element(), dims)]) };
    match call.operator {
        O::Reshape => view(call, reshape(call)?),
        O::Flatten => view(call, flatten(call)?),
        O::Squeeze => view(call, squeeze(call)?),
        O::Unsqueeze => view(call, unsqueeze(call)?),
        O::Transpose => transpose(call),
        O::Concat => concat(call, 0, 1),
        O::QLinearConcat => concat(call, 2, 3),
        O::Split => split(call),
        O::Slice => slice(call),
        O::Gather => gather(call),
        O::GatherElements => one(call.dims(1).cloned()),
        O::GatherND => one(gather_nd(call)?),
        O::Expand => expand(call),
        O::Tile => one(tile(call)?),
        O::Pad => one(pad(call)?),
        O::OneHot => one_hot(call),
        O::DepthToSpace | O::SpaceToDepth => one(blocks(call)?),
        O::Compress => {
            let dims = match (call.int("axis"), call.dims(0)) {
                (None, _) => Some(vec![None]),
                (Some(axis), Some(dims)) => {
                    let mut dims = dims.clone();
                    let axis = place(axis, dims.len())?;
                    dims[axis] = None;
                    Some(dims)
                }
                (Some(_), None) => None,
            };
            one(dims)
        }
        _ => Ok(Vec::new()),
    }
}

/// The same numbers under another shape.
fn view(call: &Call<'_>, dims: Option<Dims>) -> Result<Vec<Fact>, String> {
    let input = call.need(0)?;
    Ok(vec![Fact {
        values: input.values.clone(),
        quantised: input.quantised,
        ..Fact::of(input.element, dims)
    }])
}

/// The shape that a list of sizes names. Where only its length is known, so is the rank.
pub fn target(list: &Fact) -> Result<Option<Dims>, String> {
    if let Some(values) = &list.values {
        let size = |value: &Option<f64>| match *value {
            Some(value) if value < 0.0 => Err(format!("size {value} is negative")),
            value => Ok(value.map(|value| value as u64)),
        };
        return values.iter().map(size).collect::<Result<_, _>>().map(Some);
    }
    Ok(list
        .sizes()
        .filter(|sizes| sizes.len() == 1 && sizes[0] <= 32)
        .map(|sizes| vec![None; sizes[0] as usize]))
}

fn reshape(call: &Call<'_>) -> Result<Option<Dims>, String> {
    let from = &call.need(0)?.dims;
    let list = match call.ints("shape") {
        Some(shape) => Fact::list(shape.into_iter().map(|size| Some(size as f64)).collect()),
        None => call.need(1)?.clone(),
    };
    let Some(values) = &list.values else { return target(&list) };
    let mut dims = Dims::with_capacity(values.len());
    let mut open = Vec::new();
    for (axis, value) in values.iter().enumerate() {
        dims.push(match value {
            Some(0.0) if !call.is_set("allowzero") => {
                from.as_ref().and_then(|from| from.get(axis).copied().flatten())
            }
            Some(value) if *value >= 0.0 => Some(*value as u64),
            // The rest of the elements, as far as one size tells.
            _ => None,
        });
        if dims[axis].is_none() {
            open.push(axis);
        }
    }
    let is_inferred = values.contains(&Some(-1.0));
    let Some(count) = from.as_ref().and_then(|from| from.iter().copied().collect::<Option<Vec<_>>>()) else {
        // A size that is open on both sides stays so: [?, 64, 8] to [?, 512].
        return Ok(Some(dims));
    };
    let count = product(&count).ok_or("the input is too large")?;
    let known: Vec<_> = dims.iter().copied().flatten().collect();
    let known = product(&known).ok_or("the result is too large")?;
    match open.as_slice() {
        [] if known == count => {}
        [axis] if known > 0 && count % known == 0 => dims[*axis] = Some(count / known),
        [axis] if count == 0 && is_inferred => dims[*axis] = Some(0),
        [_, _, ..] => {}
        _ => return Err(format!("{count} elements do not fit {}", written(&dims))),
    }
    Ok(Some(dims))
}

fn flatten(call: &Call<'_>) -> Result<Option<Dims>, String> {
    let Some(dims) = call.dims(0) else { return Ok(Some(vec![None, None])) };
    let axis = match call.int("axis").unwrap_or(1) {
        axis if axis == dims.len() as i64 => dims.len(),
        axis => place(axis, dims.len())?,
    };
    let all = |dims: &[Option<u64>]| {
        dims.iter().copied().collect::<Option<Vec<_>>>().and_then(|dims| product(&dims))
    };
    Ok(Some(vec![all(&dims[..axis]), all(&dims[axis..])]))
}

fn squeeze(call: &Call<'_>) -> Result<Option<Dims>, String> {
    let (Some(dims), Ok(axes)) = (call.dims(0), call.list("axes", 1)) else { return Ok(None) };
    let gone = match axes {
        Some(axes) => axes.iter().map(|axis| place(*axis, dims.len())).collect::<Result<Vec<_>, _>>()?,
        // Which sizes are 1 has to be known.
        None if dims.contains(&None) => return Ok(None),
        None => (0..dims.len()).filter(|axis| dims[*axis] == Some(1)).collect(),
    };
    if let Some(axis) = gone.iter().find(|axis| dims[**axis].is_some_and(|size| size != 1)) {
        return Err(format!("dimension {axis} of {} is not 1", written(dims)));
    }
    let stays = |(axis, size): (usize, &Option<u64>)| (!gone.contains(&axis)).then_some(*size);
    Ok(Some(dims.iter().enumerate().filter_map(stays).collect()))
}

fn unsqueeze(call: &Call<'_>) -> Result<Option<Dims>, String> {
    let (Some(dims), Ok(Some(axes))) = (call.dims(0), call.list("axes", 1)) else { return Ok(None) };
    let rank = dims.len() + axes.len();
    if rank > MAX_RANK {
        return Err(format!("{rank} dimensions are too many"));
    }
    let new = axes.iter().map(|axis| place(*axis, rank)).collect::<Result<Vec<_>, _>>()?;
    let mut old = dims.iter();
    let size = |axis| if new.contains(&axis) { Some(1) } else { old.next().copied().flatten() };
    Ok(Some((0..rank).map(size).collect()))
}

fn transpose(call: &Call<'_>) -> Result<Vec<Fact>, String> {
    let input = call.need(0)?;
    let Some(dims) = &input.dims else { return Ok(vec![Fact::unknown(input.element)]) };
    let order = match call.ints("perm") {
        Some(order) => order.iter().map(|axis| place(*axis, dims.len())).collect::<Result<Vec<_>, _>>()?,
        None => (0..dims.len()).rev().collect(),
    };
    let mut seen = order.clone();
    seen.sort_unstable();
    if !seen.iter().copied().eq(0..dims.len()) {
        return Err(format!("the order of axes does not fit {}", written(dims)));
    }
    let mut result = Fact::of(input.element, Some(order.iter().map(|axis| dims[*axis]).collect()));
    result.quantised = input.quantised;
    result.values = result.sizes().and_then(|sizes| values::transpose(input, &order, &sizes));
    Ok(vec![result])
}

/// Concatenation of the inputs from `first` on, of which each comes `every` places.
fn concat(call: &Call<'_>, first: usize, every: usize) -> Result<Vec<Fact>, String> {
    let facts: Vec<&Fact> = call.inputs.iter().copied().skip(first).step_by(every).flatten().collect();
    let Some(known) = facts.iter().find_map(|fact| fact.dims.as_ref()) else {
        return Ok(vec![Fact::unknown(call.element())]);
    };
    let axis = call.axis(0, known.len())?;
    let (mut dims, mut total) = (vec![None; known.len()], Some(0_u64));
    for fact in &facts {
        let Some(more) = &fact.dims else {
            total = None;
            continue;
        };
        if more.len() != known.len() {
            return Err(format!("{} cannot follow {}", written(more), written(known)));
        }
        total = total.zip(more[axis]).and_then(|(total, size)| total.checked_add(size));
        for (place, size) in more.iter().enumerate().filter(|(place, _)| *place != axis) {
            match (dims[place], *size) {
                (Some(before), Some(size)) if before != size => {
                    return Err(format!(
                        "{} cannot follow {} along axis {axis}",
                        written(more),
                        written(known)
                    ));
                }
                (before, size) => dims[place] = before.or(size),
            }
        }
    }
    dims[axis] = total;
    let element = facts.first().map_or(ElementType::Unknown, |fact| fact.element);
    let mut result = Fact::of(element, Some(dims));
    result.values = result.sizes().and_then(|sizes| values::concat(&facts, axis, &sizes));
    Ok(vec![result])
}

fn split(call: &Call<'_>) -> Result<Vec<Fact>, String> {
    let input = call.need(0)?;
    let Some(dims) = &input.dims else { return Ok(vec![Fact::unknown(input.element); call.outputs]) };
    let axis = call.axis(0, dims.len())?;
    let parts = call.outputs.max(1) as u64;
    let sizes: Vec<Option<u64>> = match call.list("split", 1) {
        Ok(Some(sizes)) => sizes.iter().map(|size| u64::try_from(*size).ok()).collect(),
        Err(()) => vec![None; call.outputs],
        // The last part is smaller where the parts do not fit.
        Ok(None) => (0..parts)
            .map(|part| {
                let size = dims[axis]?.div_ceil(parts);
                Some(size.min(dims[axis]?.saturating_sub(part * size)))
            })
            .collect(),
    };
    let total = sizes.iter().try_fold(0_u64, |total, size| total.checked_add((*size)?));
    if total.zip(dims[axis]).is_some_and(|(total, size)| total != size) {
        return Err(format!("the parts do not add up to dimension {axis} of {}", written(dims)));
    }
    let mut start = 0;
    let part = |size: &Option<u64>| {
        let mut dims = dims.clone();
        dims[axis] = *size;
        let mut part = Fact::of(input.element, Some(dims));
        if let (Some(sizes), Ok(size)) = (part.sizes(), i64::try_from(size.unwrap_or(0))) {
            let mut starts = vec![0; sizes.len()];
            starts[axis] = start;
            part.values = values::slice(input, &starts, &vec![1; sizes.len()], &sizes);
            start = start.saturating_add(size);
        }
        part
    };
    Ok(sizes.iter().take(call.outputs).map(part).collect())
}

fn slice(call: &Call<'_>) -> Result<Vec<Fact>, String> {
    let input = call.need(0)?;
    let Some(dims) = &input.dims else { return Ok(vec![Fact::unknown(input.element)]) };
    let rank = dims.len();
    let (Ok(starts), Ok(ends)) = (call.list("starts", 1), call.list("ends", 2)) else {
        // Without axes any dimension may be cut.
        let axes = call.list("axes", 3).ok().flatten();
        let is_cut = |axis: usize| {
            axes.as_ref().is_none_or(|axes| axes.iter().any(|cut| place(*cut, rank) == Ok(axis)))
        };
        let dims = dims.iter().enumerate().map(|(axis, size)| size.filter(|_| !is_cut(axis))).collect();
        return Ok(vec![Fact::of(input.element, Some(dims))]);
    };
    let (starts, ends) = (starts.ok_or("starts are missing")?, ends.ok_or("ends are missing")?);
    let axes = call.list("axes", 3).map_err(|()| "axes are known only at run time")?;
    let axes = axes.unwrap_or_else(|| (0..starts.len() as i64).collect());
    let steps = call.list("steps", 4).map_err(|()| "steps are known only at run time")?;
    let steps = steps.unwrap_or_else(|| vec![1; starts.len()]);
    if [ends.len(), axes.len(), steps.len()].iter().any(|count| *count != starts.len()) {
        return Err("starts, ends, axes and steps differ in number".to_owned());
    }
    let mut sizes = dims.clone();
    let (mut from, mut by) = (vec![0; rank], vec![1; rank]);
    for (number, axis) in axes.iter().enumerate() {
        let axis = place(*axis, rank)?;
        let Some(size) = dims[axis] else { continue };
        let size = i64::try_from(size).map_err(|_| "the input is too large")?;
        let (start, count) = cut(size, starts[number], ends[number], steps[number]).ok_or("a step is 0")?;
        (sizes[axis], from[axis], by[axis]) = (Some(count), start, steps[number]);
    }
    let mut result = Fact { quantised: input.quantised, ..Fact::of(input.element, Some(sizes)) };
    result.values = result.sizes().and_then(|sizes| values::slice(input, &from, &by, &sizes));
    Ok(vec![result])
}

/// Where a slice of a dimension starts and how many elements it has; `None` for a step of 0.
fn cut(size: i64, start: i64, end: i64, step: i64) -> Option<(i64, u64)> {
    let from_end = |at: i64| if at < 0 { at.saturating_add(size) } else { at };
    let (start, end) = if step > 0 {
        (from_end(start).clamp(0, size), from_end(end).clamp(0, size))
    } else {
        (from_end(start).clamp(0, (size - 1).max(0)), from_end(end).clamp(-1, size - 1))
    };
    let way = if step > 0 { end - start } else { start - end };
    let count = u64::try_from(way).unwrap_or(0).div_ceil(Some(step.unsigned_abs()).filter(|step| *step > 0)?);
    Some((start, count))
}

fn gather(call: &Call<'_>) -> Result<Vec<Fact>, String> {
    let (data, indices) = (call.need(0)?, call.need(1)?);
    let (Some(from), Some(picked)) = (&data.dims, &indices.dims) else {
        return Ok(vec![Fact::unknown(data.element)]);
    };
    let axis = call.axis(0, from.len())?;
    let mut result = Fact::of(data.element, Some([&from[..axis], picked, &from[axis + 1..]].concat()));
    result.values = result.sizes().and_then(|sizes| values::gather(data, indices, axis, &sizes));
    Ok(vec![result])
}

fn gather_nd(call: &Call<'_>) -> Result<Option<Dims>, String> {
    let (Some(data), Some(indices)) = (call.dims(0), call.dims(1)) else { return Ok(None) };
    let Some((Some(depth), outer)) = indices.split_last() else { return Ok(None) };
    let batch = call.int("batch_dims").unwrap_or(0);
    let taken =
        usize::try_from(batch).ok().and_then(|batch| batch.checked_add(usize::try_from(*depth).ok()?));
    let rest = taken.and_then(|taken| data.get(taken..));
    let rest = rest.ok_or_else(|| format!("indices of {depth} do not fit {}", written(data)))?;
    Ok(Some([outer, rest].concat()))
}

fn expand(call: &Call<'_>) -> Result<Vec<Fact>, String> {
    let input = call.need(0)?;
    let (Some(from), Some(to)) = (&input.dims, target(call.need(1)?)?) else {
        return Ok(vec![Fact::unknown(input.element)]);
    };
    let dims = broadcast(from, &to)?;
    let mut result = Fact::of(input.element, Some(dims));
    result.values = result.sizes().and_then(|sizes| values::expand(input, &sizes));
    Ok(vec![result])
}

fn tile(call: &Call<'_>) -> Result<Option<Dims>, String> {
    let Some(dims) = call.dims(0) else { return Ok(None) };
    let Some(repeats) = target(call.need(1)?)? else { return Ok(Some(vec![None; dims.len()])) };
    if repeats.len() != dims.len() {
        return Err(format!("{} repeats do not fit {}", repeats.len(), written(dims)));
    }
    let size =
        |(size, repeat): (&Option<u64>, Option<u64>)| size.zip(repeat).and_then(|(a, b)| a.checked_mul(b));
    Ok(Some(dims.iter().zip(repeats).map(size).collect()))
}

fn pad(call: &Call<'_>) -> Result<Option<Dims>, String> {
    let Some(dims) = call.dims(0) else { return Ok(None) };
    let rank = dims.len();
    let (Ok(Some(pads)), Ok(axes)) = (call.list("pads", 1), call.list("axes", 3)) else {
        return Ok(Some(vec![None; rank]));
    };
    let axes = axes.unwrap_or_else(|| (0..rank as i64).collect());
    if pads.len() != 2 * axes.len() {
        return Err(format!("{} pads do not fit {}", pads.len(), written(dims)));
    }
    let mut result = dims.clone();
    for (number, axis) in axes.iter().enumerate() {
        let axis = place(*axis, rank)?;
        let added = pads[number].saturating_add(pads[number + axes.len()]);
        let Some(size) = dims[axis] else { continue };
        result[axis] = Some(size.checked_add_signed(added).ok_or("more is cut off than there is")?);
    }
    Ok(Some(result))
}

fn one_hot(call: &Call<'_>) -> Result<Vec<Fact>, String> {
    let element = call.need(2)?.element;
    let Some(mut dims) = call.dims(0).cloned() else { return Ok(vec![Fact::unknown(element)]) };
    let depth = call.need(1)?.values.as_ref().and_then(|values| values.first().copied().flatten());
    let axis = call.axis(-1, dims.len() + 1)?;
    dims.insert(axis, depth.map(|depth| depth as u64));
    Ok(vec![Fact::of(element, Some(dims))])
}

fn blocks(call: &Call<'_>) -> Result<Option<Dims>, String> {
    let Some(dims) = call.dims(0) else { return Ok(None) };
    let [batch, channels, height, width] = dims.as_slice() else {
        return Err(format!("{} is not a picture", written(dims)));
    };
    let block = call.int("blocksize").and_then(|block| u64::try_from(block).ok()).filter(|block| *block > 0);
    let block = block.ok_or("blocksize is not above 0")?;
    let area = block.checked_mul(block).ok_or("blocksize is too large")?;
    let more = |size: &Option<u64>, by: u64| size.and_then(|size| size.checked_mul(by));
    let less = |size: &Option<u64>, by: u64| size.map(|size| size / by);
    Ok(Some(match call.operator {
        Operator::DepthToSpace => vec![*batch, less(channels, area), more(height, block), more(width, block)],
        _ => vec![*batch, more(channels, area), less(height, block), less(width, block)],
    }))
}
