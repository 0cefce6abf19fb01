//! A smooth function through measured points: Gaussian process with the exponential kernel (Matérn 1/2).
//!
//! ```text
//! f(x) = sum_i a_i exp(-d(x, x_i))        d² = sum_j ((x_j - x_ij) / l_j)²        K a = y
//! ```
//!
//! It passes through every point and falls back to zero far from all of them. The lengths `l` say how fast it may
//! change along each coordinate; they are learnt from the points alone, by the marginal likelihood with a log-normal
//! prior (C. E. Rasmussen, C. K. I. Williams, "Gaussian Processes for Machine Learning", 2006, 2.2 and 5.4).

/// Lengths tried, each about 1.4 times the one before.
const LENGTHS: [f64; 14] = [0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0, 5.6, 8.0, 11.0, 16.0, 23.0, 32.0];
/// Where the search starts, as an index of [`LENGTHS`].
const FIRST: usize = 6;
/// Centre of the prior of a length; its logarithm has a standard deviation of 1.
const USUAL_LENGTH: f64 = 3.0;
/// Added to the diagonal, relative: keeps points that coincide apart.
const JITTER: f64 = 1e-6;
/// Below this the values are all zero for any purpose, and their scale says nothing.
const LEAST_SCALE: f64 = 1e-12;
/// Passes over all coordinates; it settles in two or three.
const PASSES: usize = 8;

/// A function of `D` coordinates through points.
#[derive(Debug, Clone, PartialEq)]
pub struct Surface<const D: usize> {
    lengths: [f64; D],
    /// Coordinates of the points over the lengths.
    scaled: Vec<[f64; D]>,
    weights: Vec<f64>,
    left_out: Vec<f64>,
}

impl<const D: usize> Surface<D> {
    /// The surface through `points`; zero everywhere without any.
    #[must_use]
    pub fn through(points: &[([f64; D], f64)]) -> Self {
        let mut chosen = [FIRST; D];
        let mut best = Fit::new(points, chosen.map(|index| LENGTHS[index]));
        for _ in 0..PASSES {
            let before = chosen;
            for coordinate in 0..D {
                for up in [false, true] {
                    while let Some(better) = step(points, &mut chosen, coordinate, up, &best) {
                        best = better;
                    }
                }
            }
            if chosen == before {
                break;
            }
        }
        let lengths = chosen.map(|index| LENGTHS[index]);
        let scaled = points.iter().map(|(point, _)| over(point, &lengths)).collect();
        Self { lengths, scaled, weights: best.weights, left_out: best.left_out }
    }

    #[must_use]
    pub fn at(&self, point: &[f64; D]) -> f64 {
        let point = over(point, &self.lengths);
        self.scaled.iter().zip(&self.weights).map(|(known, weight)| weight * kernel(known, &point)).sum()
    }

    /// For each point, its value less what the surface through the others says there, at the same lengths.
    #[must_use]
    pub fn left_out(&self) -> &[f64] {
        &self.left_out
    }
}

/// Moves one length to its neighbour; `None` where that is no better, and the lengths are as they were.
fn step<const D: usize>(
    points: &[([f64; D], f64)],
    chosen: &mut [usize; D],
    coordinate: usize,
    up: bool,
    best: &Fit,
) -> Option<Fit> {
    let from = chosen[coordinate];
    let to = if up { from + 1 } else { from.checked_sub(1)? };
    LENGTHS.get(to)?;
    chosen[coordinate] = to;
    let fit = Fit::new(points, chosen.map(|index| LENGTHS[index]));
    if fit.cost < best.cost - 1e-9 {
        return Some(fit);
    }
    chosen[coordinate] = from;
    None
}

/// The surface at given lengths.
struct Fit {
    /// Negative logarithm of likelihood and prior, over the number of points.
    cost: f64,
    weights: Vec<f64>,
    left_out: Vec<f64>,
}

impl Fit {
    fn new<const D: usize>(points: &[([f64; D], f64)], lengths: [f64; D]) -> Self {
        let count = points.len();
        if count == 0 {
            return Self { cost: 0.0, weights: Vec::new(), left_out: Vec::new() };
        }
        let scaled: Vec<[f64; D]> = points.iter().map(|(point, _)| over(point, &lengths)).collect();
        let mut matrix = vec![0.0; count * count];
        for (row, a) in scaled.iter().enumerate() {
            for (column, b) in scaled[..=row].iter().enumerate() {
                matrix[row * count + column] = kernel(a, b);
            }
            matrix[row * count + row] += JITTER;
        }
        let log_determinant = factorise(&mut matrix, count);
        let inverse = inverted(&matrix, count);
        let values = points.iter().map(|(_, value)| *value);
        let weights: Vec<f64> = (0..count)
            .map(|row| values.clone().enumerate().map(|(column, y)| inverse[row * count + column] * y).sum())
            .collect();
        let n = as_f64(count);
        let scale = values.clone().zip(&weights).map(|(y, weight)| y * weight).sum::<f64>() / n;
        let prior: f64 = lengths.iter().map(|length| (length / USUAL_LENGTH).ln().powi(2) / 2.0).sum();
        Self {
            cost: scale.max(LEAST_SCALE).ln() / 2.0 + (log_determinant / 2.0 + prior) / n,
            left_out: weights.iter().enumerate().map(|(i, w)| w / inverse[i * count + i]).collect(),
            weights,
        }
    }
}

fn over<const D: usize>(point: &[f64; D], lengths: &[f64; D]) -> [f64; D] {
    std::array::from_fn(|coordinate| point[coordinate] / lengths[coordinate])
}

fn kernel<const D: usize>(a: &[f64; D], b: &[f64; D]) -> f64 {
    let squared: f64 = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum();
    (-squared.sqrt()).exp()
}

/// Cholesky factor in place of the lower triangle; returns the logarithm of the determinant.
fn factorise(matrix: &mut [f64], count: usize) -> f64 {
    let mut log = 0.0;
    for row in 0..count {
        for column in 0..=row {
            let product: f64 =
                (0..column).map(|index| matrix[row * count + index] * matrix[column * count + index]).sum();
            let rest = matrix[row * count + column] - product;
            matrix[row * count + column] = if row == column {
                // The kernel is positive definite; rounding may say otherwise where points coincide.
                let pivot = rest.max(JITTER * JITTER).sqrt();
                log += 2.0 * pivot.ln();
                pivot
            } else {
                rest / matrix[column * count + column]
            };
        }
    }
    log
}

/// The inverse of the matrix whose Cholesky factor is in the lower triangle.
fn inverted(factor: &[f64], count: usize) -> Vec<f64> {
    // Inverse of the factor, row by row: forward substitution of the unit vectors.
    let mut half = vec![0.0; count * count];
    for column in 0..count {
        for row in column..count {
            let unit = if row == column { 1.0 } else { 0.0 };
            let product: f64 =
                (column..row).map(|index| factor[row * count + index] * half[index * count + column]).sum();
            half[row * count + column] = (unit - product) / factor[row * count + row];
        }
    }
    let mut inverse = vec![0.0; count * count];
    for row in 0..count {
        for column in 0..=row {
            let product: f64 =
                (row..count).map(|index| half[index * count + row] * half[index * count + column]).sum();
            inverse[row * count + column] = product;
            inverse[column * count + row] = product;
        }
    }
    inverse
}

#[expect(clippy::cast_precision_loss, reason = "a count of points")]
const fn as_f64(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wave() -> Vec<([f64; 2], f64)> {
        (0..8_u32)
            .flat_map(|x| (0..3_u32).map(move |y| [f64::from(x), f64::from(y)]))
            .map(|point| (point, (point[0] / 2.0).sin()))
            .collect()
    }

    #[test]
    fn it_passes_through_every_point() {
        let points = wave();
        let surface = Surface::through(&points);
        for (point, value) in &points {
            assert!((surface.at(point) - value).abs() < 1e-4, "{point:?}");
        }
    }

    #[test]
    fn between_two_points_it_lies_between_them_and_far_away_it_is_zero() {
        let surface = Surface::through(&[([0.0], 0.2), ([2.0], 0.4)]);
        assert!((0.2..0.4).contains(&surface.at(&[1.0])), "{}", surface.at(&[1.0]));
        assert!(surface.at(&[1e4]).abs() < 1e-9);
        assert_eq!(Surface::<1>::through(&[]).at(&[1.0]), 0.0);
    }

    #[test]
    fn a_coordinate_that_says_nothing_gets_a_longer_length() {
        let surface = Surface::through(&wave());
        assert!(surface.lengths[1] > 2.0 * surface.lengths[0], "{:?}", surface.lengths);
    }

    #[test]
    fn what_is_left_out_is_what_the_others_would_have_said() {
        let points = wave();
        let surface = Surface::through(&points);
        let (left, others) = points.split_last().unwrap();
        let fit = Fit::new(others, surface.lengths);
        let said: f64 = others
            .iter()
            .zip(&fit.weights)
            .map(|((point, _), weight)| {
                weight * kernel(&over(point, &surface.lengths), &over(&left.0, &surface.lengths))
            })
            .sum();
        assert!((surface.left_out().last().unwrap() - (left.1 - said)).abs() < 1e-6);
    }

    #[test]
    fn points_that_coincide_are_averaged() {
        let surface = Surface::through(&[([1.0], 0.1), ([1.0], 0.3), ([5.0], 0.0)]);
        assert!((surface.at(&[1.0]) - 0.2).abs() < 1e-3);
    }
}
