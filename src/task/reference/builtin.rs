//! The float64 references of this crate. Where each output element is a sum of products of rounded inputs, one
//! description, [`Sum`], serves the reference, the sampling of large problems and the proof of tolerances;
//! elsewhere [`Pieces`] do.

use rayon::prelude::*;

use super::{Arithmetic, Elements, Expected, Pieces, Values};
use crate::source::DType;
use crate::task::element::{decode, decode_all};
use crate::task::inputs::{Stream, random_bits};
use crate::task::{Buffer, Builtin, Problem};

/// Above this many products a problem's outputs are sampled.
const FULL_WORK: u64 = 1 << 28;
/// Above this many elements an output of moves, or of pieces, is sampled.
const FULL_ELEMENTS: u64 = 1 << 24;
/// Elements of such a sample.
const SAMPLED_ELEMENTS: u64 = 1 << 20;
/// Rows and columns of a sampled product.
const SAMPLED_LINES: u64 = 64;
/// Elements that are worth a thread's turn.
const SMALLEST_SHARE: u64 = 1 << 12;

/// How a reference computes its output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::task) enum Form {
    /// Each element a sum of products.
    Sum(Sum),
    /// Piece by piece.
    Pieces(Pieces),
}

impl Form {
    /// How the output numbered `output` is computed.
    pub(in crate::task) fn of(
        builtin: Builtin,
        output: usize,
        problem: &Problem,
    ) -> Result<Self, String> {
        let sum = |kind| Sum::of(kind, problem).map(Self::Sum);
        match builtin {
            Builtin::ReduceSum => sum(Kind::Total),
            Builtin::Transpose => sum(Kind::Transpose),
            Builtin::Sgemm => sum(Kind::Product),
            Builtin::GemmNt => sum(Kind::ProductNt),
            Builtin::Silu
            | Builtin::Gelu
            | Builtin::Softmax
            | Builtin::RmsNorm
            | Builtin::Rope
            | Builtin::Stencil5pt
            | Builtin::Conv2d3x3
            | Builtin::AttentionFwd
            | Builtin::AttentionFwdCausal
            | Builtin::AttentionBwd
            | Builtin::AttentionBwdCausal
            | Builtin::Fft => Pieces::of(builtin, output, problem).map(Self::Pieces),
        }
    }
}

/// Which sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Total,
    Transpose,
    Product,
    /// The second factor is given transposed.
    ProductNt,
}

/// y\[o\] = Σ over t of a·b, with the element indices of a and b given by [`Sum::operands`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::task) struct Sum {
    kind: Kind,
    /// Output elements.
    pub outputs: u64,
    /// Terms of each.
    pub terms: u64,
    /// Columns of the output.
    columns: u64,
}

impl Sum {
    fn of(kind: Kind, problem: &Problem) -> Result<Self, String> {
        let output = problem.outputs().next().ok_or("the task has no output")?;
        let inputs: Vec<&Buffer> = problem.inputs().collect();
        let (terms, wanted) = match (kind, inputs.as_slice()) {
            (Kind::Total, [x]) => (x.elements, vec![1]),
            (Kind::Transpose, [x]) => (1, x.shape.iter().rev().copied().collect()),
            (Kind::Product, [a, b]) => {
                if a.shape.get(1) != b.shape.first() {
                    return Err(format!(
                        "{} of shape {:?} and {} of shape {:?} have no product",
                        a.name, a.shape, b.name, b.shape
                    ));
                }
                (a.shape[1], vec![a.shape[0], b.shape[1]])
            }
            (Kind::ProductNt, [a, b]) => {
                if a.shape.get(1) != b.shape.get(1) {
                    return Err(format!(
                        "{} of shape {:?} and the transpose of {} of shape {:?} have no product",
                        a.name, a.shape, b.name, b.shape
                    ));
                }
                (a.shape[1], vec![a.shape[0], b.shape[0]])
            }
            (Kind::Total | Kind::Transpose | Kind::Product | Kind::ProductNt, _) => {
                return Err("the task's inputs are not the reference's".into());
            }
        };
        if output.shape != wanted {
            return Err(format!(
                "output {} has shape {:?}, the reference gives {wanted:?}",
                output.name, output.shape
            ));
        }
        Ok(Self {
            kind,
            outputs: output.elements,
            terms,
            columns: *wanted.last().ok_or("the output has no shape")?,
        })
    }

    /// The element indices of a term's factors in the first and, where there is one, the second input.
    pub(in crate::task) fn operands(&self, output: u64, term: u64) -> (u64, Option<u64>) {
        let (row, column) = (output / self.columns, output % self.columns);
        match self.kind {
            Kind::Total => (term, None),
            Kind::Transpose => (column * (self.outputs / self.columns) + row, None),
            Kind::Product => (row * self.terms + term, Some(term * self.columns + column)),
            Kind::ProductNt => (row * self.terms + term, Some(column * self.terms + term)),
        }
    }
}

/// The expected outputs of a problem whose task names `builtin`.
pub(super) fn expected(builtin: Builtin, problem: &Problem) -> Result<Vec<Expected>, String> {
    let streams: Vec<(Stream, DType)> = problem
        .inputs()
        .filter_map(|buffer| Some((problem.stream(&buffer.name)?, buffer.dtype)))
        .collect();
    problem
        .outputs()
        .enumerate()
        .map(|(number, output)| {
            let (elements, values) = match Form::of(builtin, number, problem)? {
                Form::Sum(sum) => sums(&sum, problem.seed, &streams)?,
                Form::Pieces(pieces) => piecewise(&pieces, problem, &streams),
            };
            Ok(Expected {
                output: output.name.clone(),
                elements,
                values,
            })
        })
        .collect()
}

/// Every piece, or a sample of them.
fn piecewise(
    pieces: &Pieces,
    problem: &Problem,
    streams: &[(Stream, DType)],
) -> (Elements, Values) {
    let elements = pieces.count * pieces.length;
    let full = elements <= FULL_ELEMENTS && elements.saturating_mul(pieces.terms) <= FULL_WORK;
    let picked = if full {
        (0..pieces.count).collect()
    } else {
        let sampled = SAMPLED_ELEMENTS.div_ceil(pieces.length * pieces.terms);
        strata(problem.seed, pieces.count, sampled.max(SAMPLED_LINES))
    };
    // Pieces that share inputs would draw them again and again.
    let drawn: Vec<Vec<f64>> = if full && pieces.terms > 1 {
        let whole = |input: &Buffer| {
            let bytes = problem.input_bytes(&input.name)?;
            Some(decode_all(input.dtype, &bytes))
        };
        problem.inputs().filter_map(whole).collect()
    } else {
        Vec::new()
    };
    let read = |input: usize, range: std::ops::Range<u64>| {
        if let Some(whole) = drawn.get(input) {
            return whole[range.start as usize..range.end as usize].to_vec();
        }
        let (stream, dtype) = &streams[input];
        let size = dtype.size();
        let mut bytes = vec![0; ((range.end - range.start) * size) as usize];
        stream.fill(range.start * size, &mut bytes);
        decode_all(*dtype, &bytes)
    };
    let sum = |terms: &[f64]| terms.iter().sum::<f64>();
    let compute = |piece: &u64| {
        let arithmetic = Arithmetic {
            read: &read,
            sum: &sum,
            factor: &|factor| factor,
        };
        pieces.compute(*piece, &arithmetic)
    };
    let computed: Vec<Vec<(f64, f64)>> = picked
        .par_iter()
        .with_min_len(SMALLEST_SHARE.div_ceil(pieces.length) as usize)
        .map(compute)
        .collect();
    let (y, scale) = computed.into_iter().flatten().unzip();
    let elements = if full {
        Elements::All
    } else {
        let of = |piece: u64| piece * pieces.length..(piece + 1) * pieces.length;
        Elements::Sampled(picked.into_iter().flat_map(of).collect())
    };
    (elements, Values::Reals { y, scale })
}

fn sums(sum: &Sum, seed: u64, streams: &[(Stream, DType)]) -> Result<(Elements, Values), String> {
    let full = sum.outputs.saturating_mul(sum.terms) <= FULL_WORK;
    Ok(match (sum.kind, streams) {
        (Kind::Total, [(x, dtype)]) => (Elements::All, total(x, *dtype, sum.terms)),
        (Kind::Transpose, [(x, dtype)]) if sum.outputs <= FULL_ELEMENTS => {
            let bytes = input(x, *dtype, sum.outputs)?;
            let size = dtype.size() as usize;
            let mut moved = Vec::with_capacity(bytes.len());
            for element in 0..sum.outputs {
                let from = sum.operands(element, 0).0 as usize * size;
                moved.extend_from_slice(&bytes[from..from + size]);
            }
            (Elements::All, Values::Bits(moved))
        }
        (Kind::Transpose, [(x, dtype)]) => {
            let indices = strata(seed, sum.outputs, SAMPLED_ELEMENTS);
            let size = dtype.size() as usize;
            let mut moved = vec![0; indices.len() * size];
            moved
                .par_chunks_mut(size)
                .zip(&indices)
                .for_each(|(element, index)| {
                    x.fill(sum.operands(*index, 0).0 * size as u64, element);
                });
            (Elements::Sampled(indices), Values::Bits(moved))
        }
        (Kind::Product, [a, b]) if full => (Elements::All, product(sum, a, b)?),
        (Kind::ProductNt, [a, b]) if full => (Elements::All, product_nt(sum, a, b)?),
        (Kind::Product | Kind::ProductNt, [a, b]) => sampled_product(seed, sum, a, b),
        (Kind::Total | Kind::Transpose | Kind::Product | Kind::ProductNt, _) => {
            return Err("the task's inputs are not the reference's".into());
        }
    })
}

/// Σ x, in blocks whose sums are added in order: the same on any number of threads.
fn total(x: &Stream, dtype: DType, terms: u64) -> Values {
    const BLOCK: u64 = 1 << 16;
    let blocks: Vec<(f64, f64)> = (0..terms.div_ceil(BLOCK))
        .into_par_iter()
        .map_init(Vec::new, |bytes, block| {
            let first = block * BLOCK;
            let count = BLOCK.min(terms - first);
            bytes.resize((count * dtype.size()) as usize, 0);
            x.fill(first * dtype.size(), bytes);
            let mut sums = (0.0, 0.0);
            for element in bytes.chunks_exact(dtype.size() as usize) {
                let value = decode(dtype, element);
                sums = (sums.0 + value, sums.1 + value * value);
            }
            sums
        })
        .collect();
    let (y, squares) = blocks
        .into_iter()
        .fold((0.0, 0.0), |all, block| (all.0 + block.0, all.1 + block.1));
    Values::Reals {
        y: vec![y],
        scale: vec![squares.sqrt()],
    }
}

/// A·B row by row of B, so that both are read in order.
fn product(sum: &Sum, a: &(Stream, DType), b: &(Stream, DType)) -> Result<Values, String> {
    let (k, n) = (sum.terms as usize, sum.columns as usize);
    let rows = sum.outputs / sum.columns;
    let a = decode_all(a.1, &input(&a.0, a.1, rows * sum.terms)?);
    let b = decode_all(b.1, &input(&b.0, b.1, sum.terms * sum.columns)?);
    let mut y = vec![0.0; sum.outputs as usize];
    let mut scale = vec![0.0; sum.outputs as usize];
    y.par_chunks_mut(n)
        .zip(scale.par_chunks_mut(n))
        .zip(a.par_chunks(k))
        .for_each(|((y, scale), a)| {
            for (a, b) in a.iter().zip(b.chunks_exact(n)) {
                for ((y, scale), b) in y.iter_mut().zip(scale.iter_mut()).zip(b) {
                    let term = a * b;
                    *y += term;
                    *scale += term * term;
                }
            }
            scale.iter_mut().for_each(|square| *square = square.sqrt());
        });
    Ok(Values::Reals { y, scale })
}

/// A·Bᵀ: rows of A times rows of B, as both lie in memory.
fn product_nt(sum: &Sum, a: &(Stream, DType), b: &(Stream, DType)) -> Result<Values, String> {
    let (k, n) = (sum.terms as usize, sum.columns as usize);
    let rows = sum.outputs / sum.columns;
    let a = decode_all(a.1, &input(&a.0, a.1, rows * sum.terms)?);
    let b = decode_all(b.1, &input(&b.0, b.1, sum.columns * sum.terms)?);
    let mut y = vec![0.0; sum.outputs as usize];
    let mut scale = vec![0.0; sum.outputs as usize];
    y.par_chunks_mut(n)
        .zip(scale.par_chunks_mut(n))
        .zip(a.par_chunks(k))
        .for_each(|((y, scale), a)| {
            for ((y, scale), b) in y.iter_mut().zip(scale.iter_mut()).zip(b.chunks_exact(k)) {
                (*y, *scale) = dot(a, b);
            }
        });
    Ok(Values::Reals { y, scale })
}

/// Σ ab and √Σ a²b².
fn dot(a: &[f64], b: &[f64]) -> (f64, f64) {
    let (mut y, mut squares) = (0.0, 0.0);
    for (a, b) in a.iter().zip(b) {
        let term = a * b;
        y += term;
        squares += term * term;
    }
    (y, f64::sqrt(squares))
}

/// Every element where one of a few rows of A meets one of a few columns of B.
fn sampled_product(
    seed: u64,
    sum: &Sum,
    a: &(Stream, DType),
    b: &(Stream, DType),
) -> (Elements, Values) {
    let rows = strata(seed, sum.outputs / sum.columns, SAMPLED_LINES);
    let columns = strata(seed ^ 1, sum.columns, SAMPLED_LINES);
    let read = |(stream, dtype): &(Stream, DType), index: u64| {
        let mut element = [0; 8];
        let size = dtype.size();
        stream.fill(index * size, &mut element[..size as usize]);
        decode(*dtype, &element[..size as usize])
    };
    let columns_of_b: Vec<Vec<f64>> = columns
        .par_iter()
        .map(|column| {
            (0..sum.terms)
                .filter_map(|term| sum.operands(*column, term).1)
                .map(|element| read(b, element))
                .collect()
        })
        .collect();
    let lines: Vec<Vec<(f64, f64)>> = rows
        .par_iter()
        .map(|row| {
            let a: Vec<f64> = (0..sum.terms)
                .map(|term| read(a, sum.operands(row * sum.columns, term).0))
                .collect();
            columns_of_b.iter().map(|b| dot(&a, b)).collect()
        })
        .collect();
    let (y, scale) = lines.into_iter().flatten().unzip();
    let indices = rows
        .iter()
        .flat_map(|row| columns.iter().map(move |column| row * sum.columns + column))
        .collect();
    (Elements::Sampled(indices), Values::Reals { y, scale })
}

fn input(stream: &Stream, dtype: DType, elements: u64) -> Result<Vec<u8>, String> {
    let bytes = usize::try_from(elements * dtype.size())
        .map_err(|_| "an input exceeds this machine's memory")?;
    let mut out = vec![0; bytes];
    stream.fill(0, &mut out);
    Ok(out)
}

/// `count` of 0..total, ascending: the first, the last, and one drawn from each of equal intervals between.
fn strata(seed: u64, total: u64, count: u64) -> Vec<u64> {
    if total <= count {
        return (0..total).collect();
    }
    let mut picked: Vec<u64> = (0..count)
        .map(|interval| {
            let bound = |i: u64| (u128::from(i) * u128::from(total) / u128::from(count)) as u64;
            let (low, high) = (bound(interval), bound(interval + 1));
            low + random_bits(seed, interval) % (high - low)
        })
        .collect();
    picked[0] = 0;
    picked[count as usize - 1] = total - 1;
    picked
}
