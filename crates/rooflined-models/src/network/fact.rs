//! What is known of a tensor before a run, and one call of an operator on such facts.

use super::element::ElementType;
use super::error::shown;
use super::onnx::{Attribute, MAX_RANK, MAX_VALUES, Values};
use super::operator::Operator;

/// Most elements of a tensor: a million pictures of a million pixels.
pub const MAX_ELEMENTS: u64 = 1 << 40;

/// Sizes from the outermost; `None` for one that only a run knows.
pub type Dims = Vec<Option<u64>>;

/// What is known of a tensor.
#[derive(Debug, Clone)]
pub struct Fact {
    pub element: ElementType,
    /// `None` where not even the rank is known.
    pub dims: Option<Dims>,
    /// Its numbers, where they are few and some of them known.
    pub values: Option<Values>,
    /// See [`Tensor::quantised`](super::Tensor::quantised).
    pub quantised: Option<ElementType>,
}

impl Fact {
    /// With or without a shape.
    pub const fn of(element: ElementType, dims: Option<Dims>) -> Self {
        Self { element, dims, values: None, quantised: None }
    }

    pub const fn unknown(element: ElementType) -> Self {
        Self::of(element, None)
    }

    pub const fn shaped(element: ElementType, dims: Dims) -> Self {
        Self::of(element, Some(dims))
    }

    /// A list of integers.
    pub fn list(values: Values) -> Self {
        let dims = vec![Some(values.len() as u64)];
        Self { values: Some(values), ..Self::shaped(ElementType::Int64, dims) }
    }

    /// `None` unless all are known.
    pub fn sizes(&self) -> Option<Vec<u64>> {
        self.dims.as_ref()?.iter().copied().collect()
    }

    pub fn rank(&self) -> Option<usize> {
        self.dims.as_ref().map(Vec::len)
    }

    /// Its numbers as integers, where all are known.
    pub fn integers(&self) -> Option<Vec<i64>> {
        // Numbers beyond i64 are ends of slices, which are clamped anyway.
        self.values.as_ref()?.iter().map(|value| value.map(|value| value as i64)).collect()
    }

    pub fn is_known(&self) -> bool {
        self.values.as_ref().is_some_and(|values| values.iter().all(Option::is_some))
    }
}

/// An operator with the facts of its inputs.
pub struct Call<'a> {
    pub operator: &'a Operator,
    pub opset: u64,
    pub attributes: &'a [(String, &'a Attribute)],
    /// `None` for those left out.
    pub inputs: &'a [Option<&'a Fact>],
    /// How many outputs the node names.
    pub outputs: usize,
}

impl<'a> Call<'a> {
    pub fn attribute(&self, name: &str) -> Option<&'a Attribute> {
        self.attributes.iter().find(|(of, _)| of == name).map(|(_, value)| *value)
    }

    pub fn int(&self, name: &str) -> Option<i64> {
        match self.attribute(name)? {
            Attribute::Int(value) => Some(*value),
            _ => None,
        }
    }

    pub fn is_set(&self, name: &str) -> bool {
        self.int(name).is_some_and(|value| value != 0)
    }

    pub fn ints(&self, name: &str) -> Option<Vec<i64>> {
        match self.attribute(name)? {
            Attribute::Ints(values) => Some(values.clone()),
            _ => None,
        }
    }

    /// A list of counts: none of them negative.
    pub fn counts(&self, name: &str) -> Result<Option<Vec<u64>>, String> {
        let Some(values) = self.ints(name) else { return Ok(None) };
        let counts = values.iter().map(|value| u64::try_from(*value)).collect::<Result<_, _>>();
        counts.map(Some).map_err(|_| format!("{name} is negative"))
    }

    pub fn floats(&self, name: &str) -> Option<Vec<f64>> {
        match self.attribute(name)? {
            Attribute::Floats(values) => Some(values.clone()),
            _ => None,
        }
    }

    pub fn text(&self, name: &str) -> &'a str {
        match self.attribute(name) {
            Some(Attribute::Text(text)) => text,
            _ => "",
        }
    }

    pub fn input(&self, place: usize) -> Option<&'a Fact> {
        self.inputs.get(place).copied().flatten()
    }

    /// An input that the operator cannot do without.
    pub fn need(&self, place: usize) -> Result<&'a Fact, String> {
        self.input(place).ok_or_else(|| format!("input {place} is missing"))
    }

    /// The type of the first input.
    pub fn element(&self) -> ElementType {
        self.input(0).map_or(ElementType::Unknown, |fact| fact.element)
    }

    pub fn dims(&self, place: usize) -> Option<&'a Dims> {
        self.input(place)?.dims.as_ref()
    }

    /// The list of integers of an attribute or, in later operator sets, of an input; `Ok(None)` where there is neither and
    /// `Err(())` where only a run knows it.
    pub fn list(&self, name: &str, place: usize) -> Result<Option<Vec<i64>>, ()> {
        if let Some(values) = self.ints(name) {
            return Ok(Some(values));
        }
        match self.input(place) {
            None => Ok(None),
            Some(fact) if fact.sizes().is_some_and(|sizes| sizes.contains(&0)) => Ok(Some(Vec::new())),
            Some(fact) => fact.integers().map(Some).ok_or(()),
        }
    }

    /// The attribute `axis` as a place below `rank`.
    pub fn axis(&self, default: i64, rank: usize) -> Result<usize, String> {
        place(self.int("axis").unwrap_or(default), rank)
    }
}

/// A position that may count from the end as a place below `rank`.
pub fn place(axis: i64, rank: usize) -> Result<usize, String> {
    let from_end = if axis < 0 { axis.saturating_add(rank as i64) } else { axis };
    usize::try_from(from_end)
        .ok()
        .filter(|place| *place < rank)
        .ok_or_else(|| format!("axis {axis} does not fit a tensor of {rank} dimensions"))
}

/// The product of known sizes; `None` for more than [`MAX_ELEMENTS`].
pub fn product(sizes: &[u64]) -> Option<u64> {
    let product = sizes.iter().try_fold(1_u64, |product, size| product.checked_mul(*size))?;
    Some(product).filter(|product| *product <= MAX_ELEMENTS)
}

/// More elements or dimensions than any tensor has.
pub fn is_too_large(fact: &Fact) -> bool {
    fact.rank().is_some_and(|rank| rank > MAX_RANK)
        || fact.sizes().is_some_and(|sizes| product(&sizes).is_none())
}

/// The number of elements, where it is small enough for values.
pub fn few(sizes: &[u64]) -> Option<usize> {
    product(sizes).filter(|count| *count <= MAX_VALUES).and_then(|count| usize::try_from(count).ok())
}

/// The shape of both by the rule of numpy: aligned at the end, and a size of 1 stretches.
pub fn broadcast(a: &[Option<u64>], b: &[Option<u64>]) -> Result<Dims, String> {
    let rank = a.len().max(b.len());
    let from_end = |dims: &[Option<u64>], place: usize| {
        if place < dims.len() { dims[dims.len() - 1 - place] } else { Some(1) }
    };
    let mut dims = Dims::with_capacity(rank);
    for place in (0..rank).rev() {
        dims.push(match (from_end(a, place), from_end(b, place)) {
            (Some(1), other) | (other, Some(1)) => other,
            // An unknown size beside a known one above 1 has to be that one or 1.
            (None, known) | (known, None) => known,
            (Some(x), Some(y)) if x == y => Some(x),
            _ => return Err(format!("shapes {} and {} do not fit", written(a), written(b))),
        });
    }
    Ok(dims)
}

/// A shape as messages show it.
pub fn written(dims: &[Option<u64>]) -> String {
    let size = |size: &Option<u64>| size.map_or_else(|| "?".to_owned(), |size| size.to_string());
    shown(&format!("[{}]", dims.iter().map(size).collect::<Vec<_>>().join(", ")))
}
