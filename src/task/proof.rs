//! The proof of a task's tolerance: what is wrong must fail it, what is honest must pass. Computed on the
//! CPU from the task's own inputs, for the references of this crate. Pure.
//!
//! An honest kernel computes in the accumulator's precision and rounds once to the output's type.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use half::bf16;
use rayon::prelude::*;

use super::compare::{Got, compare};
use super::element::{decode_all, encode, round};
use super::problem::significant_bits;
use super::reference::{self, Arithmetic, Form, Pieces, Sum};
use super::{Poison, Problem, Purpose, Reference, Task, TaskError, Tolerance};
use crate::source::DType;

/// An output that must be rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// Nothing but zeros.
    Zeros,
    /// The mean in every element: of the expected outputs, or of the inputs where there is one output.
    Mean,
    /// The input's elements as they come.
    CopiedInput,
    /// The right result cut to eleven significant bits, or to the output's where it has fewer; where a factor
    /// may be rounded to the output's own precision, to one bit less.
    Truncated,
    /// Inputs rounded to tf32.
    Tf32Inputs,
    /// Inputs rounded to bf16.
    Bf16Inputs,
    /// The last sixty-fourth of every sum left out; of the outputs, where no sum has a second term.
    DroppedTail,
}

impl Defect {
    /// Every defect.
    pub const ALL: [Self; 7] = [
        Self::Zeros,
        Self::Mean,
        Self::CopiedInput,
        Self::Truncated,
        Self::Tf32Inputs,
        Self::Bf16Inputs,
        Self::DroppedTail,
    ];
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Zeros => "zeros",
            Self::Mean => "the mean",
            Self::CopiedInput => "a copied input",
            Self::Truncated => "a truncated result",
            Self::Tf32Inputs => "inputs rounded to tf32",
            Self::Bf16Inputs => "inputs rounded to bf16",
            Self::DroppedTail => "a dropped tail",
        })
    }
}

/// An order of additions, in the accumulator's own precision, that must pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// One after the other.
    Sequential,
    /// Halves of halves.
    Tree,
    /// Sixty-four interleaved parts, then the parts.
    Split,
}

impl Order {
    /// Every order.
    pub const ALL: [Self; 3] = [Self::Sequential, Self::Tree, Self::Split];
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Sequential => "a sequential sum",
            Self::Tree => "a tree",
            Self::Split => "a split sum",
        })
    }
}

/// How often each output was rejected, over all smoke sizes and input cases.
#[derive(Clone, Debug, PartialEq)]
pub struct Proof {
    /// Defects: (which, rejected, tried). A problem on which a defect changes nothing does not count as tried.
    pub defects: Vec<(Defect, u32, u32)>,
    /// Honest orders: (which, rejected, tried).
    pub orders: Vec<(Order, u32, u32)>,
    /// What the proof does not hold, each a sentence; empty when it holds.
    pub failures: Vec<String>,
}

/// Runs the proof with one seed. `None` where the task's reference is not of this crate.
///
/// For each output, a defect must be rejected on at least one of the problems it was tried on, since a
/// verification runs them all; an honest order must be accepted on every one.
pub fn prove(task: &Arc<Task>, seed: u64) -> Result<Option<Proof>, ProofError> {
    let Reference::Builtin(builtin) = task.reference else {
        return Ok(None);
    };
    let mut defects = vec![Defect::ALL.map(|defect| (defect, 0, 0)); task.outputs().count()];
    let mut orders = Order::ALL.map(|order| (order, 0, 0));
    let mut failures = Vec::new();
    for size in task.sizes_for(Purpose::Smoke) {
        for case in &task.cases {
            let problem = Problem::new(task, size, *case, seed)?;
            let all = reference::expected(&problem, std::time::Duration::MAX)?;
            for ((number, expected), defects) in all.into_iter().enumerate().zip(&mut defects) {
                let form =
                    Form::of(builtin, number, &problem).map_err(reference::ReferenceError)?;
                let bench = Bench::new(&problem, expected, form)?;
                let honest = bench.run(Order::Sequential, Inputs::Whole);
                for (defect, rejected, tried) in defects {
                    let output = bench.defective(*defect, &honest);
                    if output == honest || bench.allows(*defect) {
                        continue;
                    }
                    *tried += 1;
                    *rejected += u32::from(bench.rejects(&output).is_some());
                }
                for (order, rejected, tried) in &mut orders {
                    *tried += 1;
                    if let Some(why) = bench.rejects(&bench.run(*order, Inputs::Whole)) {
                        *rejected += 1;
                        failures.push(format!(
                            "at {}, {order} is rejected: {}: {why}",
                            problem.label(),
                            bench.expected.output
                        ));
                    }
                }
            }
        }
    }
    for (output, defects) in task.outputs().zip(&defects) {
        for (defect, rejected, tried) in defects {
            if *rejected == 0 && *tried > 0 {
                failures.push(format!(
                    "with seed {seed}, {defect} pass all {tried} smoke problems for {}",
                    output.name
                ));
            }
        }
    }
    let over_outputs = |at: usize| {
        let of_output = defects.iter().map(|defects| defects[at]);
        of_output.fold((Defect::ALL[at], 0, 0), |sums, (_, rejected, tried)| {
            (sums.0, sums.1 + rejected, sums.2 + tried)
        })
    };
    Ok(Some(Proof {
        defects: (0..Defect::ALL.len()).map(over_outputs).collect(),
        orders: orders.to_vec(),
        failures,
    }))
}

/// Why there is no proof.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    /// The task cannot be set up.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// The reference gives nothing.
    #[error(transparent)]
    Reference(#[from] reference::ReferenceError),
}

/// Which inputs a sum reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inputs {
    Whole,
    Tf32,
    Bf16,
    WithoutTail,
}

impl Inputs {
    fn rounded(self) -> bool {
        match self {
            Self::Tf32 | Self::Bf16 => true,
            Self::Whole | Self::WithoutTail => false,
        }
    }

    fn round(self, value: f64) -> f64 {
        match self {
            Self::Whole | Self::WithoutTail => value,
            Self::Tf32 => round_to(value, 11),
            Self::Bf16 => bf16::from_f64(value).to_f64(),
        }
    }

    /// Of `all` terms of a sum, those that are added: one is never left out.
    fn terms(self, all: u64) -> u64 {
        match self {
            Self::WithoutTail if all > 1 => all - all.div_ceil(64),
            Self::Whole | Self::Tf32 | Self::Bf16 | Self::WithoutTail => all,
        }
    }
}

/// One problem with everything that outputs are made from.
struct Bench<'a> {
    problem: &'a Problem,
    expected: reference::Expected,
    form: Form,
    inputs: Vec<Vec<f64>>,
    input_bits: Vec<Vec<u8>>,
    output: DType,
    accumulate: DType,
    /// What an honest kernel rounds a factor to.
    rounded: Option<DType>,
}

impl<'a> Bench<'a> {
    fn new(
        problem: &'a Problem,
        expected: reference::Expected,
        form: Form,
    ) -> Result<Self, ProofError> {
        let none =
            |what: &str| reference::ReferenceError(format!("at {}: no {what}", problem.label()));
        let input_bits = problem
            .inputs()
            .map(|input| {
                problem
                    .input_bytes(&input.name)
                    .ok_or_else(|| none("input"))
            })
            .collect::<Result<Vec<_>, _>>()?;
        let inputs = problem
            .inputs()
            .zip(&input_bits)
            .map(|(input, bytes)| decode_all(input.dtype, bytes))
            .collect();
        let output = problem
            .buffer(&expected.output)
            .ok_or_else(|| none("output"))?
            .dtype;
        let (accumulate, rounded) = match problem.task.tolerances.get(&expected.output) {
            Some(Tolerance::Dot {
                accumulate,
                rounded,
                ..
            }) => (*accumulate, *rounded),
            Some(Tolerance::Exact | Tolerance::Pointwise { .. } | Tolerance::Norm { .. })
            | None => (DType::F32, None),
        };
        Ok(Self {
            problem,
            expected,
            form,
            inputs,
            input_bits,
            output,
            accumulate,
            rounded,
        })
    }

    /// Why an output is rejected, in words; `None` where it is accepted.
    fn rejects(&self, output: &[u8]) -> Option<String> {
        let mismatch = compare(
            self.problem,
            &self.expected,
            Got::Whole(output),
            Poison::Nan,
        )
        .err()?;
        Some(format!("{} of {} wrong", mismatch.wrong, mismatch.checked))
    }

    /// Whether the tolerance itself lets factors be as coarse as the defect makes inputs.
    fn allows(&self, defect: Defect) -> bool {
        let coarsest = self.rounded.map(significant_bits);
        match defect {
            Defect::Tf32Inputs => coarsest.is_some_and(|bits| bits <= 11),
            Defect::Bf16Inputs => coarsest.is_some_and(|bits| bits <= 8),
            Defect::Zeros
            | Defect::Mean
            | Defect::CopiedInput
            | Defect::Truncated
            | Defect::DroppedTail => false,
        }
    }

    fn defective(&self, defect: Defect, honest: &[u8]) -> Vec<u8> {
        match defect {
            Defect::Zeros => vec![0; honest.len()],
            Defect::Mean => {
                let results = decode_all(self.output, honest);
                let values = if results.len() == 1 {
                    self.inputs.first().unwrap_or(&results)
                } else {
                    &results
                };
                let mean = values.iter().sum::<f64>() / values.len() as f64;
                self.encode(std::iter::repeat_n(mean, results.len()))
            }
            Defect::CopiedInput => {
                let input = self.input_bits.first().map_or(&[][..], Vec::as_slice);
                input.iter().copied().cycle().take(honest.len()).collect()
            }
            Defect::Truncated => {
                let bits = significant_bits(self.output).min(11);
                let bits = match self.rounded {
                    Some(dtype) if significant_bits(dtype) <= bits => bits - 1,
                    Some(_) | None => bits,
                };
                let values = self.values(Order::Sequential, Inputs::Whole).into_iter();
                self.encode(values.map(|value| truncate(value, bits)))
            }
            Defect::Tf32Inputs => self.run(Order::Sequential, Inputs::Tf32),
            Defect::Bf16Inputs => self.run(Order::Sequential, Inputs::Bf16),
            Defect::DroppedTail => {
                let mut output = self.run(Order::Sequential, Inputs::WithoutTail);
                if output == honest {
                    let size = self.output.size() as usize;
                    let dropped = (honest.len() / size).div_ceil(64) * size;
                    output[honest.len() - dropped..].fill(0);
                }
                output
            }
        }
    }

    /// The outputs of an honest kernel that adds in `order`.
    fn run(&self, order: Order, inputs: Inputs) -> Vec<u8> {
        match &self.form {
            // It moves bits: a number would lose a NaN's payload.
            Form::Sum(sum) if sum.terms == 1 && self.inputs.len() == 1 && !inputs.rounded() => {
                self.moved(sum)
            }
            Form::Sum(_) | Form::Pieces(_) => self.encode(self.values(order, inputs).into_iter()),
        }
    }

    /// The same before they are rounded to the output's type.
    fn values(&self, order: Order, inputs: Inputs) -> Vec<f64> {
        let rounded: Vec<Vec<f64>> = self
            .inputs
            .iter()
            .map(|values| values.iter().map(|value| inputs.round(*value)).collect())
            .collect();
        match &self.form {
            Form::Sum(sum) => self.sums(sum, order, inputs, &rounded),
            Form::Pieces(pieces) => self.pieces(pieces, order, inputs, &rounded),
        }
    }

    fn sums(&self, sum: &Sum, order: Order, inputs: Inputs, rounded: &[Vec<f64>]) -> Vec<f64> {
        let terms = inputs.terms(sum.terms);
        let one = |output: u64| {
            let term = |term: u64| -> (f64, f64) {
                let (a, b) = sum.operands(output, term);
                let a = rounded[0][a as usize];
                (a, b.map_or(1.0, |b| rounded[1][b as usize]))
            };
            match self.accumulate {
                DType::F64 => add(
                    order,
                    terms,
                    0.0,
                    &|sum, t| {
                        let (a, b) = term(t);
                        f64::mul_add(a, b, sum)
                    },
                    &|a, b| a + b,
                ),
                // A narrower accumulator is honestly replaced by f32.
                DType::F32
                | DType::F16
                | DType::Bf16
                | DType::I32
                | DType::U32
                | DType::I64
                | DType::U64
                | DType::U8 => f64::from(add(
                    order,
                    terms,
                    0f32,
                    &|sum, t| {
                        let (a, b) = term(t);
                        // a·b of two f32 is exact in f64, so one rounding is left: almost a fused operation.
                        (f64::from(sum) + a * b) as f32
                    },
                    &|a, b| a + b,
                )),
            }
        };
        (0..sum.outputs).map(one).collect()
    }

    /// All pieces as an honest kernel computes them, in f32.
    fn pieces(
        &self,
        pieces: &Pieces,
        order: Order,
        inputs: Inputs,
        rounded: &[Vec<f64>],
    ) -> Vec<f64> {
        let compute = |piece: u64| {
            let arithmetic = Arithmetic {
                read: &|input, range: Range<u64>| {
                    let values = &rounded[input][range.start as usize..range.end as usize];
                    values.iter().map(|value| *value as f32).collect()
                },
                sum: &|terms: &[f32]| {
                    let count = inputs.terms(terms.len() as u64);
                    let step = |sum: f32, term: u64| sum + terms[term as usize];
                    add(order, count, 0f32, &step, &|a, b| a + b)
                },
                factor: &|factor: f32| match self.rounded {
                    Some(dtype) => round(dtype, f64::from(factor)) as f32,
                    None => factor,
                },
            };
            pieces.compute(piece, &arithmetic)
        };
        let computed: Vec<Vec<(f32, f32)>> =
            (0..pieces.count).into_par_iter().map(compute).collect();
        let values = computed.into_iter().flatten();
        values.map(|(value, _)| f64::from(value)).collect()
    }

    /// A task whose sums have one term and one factor moves bits.
    fn moved(&self, sum: &Sum) -> Vec<u8> {
        let size = self.output.size() as usize;
        let bits = &self.input_bits[0];
        (0..sum.outputs)
            .flat_map(|output| {
                let from = sum.operands(output, 0).0 as usize * size;
                &bits[from..from + size]
            })
            .copied()
            .collect()
    }

    fn encode(&self, values: impl Iterator<Item = f64>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for value in values {
            encode(self.output, value, &mut bytes);
        }
        bytes
    }
}

/// Adds `terms` terms in the given order; `step` adds one term to a sum, `join` two sums.
fn add<T: Copy>(
    order: Order,
    terms: u64,
    zero: T,
    step: &dyn Fn(T, u64) -> T,
    join: &dyn Fn(T, T) -> T,
) -> T {
    match order {
        Order::Sequential => (0..terms).fold(zero, step),
        Order::Tree => tree(0, terms, zero, step, join),
        Order::Split => {
            const PARTS: u64 = 64;
            (0..PARTS)
                .map(|part| (part..terms).step_by(PARTS as usize).fold(zero, step))
                .fold(zero, join)
        }
    }
}

fn tree<T: Copy>(
    from: u64,
    to: u64,
    zero: T,
    step: &dyn Fn(T, u64) -> T,
    join: &dyn Fn(T, T) -> T,
) -> T {
    if to - from <= 1 {
        return (from..to).fold(zero, step);
    }
    let middle = from + (to - from) / 2;
    join(
        tree(from, middle, zero, step, join),
        tree(middle, to, zero, step, join),
    )
}

/// Cuts a finite value to `bits` significant bits, towards zero.
fn truncate(value: f64, bits: u32) -> f64 {
    if !value.is_finite() {
        return value;
    }
    let dropped = significant_bits(DType::F64) - bits;
    f64::from_bits(value.to_bits() >> dropped << dropped)
}

/// Rounds a finite value to `bits` significant bits, ties away from zero.
fn round_to(value: f64, bits: u32) -> f64 {
    if !value.is_finite() {
        return value;
    }
    let dropped = significant_bits(DType::F64) - bits;
    truncate(f64::from_bits(value.to_bits() + (1 << (dropped - 1))), bits)
}
