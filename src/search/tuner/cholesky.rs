//! A Cholesky factor that grows by one row at a time: the linear algebra the Gaussian process needs.
//! It knows nothing of kernels, knobs or times.

use pulp::{Arch, Simd, WithSimd};

/// Columns solved together: one 512-bit register of them, or two of 256.
pub(super) const BLOCK: usize = 8;

/// The lower triangle of L with L·Lᵀ = K, packed row by row.
#[derive(Clone, Debug, Default)]
pub(super) struct Cholesky {
    packed: Vec<f64>,
    rows: usize,
}

impl Cholesky {
    /// Rows so far.
    pub(super) fn len(&self) -> usize {
        self.rows
    }

    /// Forgets every row, keeping the memory.
    pub(super) fn clear(&mut self) {
        self.packed.clear();
        self.rows = 0;
    }

    /// Appends a row of K: its covariances with the rows before, and its own variance.
    pub(super) fn push(&mut self, covariances: &[f64], variance: f64) {
        debug_assert_eq!(covariances.len(), self.rows);
        let start = self.packed.len();
        self.packed.extend_from_slice(covariances);
        let (before, row) = self.packed.split_at_mut(start);
        forward(before, row);
        let pivot = variance - dot(row, row);
        // The nugget keeps the pivot away from zero but for rounding.
        self.packed.push(pivot.max(1e-12).sqrt());
        self.rows += 1;
    }

    /// Appends up to [`BLOCK`] rows at once: column c of `block` holds the covariances of the c-th new
    /// row with the rows before the block, `within[a][b]` those of its rows a > b with each other.
    pub(super) fn push_block(
        &mut self,
        block: &mut [[f64; BLOCK]],
        within: &[[f64; BLOCK]],
        variance: f64,
    ) {
        self.solve_lower_block(block);
        let before = self.rows;
        for (column, among) in within.iter().enumerate() {
            let start = self.packed.len();
            self.packed
                .extend(block.iter().map(|entries| entries[column]));
            for (other, covariance) in among.iter().enumerate().take(column) {
                let at = row_start(before + other);
                let row = &self.packed[at..=at + before + other];
                let (row, pivot) = (&row[..before + other], row[before + other]);
                let entry = (covariance - dot(row, &self.packed[start..])) / pivot;
                self.packed.push(entry);
            }
            let row = &self.packed[start..];
            let pivot = variance - dot(row, row);
            self.packed.push(pivot.max(1e-12).sqrt());
            self.rows += 1;
        }
    }

    /// Replaces each column of `block` by L⁻¹·column. One row of L serves all of them, and no sum
    /// waits for another: several times faster than a column at a time.
    pub(super) fn solve_lower_block(&self, block: &mut [[f64; BLOCK]]) {
        debug_assert_eq!(block.len(), self.rows);
        Arch::new().dispatch(SolveLower {
            packed: &self.packed,
            block,
        });
    }

    /// Replaces `vector` by L⁻¹·vector.
    pub(super) fn solve_lower(&self, vector: &mut [f64]) {
        debug_assert_eq!(vector.len(), self.rows);
        forward(&self.packed, vector);
    }

    /// Replaces `vector` by L⁻ᵀ·vector.
    pub(super) fn solve_upper(&self, vector: &mut [f64]) {
        debug_assert_eq!(vector.len(), self.rows);
        for i in (0..self.rows).rev() {
            let row = &self.packed[row_start(i)..][..=i];
            let value = vector[i] / row[i];
            vector[i] = value;
            for (entry, l) in vector[..i].iter_mut().zip(row) {
                *entry -= value * l;
            }
        }
    }

    /// ln det K / 2.
    pub(super) fn half_log_det(&self) -> f64 {
        (0..self.rows)
            .map(|i| self.packed[i * (i + 3) / 2].ln())
            .sum()
    }
}

/// Where a row begins.
fn row_start(row: usize) -> usize {
    row * (row + 1) / 2
}

/// Chooses the width of the registers, never the order of the sums: every machine gets the same
/// bits. A closure would not do: its call goes through a shim that is not compiled for the width.
struct SolveLower<'a> {
    packed: &'a [f64],
    block: &'a mut [[f64; BLOCK]],
}

impl WithSimd for SolveLower<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for i in 0..self.block.len() {
            let start = row_start(i);
            let row = &self.packed[start..=start + i];
            let (solved, rest) = self.block.split_at_mut(i);
            let (row_pairs, row_rest) = row[..i].as_chunks::<2>();
            let (solved_pairs, solved_rest) = solved.as_chunks::<2>();
            let mut sums = [[0.0; BLOCK]; 2];
            for (ls, xs) in row_pairs.iter().zip(solved_pairs) {
                for half in 0..2 {
                    for column in 0..BLOCK {
                        sums[half][column] += ls[half] * xs[half][column];
                    }
                }
            }
            for (l, xs) in row_rest.iter().zip(solved_rest) {
                for column in 0..BLOCK {
                    sums[0][column] += l * xs[column];
                }
            }
            for column in 0..BLOCK {
                let sum = sums[0][column] + sums[1][column];
                rest[0][column] = (rest[0][column] - sum) / row[i];
            }
        }
    }
}

/// Forward substitution with the packed rows `lower` (as many as `vector` is long).
fn forward(lower: &[f64], vector: &mut [f64]) {
    let mut start = 0;
    for i in 0..vector.len() {
        let row = &lower[start..=start + i];
        vector[i] = (vector[i] - dot(&row[..i], &vector[..i])) / row[i];
        start += i + 1;
    }
}

/// Eight partial sums, so that the compiler may use vector registers; the order is fixed.
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let mut lanes = [0.0; 8];
    let (a_blocks, a_rest) = a.as_chunks::<8>();
    let (b_blocks, b_rest) = b.as_chunks::<8>();
    for (x, y) in a_blocks.iter().zip(b_blocks) {
        for lane in 0..8 {
            lanes[lane] += x[lane] * y[lane];
        }
    }
    let rest: f64 = a_rest.iter().zip(b_rest).map(|(x, y)| x * y).sum();
    rest + lanes.iter().sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factor_solves_the_system_it_was_built_from() {
        let k =
            |i: usize, j: usize| (-(i.abs_diff(j) as f64) * 0.3).exp() + f64::from(i == j) * 0.1;
        let n = 23;
        let mut factor = Cholesky::default();
        for i in 0..n {
            let row: Vec<f64> = (0..i).map(|j| k(i, j)).collect();
            factor.push(&row, k(i, i));
        }
        let mut blocks = Cholesky::default();
        for first in (0..n).step_by(BLOCK) {
            let rows = BLOCK.min(n - first);
            let mut before: Vec<[f64; BLOCK]> = (0..first)
                .map(|j| std::array::from_fn(|c| if c < rows { k(first + c, j) } else { 0.0 }))
                .collect();
            let within: Vec<[f64; BLOCK]> = (0..rows)
                .map(|a| std::array::from_fn(|b| k(first + a, first + b)))
                .collect();
            blocks.push_block(&mut before, &within, k(0, 0));
        }
        for (one, other) in factor.packed.iter().zip(&blocks.packed) {
            assert!((one - other).abs() < 1e-12, "{one} against {other}");
        }
        let y: Vec<f64> = (0..n).map(|i| (i as f64 * 0.7).sin()).collect();
        let mut x = y.clone();
        factor.solve_lower(&mut x);
        factor.solve_upper(&mut x);
        for (i, expected) in y.iter().enumerate() {
            let got: f64 = (0..n).map(|j| k(i, j) * x[j]).sum();
            assert!(
                (got - expected).abs() < 1e-10,
                "row {i}: {got} against {expected}"
            );
        }
    }

    #[test]
    fn determinant_of_a_diagonal_matrix_is_the_product() {
        let mut factor = Cholesky::default();
        factor.push(&[], 4.0);
        factor.push(&[0.0], 9.0);
        assert!((factor.half_log_det() - 6.0_f64.ln()).abs() < 1e-12);
    }
}
