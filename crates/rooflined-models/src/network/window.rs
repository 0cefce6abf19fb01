//! Shapes of operators with a window: convolutions, pooling, and interpolation.

use super::fact::{Call, Dims, Fact, written};
use super::operator::Operator;
use super::{Convolution, Window};

/// Window, steps and padding over the spatial dimensions.
struct Reach {
    kernel: Vec<u64>,
    stride: Vec<u64>,
    dilation: Vec<u64>,
    /// Before and after each dimension, together; negative for a crop.
    padding: Vec<i64>,
    before: Vec<i64>,
}

impl Reach {
    fn of(call: &Call<'_>, kernel: Vec<u64>) -> Result<Self, String> {
        let rank = kernel.len();
        let list = |name: &str| {
            let values = call.counts(name)?.unwrap_or_else(|| vec![1; rank]);
            if values.len() != rank || values.contains(&0) {
                return Err(format!("{name} does not have {rank} sizes above 0"));
            }
            Ok(values)
        };
        let (stride, dilation) = (list("strides")?, list("dilations")?);
        let pads = call.ints("pads").unwrap_or_else(|| vec![0; 2 * rank]);
        if pads.len() != 2 * rank || kernel.contains(&0) {
            return Err(format!("pads or the window do not fit {rank} dimensions"));
        }
        let padding = (0..rank).map(|axis| pads[axis].saturating_add(pads[axis + rank])).collect();
        Ok(Self { kernel, stride, dilation, padding, before: pads[..rank].to_vec() })
    }

    /// The window with its gaps.
    fn extent(&self, axis: usize) -> Result<i64, String> {
        let gaps = (self.kernel[axis] - 1).checked_mul(self.dilation[axis]);
        gaps.and_then(|gaps| i64::try_from(gaps).ok()?.checked_add(1))
            .ok_or_else(|| "the window is too large".to_owned())
    }

    /// How many places the window has along a dimension.
    fn places(&self, call: &Call<'_>, axis: usize, size: u64) -> Result<u64, String> {
        let stride = self.stride[axis];
        match call.text("auto_pad") {
            "SAME_UPPER" | "SAME_LOWER" => return Ok(size.div_ceil(stride)),
            _ => {}
        }
        let padding = if call.text("auto_pad") == "VALID" { 0 } else { self.padding[axis] };
        let extent = self.extent(axis)?;
        let room = size.checked_add_signed(padding).and_then(|padded| padded.checked_add_signed(-extent));
        let Some(room) = room else {
            return Err(format!(
                "a window of {extent} does not fit {size} elements with {padding} of padding"
            ));
        };
        if !call.is_set("ceil_mode") {
            return Ok(room / stride + 1);
        }
        let places = room.div_ceil(stride) + 1;
        // A window that would start in the padding after the picture has no place.
        let start = (places - 1).checked_mul(stride);
        let end = size.saturating_add_signed(self.before[axis]);
        Ok(if start.is_none_or(|start| start >= end) { places - 1 } else { places })
    }
}

/// Batch, channels and spatial sizes of a shape.
type Picture<'a> = (Option<u64>, Option<u64>, &'a [Option<u64>]);

fn picture(dims: &Dims) -> Result<Picture<'_>, String> {
    match dims.as_slice() {
        [batch, channels, spatial @ ..] if !spatial.is_empty() => Ok((*batch, *channels, spatial)),
        _ => Err(format!("shape {} has no spatial dimension", written(dims))),
    }
}

/// Place of the weights among the inputs of a convolution.
pub const fn weights(operator: &Operator) -> usize {
    if matches!(operator, Operator::QLinearConv) { 3 } else { 1 }
}

/// The sizes of a convolution; `None` where those of its weights are unknown.
pub fn convolution(call: &Call<'_>) -> Result<Option<Convolution>, String> {
    let Some(weights) = call.need(weights(call.operator))?.sizes() else { return Ok(None) };
    let [first, second, kernel @ ..] = weights.as_slice() else {
        return Err("the weights have no window".to_owned());
    };
    let groups = u64::try_from(call.int("group").unwrap_or(1)).ok().filter(|groups| *groups > 0);
    let groups = groups.ok_or("group is not above 0")?;
    let all = |of_group: &u64| of_group.checked_mul(groups).ok_or("there are too many groups");
    let (cin, cout) = match call.operator {
        Operator::ConvTranspose => (*first, all(second)?),
        _ => (all(second)?, *first),
    };
    if cin % groups != 0 || cout % groups != 0 {
        return Err(format!("{cin} to {cout} channels cannot be split into {groups} groups"));
    }
    let reach = Reach::of(call, kernel.to_vec())?;
    let Reach { kernel, stride, dilation, .. } = reach;
    Ok(Some(Convolution { kernel, stride, dilation, groups, cin, cout }))
}

/// The shape that a convolution writes.
pub fn convolved(call: &Call<'_>) -> Result<Option<Dims>, String> {
    let (Some(input), Some(sizes)) = (call.dims(0), convolution(call)?) else { return Ok(None) };
    let (batch, channels, spatial) = picture(input)?;
    if spatial.len() != sizes.kernel.len() || channels.is_some_and(|channels| channels != sizes.cin) {
        let window = sizes.kernel.len();
        return Err(format!(
            "input {} does not fit {} channels and {window} dimensions",
            written(input),
            sizes.cin
        ));
    }
    let reach = Reach::of(call, sizes.kernel)?;
    let mut dims = vec![batch, Some(sizes.cout)];
    for (axis, size) in spatial.iter().enumerate() {
        let Some(size) = *size else {
            dims.push(None);
            continue;
        };
        dims.push(Some(match call.operator {
            Operator::ConvTranspose => transposed(call, &reach, axis, size)?,
            _ => reach.places(call, axis, size)?,
        }));
    }
    Ok(Some(dims))
}

fn transposed(call: &Call<'_>, reach: &Reach, axis: usize, size: u64) -> Result<u64, String> {
    let rank = reach.kernel.len();
    if let Some(shape) = call.counts("output_shape")?.filter(|shape| shape.len() >= rank) {
        return Ok(shape[shape.len() - rank + axis]);
    }
    let spread = |size: u64| size.checked_mul(reach.stride[axis]);
    if call.text("auto_pad").starts_with("SAME") {
        return spread(size).ok_or_else(|| "the result is too large".to_owned());
    }
    let extra = call.ints("output_padding").and_then(|list| list.get(axis).copied()).unwrap_or(0);
    let added = reach.extent(axis)?.saturating_add(extra).saturating_sub(reach.padding[axis]);
    spread(size.saturating_sub(1))
        .and_then(|spread| spread.checked_add_signed(added))
        .ok_or_else(|| "the result has no or too many elements".to_owned())
}

/// The window of pooling; `None` where the operator takes the whole picture.
pub fn window(call: &Call<'_>) -> Option<Window> {
    let kernel = call.counts("kernel_shape").ok()??;
    let Reach { kernel, stride, .. } = Reach::of(call, kernel).ok()?;
    Some(Window { kernel, stride })
}

/// The shape that pooling with a window writes.
pub fn pooled(call: &Call<'_>) -> Result<Option<Dims>, String> {
    let Some(input) = call.dims(0) else { return Ok(None) };
    let (batch, channels, spatial) = picture(input)?;
    let kernel = call.counts("kernel_shape")?.ok_or("kernel_shape is missing")?;
    if kernel.len() != spatial.len() {
        return Err(format!("a window of {} dimensions does not fit {}", kernel.len(), written(input)));
    }
    let reach = Reach::of(call, kernel)?;
    let mut dims = vec![batch, channels];
    for (axis, size) in spatial.iter().enumerate() {
        dims.push(size.map(|size| reach.places(call, axis, size)).transpose()?);
    }
    Ok(Some(dims))
}

/// The shape that `Resize` and `Upsample` write: sizes as given, or scaled and rounded down.
pub fn resized(call: &Call<'_>) -> Result<Option<Dims>, String> {
    let Some(input) = call.dims(0) else { return Ok(None) };
    let rank = input.len();
    let axes = match call.ints("axes") {
        Some(axes) => axes.iter().map(|axis| super::fact::place(*axis, rank)).collect::<Result<_, _>>()?,
        None => (0..rank).collect::<Vec<_>>(),
    };
    let has_region = *call.operator == Operator::Resize && call.opset >= 11;
    let given = |place: usize| call.input(place).filter(|fact| fact.sizes().is_none_or(|sizes| sizes != [0]));
    let mut dims = input.clone();
    if let Some(sizes) = given(3) {
        let Some(values) = &sizes.values else { return Ok(Some(unknown_at(dims, &axes))) };
        if values.len() != axes.len() {
            return Err(format!("{} sizes do not fit {}", values.len(), written(input)));
        }
        let ratio = kept_ratio(call, input, &axes, values);
        for (axis, value) in axes.iter().zip(values) {
            dims[*axis] = match ratio {
                Some(ratio) => input[*axis].map(|size| (size as f64 * ratio).round() as u64),
                None => value.map(|value| value as u64),
            };
        }
        return Ok(Some(dims));
    }
    let scales = match given(if has_region { 2 } else { 1 }) {
        Some(fact) => fact.values.clone(),
        None => call.floats("scales").map(|scales| scales.into_iter().map(Some).collect()),
    };
    let Some(scales) = scales else { return Ok(Some(unknown_at(dims, &axes))) };
    if scales.len() != axes.len() {
        return Err(format!("{} scales do not fit {}", scales.len(), written(input)));
    }
    for (axis, scale) in axes.iter().zip(scales) {
        // Engines compute with 32 bits.
        dims[*axis] =
            scale.zip(input[*axis]).map(|(scale, size)| (size as f32 * scale as f32).floor() as u64);
    }
    Ok(Some(dims))
}

fn unknown_at(mut dims: Dims, axes: &[usize]) -> Dims {
    for axis in axes {
        dims[*axis] = None;
    }
    dims
}

/// The one ratio of all axes, where the operator keeps the picture's proportions.
fn kept_ratio(call: &Call<'_>, input: &Dims, axes: &[usize], values: &[Option<f64>]) -> Option<f64> {
    let ratios = axes.iter().zip(values).filter_map(|(axis, value)| Some((*value)? / input[*axis]? as f64));
    match call.text("keep_aspect_ratio_policy") {
        "not_larger" => ratios.reduce(f64::min),
        "not_smaller" => ratios.reduce(f64::max),
        _ => None,
    }
}

/// One element for each channel, however large the picture.
pub fn whole_picture(call: &Call<'_>) -> Result<Vec<Fact>, String> {
    let input = call.need(0)?;
    let Some(dims) = &input.dims else { return Ok(vec![Fact::unknown(input.element)]) };
    let (batch, channels, spatial) = picture(dims)?;
    let mut dims = vec![batch, channels];
    dims.resize(spatial.len() + 2, Some(1));
    Ok(vec![Fact::shaped(input.element, dims)])
}
