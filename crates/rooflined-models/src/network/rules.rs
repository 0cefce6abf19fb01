//! Shape rules: what each operator writes, by the operators' specification
//! (<https://onnx.ai/onnx/operators/>), for all operator sets from 7 on.

use super::element::ElementType;
use super::fact::{Call, Dims, Fact, broadcast, few, place, product, written};
use super::onnx::{Attribute, Values};
use super::operator::{Kind, Operator};
use super::{layout, values, window};

/// Facts of the outputs, as far as there are rules; fewer than the node has where they are unknown.
pub fn infer(call: &Call<'_>) -> Result<Vec<Fact>, String> {
    use Operator as O;
    let one = |dims: Option<Dims>| -> Result<Vec<Fact>, String> { Ok(vec![Fact::of(call.element(), dims)]) };
    match call.operator {
        O::Conv | O::ConvTranspose | O::DeformConv => one(window::convolved(call)?),
        O::ConvInteger => Ok(vec![Fact::of(ElementType::Int32, window::convolved(call)?)]),
        O::QLinearConv => Ok(vec![Fact::of(call.element(), window::convolved(call)?)]),
        O::MatMul => one(matmul(call.dims(0), call.dims(1))?),
        O::MatMulInteger => Ok(vec![Fact::of(ElementType::Int32, matmul(call.dims(0), call.dims(1))?)]),
        O::QLinearMatMul => one(matmul(call.dims(0), call.dims(3))?),
        O::Gemm => one(gemm(call)?),
        O::Einsum => one(einsum(call)?),
        O::Attention => one(attention(call)),
        O::LSTM | O::GRU | O::RNN => recurrent(call),
        O::MaxPool | O::AveragePool | O::LpPool | O::QLinearAveragePool => {
            let dims = window::pooled(call)?;
            Ok(vec![Fact::of(call.element(), dims.clone()), Fact::of(ElementType::Int64, dims)])
        }
        O::GlobalAveragePool | O::GlobalMaxPool | O::GlobalLpPool | O::QLinearGlobalAveragePool => {
            window::whole_picture(call)
        }
        O::RoiAlign | O::MaxRoiPool => one(regions(call)?),
        O::Resize | O::Upsample => one(window::resized(call)?),
        O::GridSample => one(call.dims(0).zip(call.dims(1)).and_then(|(input, grid)| {
            let mut dims = input.get(..2)?.to_vec();
            dims.extend(grid.get(1..grid.len().checked_sub(1)?)?);
            Some(dims)
        })),
        O::AffineGrid => one(call.input(1).and_then(Fact::integers).and_then(|size| {
            let sizes = size.iter().map(|size| u64::try_from(*size).ok());
            let rank = size.len() as u64;
            Some(
                [vec![sizes.clone().next()?], sizes.skip(2).collect(), vec![Some(rank.checked_sub(2)?)]]
                    .concat(),
            )
        })),
        O::Constant => constant(call),
        O::ConstantOfShape => filled(call),
        O::RandomNormal | O::RandomUniform => {
            let dims = call.counts("shape")?.map(|sizes| sizes.into_iter().map(Some).collect());
            Ok(vec![Fact::of(typed(call, "dtype", ElementType::Float32), dims)])
        }
        O::Range => range(call),
        O::Shape => shape(call),
        O::Size => {
            let count = call.need(0)?.sizes().and_then(|sizes| product(&sizes));
            let values = Some(vec![count.map(|count| count as f64)]);
            Ok(vec![Fact { values, ..Fact::shaped(ElementType::Int64, Vec::new()) }])
        }
        O::NonZero => {
            let rank = call.need(0)?.rank().map(|rank| rank as u64);
            Ok(vec![match values::nonzero(call.need(0)?) {
                Some((sizes, values)) => Fact {
                    values: Some(values),
                    ..Fact::shaped(ElementType::Int64, sizes.into_iter().map(Some).collect())
                },
                None => Fact::shaped(ElementType::Int64, vec![rank, None]),
            }])
        }
        O::NonMaxSuppression => Ok(vec![Fact::shaped(ElementType::Int64, vec![None, Some(3)])]),
        O::TopK => top(call),
        O::ArgMax | O::ArgMin => {
            let dims = call.need(0)?.dims.as_ref().map(|dims| {
                let axis = call.axis(0, dims.len())?;
                Ok::<_, String>(without(dims, &[axis], call.int("keepdims") != Some(0)))
            });
            Ok(vec![Fact::of(ElementType::Int64, dims.transpose()?)])
        }
        O::CumSum => same(call),
        _ if call.operator.kind() == Kind::Reduction => reduced(call),
        O::QLinearAdd | O::QLinearMul => one(match (call.dims(0), call.dims(3)) {
            (Some(a), Some(b)) => Some(broadcast(a, b)?),
            _ => None,
        }),
        O::QuantizeLinear => {
            let element = call.input(2).map_or(ElementType::Uint8, |zero| zero.element);
            Ok(vec![Fact::of(typed(call, "output_dtype", element), call.need(0)?.dims.clone())])
        }
        O::DynamicQuantizeLinear => {
            let scalar = |element| Fact::shaped(element, Vec::new());
            let first = Fact::of(ElementType::Uint8, call.need(0)?.dims.clone());
            Ok(vec![first, scalar(ElementType::Float32), scalar(ElementType::Uint8)])
        }
        O::DequantizeLinear => {
            let element = call.input(1).map_or(ElementType::Float32, |scale| scale.element);
            let from = call.need(0)?;
            let quantised = Some(from.element).filter(|element| element.is_narrow());
            Ok(vec![Fact { quantised, ..Fact::of(element, from.dims.clone()) }])
        }
        O::Cast | O::CastLike => {
            let element = call.input(1).map_or(ElementType::Unknown, |like| like.element);
            let element = typed(call, "to", element);
            let from = call.need(0)?;
            let values = from.values.as_ref().map(|values| values::cast(values, element));
            Ok(vec![Fact { values, ..Fact::of(element, from.dims.clone()) }])
        }
        O::EyeLike | O::RandomNormalLike | O::RandomUniformLike => {
            Ok(vec![Fact::of(typed(call, "dtype", call.element()), call.need(0)?.dims.clone())])
        }
        _ if call.operator.kind() == Kind::Elementwise && *call.operator != O::Clip => elementwise(call),
        O::Dropout => {
            let mask = Fact::of(ElementType::Bool, call.need(0)?.dims.clone());
            Ok(vec![call.need(0)?.clone(), mask])
        }
        O::Identity => Ok(vec![call.need(0)?.clone()]),
        O::SkipLayerNormalization => {
            let whole = Fact::of(call.element(), call.need(0)?.dims.clone());
            let unknown = Fact::unknown(ElementType::Float32);
            Ok(vec![whole.clone(), unknown.clone(), unknown, whole])
        }
        O::Clip => {
            let input = call.need(0)?;
            Ok(vec![Fact { values: values::clip(call), ..Fact::of(input.element, input.dims.clone()) }])
        }
        O::Trilu | O::ReverseSequence | O::Scatter | O::ScatterElements | O::ScatterND => same(call),
        _ if matches!(call.operator.kind(), Kind::Normalization | Kind::Softmax) => same(call),
        _ => layout::infer(call),
    }
}

fn same(call: &Call<'_>) -> Result<Vec<Fact>, String> {
    let input = call.need(0)?;
    Ok(vec![Fact::of(input.element, input.dims.clone())])
}

/// The type that an attribute numbers.
pub fn typed(call: &Call<'_>, attribute: &str, default: ElementType) -> ElementType {
    let number =
        call.int(attribute).and_then(|number| u64::try_from(number).ok()).filter(|number| *number > 0);
    number.map_or(default, ElementType::of_number)
}

fn elementwise(call: &Call<'_>) -> Result<Vec<Fact>, String> {
    use Operator as O;
    let mut dims = Some(Dims::new());
    for input in call.inputs.iter().copied().flatten() {
        dims = match (dims, &input.dims) {
            (Some(so_far), Some(more)) => Some(broadcast(&so_far, more)?),
            _ => None,
        };
    }
    let element = match call.operator {
        O::Equal | O::Greater | O::GreaterOrEqual | O::Less | O::LessOrEqual => ElementType::Bool,
        O::And | O::Or | O::Xor | O::Not | O::IsInf | O::IsNaN => ElementType::Bool,
        O::Where => call.need(1)?.element,
        _ => call.element(),
    };
    let mut result = Fact::of(element, dims);
    result.values = result.sizes().and_then(|sizes| values::elementwise(call, &sizes));
    Ok(vec![result])
}

fn matmul(a: Option<&Dims>, b: Option<&Dims>) -> Result<Option<Dims>, String> {
    let (Some(a), Some(b)) = (a, b) else { return Ok(None) };
    let misfit = || format!("{} by {} is no product", written(a), written(b));
    let (Some((last, outer)), Some(_)) = (a.split_last(), b.last()) else { return Err(misfit()) };
    // A vector is a row on the left and a column on the right, and is dropped from the result.
    let (rows, left) = outer.split_last().map_or((None, outer), |(rows, left)| (Some(*rows), left));
    let (right, inner, columns) = match b.as_slice() {
        [inner] => (&[][..], *inner, None),
        [right @ .., inner, columns] => (right, *inner, Some(*columns)),
        [] => return Err(misfit()),
    };
    if last.zip(inner).is_some_and(|(x, y)| x != y) {
        return Err(misfit());
    }
    let mut dims = broadcast(left, right)?;
    dims.extend(rows);
    dims.extend(columns);
    Ok(Some(dims))
}

fn gemm(call: &Call<'_>) -> Result<Option<Dims>, String> {
    let (Some(a), Some(b)) = (call.dims(0), call.dims(1)) else { return Ok(None) };
    let ([a0, a1], [b0, b1]) = (a.as_slice(), b.as_slice()) else {
        return Err(format!("{} by {} is no product of matrices", written(a), written(b)));
    };
    let (rows, inner) = if call.is_set("transA") { (*a1, *a0) } else { (*a0, *a1) };
    let (other, columns) = if call.is_set("transB") { (*b1, *b0) } else { (*b0, *b1) };
    if inner.zip(other).is_some_and(|(x, y)| x != y) {
        return Err(format!("{} by {} is no product", written(a), written(b)));
    }
    Ok(Some(vec![rows, columns]))
}

/// An equation such as `bhid,bhjd->bhij` with the sizes of its letters.
pub struct Equation {
    pub sizes: Vec<(char, u64)>,
    /// The letters of the result.
    right: String,
}

/// The equation of an `Einsum`; `None` for one with dots, and where sizes are unknown.
pub fn equation(call: &Call<'_>) -> Result<Option<Equation>, String> {
    let equation: String = call.text("equation").chars().filter(|letter| *letter != ' ').collect();
    let Some((left, right)) = equation.split_once("->").filter(|_| !equation.contains('.')) else {
        return Ok(None);
    };
    let mut sizes: Vec<(char, u64)> = Vec::new();
    for (place, term) in left.split(',').enumerate() {
        let Some(known) = call.input(place).and_then(Fact::sizes) else { return Ok(None) };
        if known.len() != term.chars().count() {
            return Err(format!("term {term:?} does not fit {} dimensions", known.len()));
        }
        for (letter, size) in term.chars().zip(known) {
            match sizes.iter_mut().find(|(of, _)| *of == letter) {
                None => sizes.push((letter, size)),
                Some((_, before)) if *before == 1 => *before = size,
                Some((_, before)) if *before != size && size != 1 => {
                    return Err(format!("{letter} has sizes {before} and {size}"));
                }
                Some(_) => {}
            }
        }
    }
    Ok(Some(Equation { sizes, right: right.to_owned() }))
}

fn einsum(call: &Call<'_>) -> Result<Option<Dims>, String> {
    let Some(Equation { sizes, right }) = equation(call)? else { return Ok(None) };
    let size = |letter: char| sizes.iter().find(|(of, _)| *of == letter).map(|(_, size)| *size);
    Ok(Some(right.chars().map(size).collect()))
}

/// Queries, keys and values with four dimensions: batch, heads, places, width.
fn attention(call: &Call<'_>) -> Option<Dims> {
    let (queries, values) = (call.dims(0)?, call.dims(2)?);
    match (queries.as_slice(), values.as_slice()) {
        ([batch, heads, places, _], [_, _, _, width]) => Some(vec![*batch, *heads, *places, *width]),
        _ => None,
    }
}

fn recurrent(call: &Call<'_>) -> Result<Vec<Fact>, String> {
    let unknown = || Ok(vec![Fact::unknown(call.element())]);
    let (Some(input), Some(weights)) = (call.dims(0), call.dims(2)) else { return unknown() };
    let ([first, second, _], [directions, _, width]) = (input.as_slice(), weights.as_slice()) else {
        return Err("the input and the weights need three dimensions".to_owned());
    };
    let is_batch_first = call.is_set("layout");
    let (batch, steps) = if is_batch_first { (*first, *second) } else { (*second, *first) };
    let (all, last) = if is_batch_first {
        (vec![batch, steps, *directions, *width], vec![batch, *directions, *width])
    } else {
        (vec![steps, *directions, batch, *width], vec![*directions, batch, *width])
    };
    let shaped = |dims: &Dims| Fact::shaped(call.element(), dims.clone());
    Ok(vec![shaped(&all), shaped(&last), shaped(&last)])
}

fn regions(call: &Call<'_>) -> Result<Option<Dims>, String> {
    let (Some(input), Some(regions)) = (call.dims(0), call.dims(1)) else { return Ok(None) };
    let size = |name: &str| call.int(name).map_or(Some(1), |size| u64::try_from(size).ok());
    let (height, width) = match call.counts("pooled_shape")?.as_deref() {
        Some([height, width]) => (Some(*height), Some(*width)),
        _ => (size("output_height"), size("output_width")),
    };
    Ok(Some(vec![regions.first().copied().flatten(), input.get(1).copied().flatten(), height, width]))
}

fn constant(call: &Call<'_>) -> Result<Vec<Fact>, String> {
    let scalar =
        |element, value: f64| Fact { values: Some(vec![Some(value)]), ..Fact::shaped(element, Vec::new()) };
    for (name, value) in call.attributes {
        return Ok(vec![match value {
            Attribute::Tensor(stored) => Fact {
                values: stored.values.clone(),
                ..Fact::shaped(
                    ElementType::of_number(stored.element),
                    stored.dims.iter().copied().map(Some).collect(),
                )
            },
            Attribute::Int(value) if name == "value_int" => scalar(ElementType::Int64, *value as f64),
            Attribute::Float(value) => scalar(ElementType::Float32, *value),
            Attribute::Ints(values) => Fact::list(values.iter().map(|value| Some(*value as f64)).collect()),
            Attribute::Floats(values) => Fact {
                element: ElementType::Float32,
                ..Fact::list(values.iter().copied().map(Some).collect())
            },
            Attribute::Text(_) => Fact::of(ElementType::Text, None),
            _ => continue,
        }]);
    }
    Ok(Vec::new())
}

fn filled(call: &Call<'_>) -> Result<Vec<Fact>, String> {
    let (element, value) = match call.attribute("value") {
        Some(Attribute::Tensor(stored)) => {
            let value = stored.values.as_ref().and_then(|values| values.first().copied().flatten());
            (ElementType::of_number(stored.element), value)
        }
        _ => (ElementType::Float32, Some(0.0)),
    };
    let mut result = Fact::of(element, layout::target(call.need(0)?)?);
    result.values = result.sizes().and_then(|sizes| few(&sizes)).map(|count| vec![value; count]);
    Ok(vec![result])
}

fn range(call: &Call<'_>) -> Result<Vec<Fact>, String> {
    let number = |place: usize| call.input(place)?.values.as_ref()?.first().copied().flatten();
    let (Some(start), Some(limit), Some(step)) = (number(0), number(1), number(2)) else {
        return Ok(vec![Fact::shaped(call.element(), vec![None])]);
    };
    let count = ((limit - start) / step).ceil().max(0.0);
    if step == 0.0 || !count.is_finite() {
        return Err("the range has no end".to_owned());
    }
    let count = count as u64;
    let values =
        few(&[count]).map(|count| (0..count).map(|place| Some(start + place as f64 * step)).collect());
    Ok(vec![Fact { values, ..Fact::shaped(call.element(), vec![Some(count)]) }])
}

fn shape(call: &Call<'_>) -> Result<Vec<Fact>, String> {
    let Some(dims) = call.need(0)?.dims.as_ref() else {
        return Ok(vec![Fact::shaped(ElementType::Int64, vec![None])]);
    };
    let rank = dims.len() as i64;
    let bound = |name: &str, default: i64| {
        let value = call.int(name).unwrap_or(default);
        // Both ends lie within the rank, which is small.
        (if value < 0 { value.saturating_add(rank) } else { value }).clamp(0, rank) as usize
    };
    let (start, end) = (bound("start", 0), bound("end", rank));
    let sizes: Values =
        dims.get(start..end).unwrap_or_default().iter().map(|size| size.map(|size| size as f64)).collect();
    Ok(vec![Fact::list(sizes)])
}

fn top(call: &Call<'_>) -> Result<Vec<Fact>, String> {
    let input = call.need(0)?;
    let Some(mut dims) = input.dims.clone() else { return Ok(vec![Fact::unknown(input.element)]) };
    let axis = call.axis(-1, dims.len())?;
    let count = call.int("k").map(|count| count as f64);
    let count = count.or_else(|| call.input(1)?.values.as_ref()?.first().copied().flatten());
    dims[axis] = count.map(|count| count as u64);
    Ok(vec![Fact::of(input.element, Some(dims.clone())), Fact::of(ElementType::Int64, Some(dims))])
}

/// A shape with `axes` of size 1, or without them.
fn without(dims: &Dims, axes: &[usize], is_kept: bool) -> Dims {
    let size = |(axis, size): (usize, &Option<u64>)| match axes.contains(&axis) {
        true if is_kept => Some(Some(1)),
        true => None,
        false => Some(*size),
    };
    dims.iter().enumerate().filter_map(size).collect()
}

fn reduced(call: &Call<'_>) -> Result<Vec<Fact>, String> {
    let input = call.need(0)?;
    let Some(dims) = &input.dims else { return Ok(vec![Fact::unknown(input.element)]) };
    let Ok(axes) = call.list("axes", 1) else { return Ok(vec![Fact::unknown(input.element)]) };
    let axes = axes.unwrap_or_default();
    let axes = match axes.as_slice() {
        [] if call.is_set("noop_with_empty_axes") => return Ok(vec![input.clone()]),
        [] => (0..dims.len()).collect::<Vec<_>>(),
        some => some.iter().map(|axis| place(*axis, dims.len())).collect::<Result<_, _>>()?,
    };
    let kept: Option<Vec<u64>> = without(dims, &axes, true).into_iter().collect();
    let values = kept.and_then(|kept| values::reduce(call, &kept));
    Ok(vec![Fact {
        values,
        ..Fact::of(input.element, Some(without(dims, &axes, call.int("keepdims") != Some(0))))
    }])
}
