//! The constant evaluator: numbers of small tensors, because shapes depend on them.
//!
//! It takes what exporters compute shapes with: sizes of tensors, indices, arithmetic. A number that is not known stays
//! unknown, and with it whatever depends on it.

use super::element::ElementType;
use super::fact::{Call, Fact, few};
use super::onnx::{Attribute, Values};
use super::operator::Operator;

/// A tensor with the numbers in it.
struct Source<'a> {
    sizes: Vec<u64>,
    values: &'a Values,
}

impl<'a> Source<'a> {
    fn of(fact: &'a Fact) -> Option<Self> {
        let (sizes, values) = (fact.sizes()?, fact.values.as_ref()?);
        (few(&sizes)? == values.len()).then_some(Self { sizes, values })
    }

    /// The number at a position, where sizes of 1 stretch and leading dimensions may be missing.
    fn stretched(&self, at: &[u64]) -> Option<f64> {
        let skipped = at.len() - self.sizes.len();
        let place = |flat: u64, (size, at): (&u64, &u64)| flat * size + if *size == 1 { 0 } else { *at };
        self.flat(self.sizes.iter().zip(&at[skipped..]).fold(0, place))
    }

    fn at(&self, at: &[u64]) -> Option<f64> {
        self.flat(self.sizes.iter().zip(at).fold(0, |flat, (size, at)| flat * size + at))
    }

    fn flat(&self, place: u64) -> Option<f64> {
        self.values.get(usize::try_from(place).ok()?).copied().flatten()
    }
}

/// Fills a tensor of `sizes`, position by position; `None` where it is too large.
fn fill(sizes: &[u64], mut number: impl FnMut(&[u64]) -> Option<f64>) -> Option<Values> {
    let count = few(sizes)?;
    let mut at = vec![0; sizes.len()];
    let mut values = Values::with_capacity(count);
    for _ in 0..count {
        values.push(number(&at));
        for axis in (0..sizes.len()).rev() {
            at[axis] += 1;
            if at[axis] < sizes[axis] {
                break;
            }
            at[axis] = 0;
        }
    }
    Some(values)
}

/// The numbers of an elementwise operator's result, which has these sizes.
pub fn elementwise(call: &Call<'_>, sizes: &[u64]) -> Option<Values> {
    // Most calls are on pictures.
    few(sizes)?;
    let sources: Vec<_> = call.inputs.iter().map(|input| Source::of((*input)?)).collect::<Option<_>>()?;
    let is_whole = !call.element().is_float();
    let keeps_sign = call.is_set("fmod");
    fill(sizes, |at| {
        let number = |place: usize| sources.get(place)?.stretched(at);
        if *call.operator == Operator::Where {
            return if number(0)? == 0.0 { number(2) } else { number(1) };
        }
        let a = number(0)?;
        if sources.len() > 1 {
            binary(call.operator, a, number(1)?, is_whole, keeps_sign)
        } else {
            unary(call.operator, a)
        }
    })
}

fn unary(operator: &Operator, a: f64) -> Option<f64> {
    Some(match operator {
        Operator::Abs => a.abs(),
        Operator::Neg => -a,
        Operator::Floor => a.floor(),
        Operator::Ceil => a.ceil(),
        Operator::Round => a.round_ties_even(),
        Operator::Sqrt => a.sqrt(),
        Operator::Exp => a.exp(),
        Operator::Log => a.ln(),
        Operator::Reciprocal => a.recip(),
        Operator::Sign if a == 0.0 => 0.0,
        Operator::Sign => a.signum(),
        Operator::Relu => a.max(0.0),
        Operator::Not => truth(a == 0.0),
        _ => return None,
    })
}

fn binary(operator: &Operator, a: f64, b: f64, is_whole: bool, keeps_sign: bool) -> Option<f64> {
    Some(match operator {
        Operator::Add => a + b,
        Operator::Sub => a - b,
        Operator::Mul => a * b,
        Operator::Div if is_whole && b == 0.0 => return None,
        Operator::Div if is_whole => (a / b).trunc(),
        Operator::Div => a / b,
        Operator::Mod if b == 0.0 => return None,
        Operator::Mod if keeps_sign => a % b,
        Operator::Mod => a - b * (a / b).floor(),
        Operator::Pow => a.powf(b),
        Operator::Min => a.min(b),
        Operator::Max => a.max(b),
        Operator::Equal => truth(a == b),
        Operator::Less => truth(a < b),
        Operator::LessOrEqual => truth(a <= b),
        Operator::Greater => truth(a > b),
        Operator::GreaterOrEqual => truth(a >= b),
        Operator::And => truth(a != 0.0 && b != 0.0),
        Operator::Or => truth(a != 0.0 || b != 0.0),
        Operator::Xor => truth((a != 0.0) != (b != 0.0)),
        _ => return None,
    })
}

/// The numbers between the limits, which are attributes or inputs that may be left out.
pub fn clip(call: &Call<'_>) -> Option<Values> {
    let limit = |name: &str, place: usize, default: f64| match (call.attribute(name), call.input(place)) {
        (Some(Attribute::Float(limit)), _) => Some(*limit),
        (_, Some(fact)) => fact.values.as_ref()?.first().copied()?,
        (_, None) => Some(default),
    };
    let least = limit("min", 1, f64::NEG_INFINITY)?;
    let most = limit("max", 2, f64::INFINITY)?;
    let values = call.input(0)?.values.as_ref()?;
    Some(values.iter().map(|value| value.map(|value| value.max(least).min(most))).collect())
}

fn truth(value: bool) -> f64 {
    if value { 1.0 } else { 0.0 }
}

/// Numbers in another type.
pub fn cast(values: &Values, element: ElementType) -> Values {
    let number = |value: f64| match element {
        ElementType::Bool => truth(value != 0.0),
        _ if element.is_float() => value,
        _ => value.trunc(),
    };
    values.iter().map(|value| value.map(number)).collect()
}

/// The numbers of a transposed tensor.
pub fn transpose(fact: &Fact, order: &[usize], sizes: &[u64]) -> Option<Values> {
    let source = Source::of(fact)?;
    let mut from = vec![0; order.len()];
    fill(sizes, |at| {
        for (axis, place) in order.iter().zip(at) {
            from[*axis] = *place;
        }
        source.at(&from)
    })
}

/// The numbers of a tensor stretched to `sizes`.
pub fn expand(fact: &Fact, sizes: &[u64]) -> Option<Values> {
    let source = Source::of(fact)?;
    fill(sizes, |at| source.stretched(at))
}

/// The numbers that `starts` and `steps` pick.
pub fn slice(fact: &Fact, starts: &[i64], steps: &[i64], sizes: &[u64]) -> Option<Values> {
    let source = Source::of(fact)?;
    fill(sizes, |at| {
        let places = at.iter().enumerate().map(|(axis, place)| {
            let step = steps[axis].checked_mul(i64::try_from(*place).ok()?)?;
            u64::try_from(starts[axis].checked_add(step)?).ok()
        });
        source.at(&places.collect::<Option<Vec<_>>>()?)
    })
}

/// The numbers that `indices` pick along `axis`.
pub fn gather(data: &Fact, indices: &Fact, axis: usize, sizes: &[u64]) -> Option<Values> {
    let (source, picked) = (Source::of(data)?, Source::of(indices)?);
    let width = picked.sizes.len();
    fill(sizes, |at| {
        let index = picked.at(&at[axis..axis + width])?;
        let index = if index < 0.0 { index + source.sizes[axis] as f64 } else { index };
        if !(0.0..source.sizes[axis] as f64).contains(&index) {
            return None;
        }
        let mut from = at[..axis].to_vec();
        from.push(index as u64);
        from.extend(&at[axis + width..]);
        source.at(&from)
    })
}

/// The numbers of tensors one after the other along `axis`.
pub fn concat(facts: &[&Fact], axis: usize, sizes: &[u64]) -> Option<Values> {
    few(sizes)?;
    // A tensor without known numbers leaves a hole.
    let sources: Vec<_> =
        facts.iter().map(|fact| Some((fact.sizes()?[axis], Source::of(fact)))).collect::<Option<_>>()?;
    sources.iter().any(|(_, source)| source.is_some()).then_some(())?;
    fill(sizes, |at| {
        let mut from = at.to_vec();
        for (size, source) in &sources {
            if from[axis] < *size {
                return source.as_ref()?.at(&from);
            }
            from[axis] -= size;
        }
        None
    })
}

/// The numbers of a reduction over `axes`; `kept` has a size for every dimension of the input, 1 for the reduced ones.
pub fn reduce(call: &Call<'_>, kept: &[u64]) -> Option<Values> {
    let source = Source::of(call.input(0)?)?;
    let fold: fn(f64, f64) -> f64 = match call.operator {
        Operator::ReduceSum | Operator::ReduceMean => |a, b| a + b,
        Operator::ReduceProd => |a, b| a * b,
        Operator::ReduceMax => f64::max,
        Operator::ReduceMin => f64::min,
        _ => return None,
    };
    let mut results: Vec<Option<Option<f64>>> = vec![None; few(kept)?];
    fill(&source.sizes, |at| {
        let place =
            kept.iter().zip(at).fold(0, |flat, (size, at)| flat * size + if *size == 1 { 0 } else { *at });
        let (result, value) = (results.get_mut(usize::try_from(place).ok()?)?, source.at(at));
        *result = Some(match *result {
            None => value,
            Some(before) => before.zip(value).map(|(a, b)| fold(a, b)),
        });
        None
    })?;
    let count = source.values.len() as f64 / results.len().max(1) as f64;
    let of_all = |value: f64| if *call.operator == Operator::ReduceMean { value / count } else { value };
    Some(results.into_iter().map(|result| result.flatten().map(of_all)).collect())
}

/// Places of the numbers other than zero, as `NonZero` lists them: a row for each dimension.
pub fn nonzero(fact: &Fact) -> Option<(Vec<u64>, Values)> {
    let source = Source::of(fact)?;
    if !fact.is_known() {
        return None;
    }
    let mut found: Vec<Vec<u64>> = Vec::new();
    fill(&source.sizes, |at| {
        if source.at(at) != Some(0.0) {
            found.push(at.to_vec());
        }
        None
    })?;
    let rank = source.sizes.len();
    let values = (0..rank).flat_map(|axis| found.iter().map(move |at| Some(at[axis] as f64))).collect();
    Some((vec![rank as u64, found.len() as u64], values))
}
