//! Non-negative least squares.

/// Most unknowns.
pub const UNKNOWNS: usize = 5;
/// A pivot below this part of the diagonal says that a column says nothing that the others do not.
const SINGULAR: f64 = 1e-10;

/// A row: what each unknown counts, and what their sum should be.
pub type Equation = ([f64; UNKNOWNS], f64);

/// The `x >= 0` with the least sum of squared differences. With at most five unknowns all thirty-two sets of positive ones
/// are tried, so the answer is exact and the same everywhere; of equally good ones the first with the fewest. Columns of
/// zeros stay zero, and so does all without any row.
#[must_use]
pub fn solve(rows: &[Equation]) -> [f64; UNKNOWNS] {
    let mut scale = [0.0_f64; UNKNOWNS];
    for (row, _) in rows {
        for (scale, value) in scale.iter_mut().zip(row) {
            *scale = scale.max(value.abs());
        }
    }
    let (mut normal, mut right, mut squares) = ([[0.0; UNKNOWNS]; UNKNOWNS], [0.0; UNKNOWNS], 0.0);
    for (row, wanted) in rows {
        let scaled: [f64; UNKNOWNS] =
            std::array::from_fn(|i| if scale[i] > 0.0 { row[i] / scale[i] } else { 0.0 });
        for i in 0..UNKNOWNS {
            right[i] += scaled[i] * wanted;
            for j in 0..UNKNOWNS {
                normal[i][j] += scaled[i] * scaled[j];
            }
        }
        squares += wanted * wanted;
    }
    let mut best = ([0.0; UNKNOWNS], squares);
    let mut sets: Vec<u32> = (1..1 << UNKNOWNS).collect();
    sets.sort_by_key(|set| set.count_ones());
    for set in sets {
        let Some(x) = positive(&normal, &right, set) else { continue };
        let fitted: f64 = (0..UNKNOWNS).map(|i| x[i] * right[i]).sum();
        // At the solution of its normal equations the residual is b'b - x'A'b.
        let left = squares - fitted;
        if left < best.1 - 1e-12 * squares {
            best = (x, left);
        }
    }
    std::array::from_fn(|i| if scale[i] > 0.0 { best.0[i] / scale[i] } else { 0.0 })
}

/// The solution with only the unknowns of `set`; `None` where one is negative or cannot be distinguished from the others.
fn positive(
    normal: &[[f64; UNKNOWNS]; UNKNOWNS],
    right: &[f64; UNKNOWNS],
    set: u32,
) -> Option<[f64; UNKNOWNS]> {
    let chosen: Vec<usize> = (0..UNKNOWNS).filter(|i| set >> i & 1 == 1).collect();
    let size = chosen.len();
    // Cholesky: the matrix is symmetric and no less than zero.
    let mut lower = [[0.0; UNKNOWNS]; UNKNOWNS];
    let mut y = [0.0; UNKNOWNS];
    for i in 0..size {
        for j in 0..=i {
            let mut sum = normal[chosen[i]][chosen[j]];
            for (a, b) in lower[i].iter().zip(&lower[j]).take(j) {
                sum -= a * b;
            }
            if i == j {
                if sum <= SINGULAR * normal[chosen[i]][chosen[i]] || sum <= 0.0 {
                    return None;
                }
                lower[i][i] = sum.sqrt();
            } else {
                lower[i][j] = sum / lower[j][j];
            }
        }
        let known: f64 = (0..i).map(|j| lower[i][j] * y[j]).sum();
        y[i] = (right[chosen[i]] - known) / lower[i][i];
    }
    let mut x = [0.0; UNKNOWNS];
    for i in (0..size).rev() {
        let known: f64 = (i + 1..size).map(|j| lower[j][i] * x[chosen[j]]).sum();
        x[chosen[i]] = (y[i] - known) / lower[i][i];
    }
    chosen.iter().all(|&i| x[i] >= 0.0).then_some(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Deterministic numbers in 0..1.
    fn numbers(seed: u64) -> impl FnMut() -> f64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            #[expect(clippy::cast_precision_loss, reason = "53 bits")]
            let part = (state >> 11) as f64 / (1_u64 << 53) as f64;
            part
        }
    }

    fn cost(rows: &[Equation], x: &[f64; UNKNOWNS]) -> f64 {
        let off = |(row, wanted): &Equation| row.iter().zip(x).map(|(a, x)| a * x).sum::<f64>() - wanted;
        rows.iter().map(|row| off(row).powi(2)).sum()
    }

    #[test]
    fn no_other_non_negative_vector_fits_better() {
        for seed in 1..200 {
            let mut next = numbers(seed);
            let rows: Vec<Equation> = (0..3 + seed % 9)
                .map(|_| (std::array::from_fn(|_| next() - 0.3), next() * 4.0 - 1.0))
                .collect();
            let x = solve(&rows);
            assert!(x.iter().all(|x| *x >= 0.0 && x.is_finite()), "{x:?}");
            let least = cost(&rows, &x);
            // Coordinate descent from many starts: convex, so it ends at a minimum wherever it starts.
            for _ in 0..4 {
                let mut other: [f64; UNKNOWNS] = std::array::from_fn(|_| next() * 5.0);
                for _ in 0..400 {
                    for place in 0..UNKNOWNS {
                        let (mut up, mut down) = (0.0, 0.0);
                        for (row, wanted) in &rows {
                            let rest: f64 =
                                (0..UNKNOWNS).filter(|i| *i != place).map(|i| row[i] * other[i]).sum();
                            up += row[place] * (wanted - rest);
                            down += row[place] * row[place];
                        }
                        other[place] = if down > 0.0 { (up / down).max(0.0) } else { 0.0 };
                    }
                }
                assert!(least <= cost(&rows, &other) * (1.0 + 1e-9) + 1e-9, "seed {seed}: {x:?} {other:?}");
            }
        }
    }

    #[test]
    fn units_do_not_matter() {
        let wanted = [12.0, 60e-12, 0.5e-12, 30e-12, 8.0];
        let mut next = numbers(7);
        let rows: Vec<Equation> = (0..12)
            .map(|_| {
                let row = [1.0, next() * 1e11, next() * 1e13, next() * 2e11, next()];
                (row, row.iter().zip(&wanted).map(|(a, b)| a * b).sum())
            })
            .collect();
        let x = solve(&rows);
        for (x, wanted) in x.iter().zip(&wanted) {
            assert!((x / wanted - 1.0).abs() < 1e-6, "{x} {wanted}");
        }
    }

    #[test]
    fn what_cannot_be_told_apart_is_given_to_one() {
        let rows: Vec<Equation> =
            [1.0, 2.0, 3.0].map(|value| ([1.0, value, 2.0 * value, 0.0, 0.0], 5.0 + value)).to_vec();
        let x = solve(&rows);
        assert!(cost(&rows, &x) < 1e-12 && x[1] * x[2] == 0.0, "{x:?}");
        assert_eq!(solve(&[]), [0.0; UNKNOWNS]);
    }
}
