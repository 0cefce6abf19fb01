//! What a node computes: sizes of convolutions and products, floating-point operations, precision.

use rooflined_core::precision::Precision;

use super::element::ElementType;
use super::fact::{Call, Fact, broadcast, product};
use super::operator::{Kind, Operator};
use super::{Convolution, Node, Product, Window, rules, window};

/// Sizes by which a node's work is counted.
pub struct Description {
    pub convolution: Option<Convolution>,
    pub product: Option<Product>,
    pub window: Option<Window>,
    pub axis: Option<usize>,
    /// Of products that [`Product`] does not describe.
    pub multiply_adds: Option<u64>,
}

/// Reads the sizes of a call.
pub fn describe(call: &Call<'_>) -> Result<Description, String> {
    let kind = call.operator.kind();
    let convolution = if kind == Kind::Convolution { window::convolution(call)? } else { None };
    let (product, multiply_adds) = match call.operator {
        Operator::MatMul | Operator::MatMulInteger => (matmul(call, 1), None),
        Operator::QLinearMatMul => (matmul(call, 3), None),
        Operator::Gemm => (gemm(call), None),
        Operator::Einsum => {
            let sizes =
                rules::equation(call)?.map(|equation| equation.sizes.iter().map(|(_, size)| *size).collect());
            (None, sizes.and_then(|sizes: Vec<_>| product(&sizes)))
        }
        Operator::LSTM | Operator::GRU | Operator::RNN => (None, recurrent(call)),
        _ => (None, None),
    };
    let window = if kind == Kind::Pooling { window::window(call) } else { None };
    Ok(Description { convolution, product, window, axis: axis(call), multiply_adds })
}

fn axis(call: &Call<'_>) -> Option<usize> {
    let default = match call.operator {
        Operator::Softmax | Operator::LogSoftmax | Operator::Hardmax if call.opset < 13 => 1,
        Operator::Softmax | Operator::LogSoftmax | Operator::Hardmax => -1,
        Operator::LayerNormalization | Operator::RMSNormalization | Operator::TopK => -1,
        Operator::Concat | Operator::Split | Operator::Gather => 0,
        _ => call.int("axis")?,
    };
    call.axis(default, call.input(0)?.rank()?).ok()
}

/// A product by numpy's rule. Where the right side is one matrix for all, batches are rows.
fn matmul(call: &Call<'_>, right: usize) -> Option<Product> {
    let (a, b) = (call.input(0)?.sizes()?, call.input(right)?.sizes()?);
    let (inner, outer) = a.split_last()?;
    let columns = if b.len() > 1 { *b.last()? } else { 1 };
    if b.len() <= 2 {
        return Some(Product { batch: 1, rows: product(outer)?, inner: *inner, columns });
    }
    let (rows, left) = outer.split_last().map_or((1, outer), |(rows, left)| (*rows, left));
    let some = |sizes: &[u64]| sizes.iter().copied().map(Some).collect::<Vec<_>>();
    let batches = broadcast(&some(left), &some(&b[..b.len() - 2])).ok()?;
    let batches: Vec<u64> = batches.into_iter().collect::<Option<_>>()?;
    Some(Product { batch: product(&batches)?, rows, inner: *inner, columns })
}

fn gemm(call: &Call<'_>) -> Option<Product> {
    let (a, b) = (call.input(0)?.sizes()?, call.input(1)?.sizes()?);
    let ([a0, a1], [b0, b1]) = (a.as_slice(), b.as_slice()) else { return None };
    let (rows, inner) = if call.is_set("transA") { (*a1, *a0) } else { (*a0, *a1) };
    let columns = if call.is_set("transB") { *b0 } else { *b1 };
    Some(Product { batch: 1, rows, inner, columns })
}

/// Each step multiplies its input and its state by all weights.
fn recurrent(call: &Call<'_>) -> Option<u64> {
    let input = call.input(0)?.sizes()?;
    let weights = |place: usize| product(&call.input(place)?.sizes()?);
    product(&input[..2.min(input.len())])?.checked_mul(weights(1)?.checked_add(weights(2)?)?)
}

/// See [`Node::flops`].
pub fn flops(
    node: &Node,
    read: &[Option<&Fact>],
    wrote: &[&Fact],
    multiply_adds: Option<u64>,
) -> Result<Option<u64>, String> {
    let elements = |fact: Option<&Fact>| product(&fact?.sizes()?);
    let (first, result) = (read.first().copied().flatten(), wrote.first().copied());
    let counted = match node.operator.kind() {
        Kind::Convolution => convolved(node, elements(first), elements(result)),
        Kind::Product => match (&node.product, multiply_adds) {
            (Some(sizes), _) => Some((sizes.batch, [2, sizes.rows, sizes.inner, sizes.columns])),
            (None, Some(count)) => Some((count, [2, 1, 1, 1])),
            (None, None) => None,
        },
        Kind::Pooling => match &node.window {
            Some(window) => {
                elements(result).zip(product(&window.kernel)).map(|(count, area)| (count, [area, 1, 1, 1]))
            }
            None => elements(first).map(|count| (count, [1; 4])),
        },
        Kind::Reduction => elements(first).map(|count| (count, [1; 4])),
        Kind::Elementwise | Kind::Normalization | Kind::Softmax | Kind::Resampling | Kind::Quantization => {
            elements(result).map(|count| (count, [1; 4]))
        }
        Kind::Movement | Kind::View => Some((0, [1; 4])),
        Kind::Other => None,
    };
    let Some((count, factors)) = counted else { return Ok(None) };
    let all = factors.iter().try_fold(count, |all, factor| all.checked_mul(*factor));
    all.map(Some).ok_or_else(|| "it has more operations than can be counted".to_owned())
}

fn convolved(node: &Node, read: Option<u64>, wrote: Option<u64>) -> Option<(u64, [u64; 4])> {
    let sizes = node.convolution.as_ref()?;
    let area = product(&sizes.kernel)?;
    Some(match node.operator {
        // Every element read is spread over a window of every channel written.
        Operator::ConvTranspose => (read?, [2, sizes.cout / sizes.groups, area, 1]),
        _ => (wrote?, [2, sizes.cin / sizes.groups, area, 1]),
    })
}

/// See [`Node::precision`].
pub fn precision(operator: &Operator, read: &[Option<&Fact>], wrote: &[&Fact]) -> Option<Precision> {
    let computed = |fact: &Fact| fact.quantised.unwrap_or(fact.element).precision();
    if matches!(operator.kind(), Kind::Convolution | Kind::Product) {
        let weights = match operator {
            Operator::QLinearConv | Operator::QLinearMatMul => 3,
            _ => 1,
        };
        let operand = |place: usize| read.get(place).copied().flatten().and_then(computed);
        // Weights of few bits are widened to the type of what they meet.
        if let (Some(left), Some(right)) = (operand(0), operand(weights)) {
            return Some(if left == right { left } else { wider(left, right) });
        }
    }
    wrote.first().map_or(ElementType::Unknown, |fact| fact.element).precision()
}

/// The operand with more bits decides.
fn wider(left: Precision, right: Precision) -> Precision {
    let rank = |precision| match precision {
        Precision::Fp64 => 4,
        Precision::Fp32 => 3,
        Precision::Fp16 | Precision::Bf16 => 2,
        Precision::Int8 | Precision::Fp8 => 1,
        _ => 0,
    };
    if rank(left) >= rank(right) { left } else { right }
}
