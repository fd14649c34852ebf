//! Outputs against what they should be. Says how many elements are wrong, shows the first few, and names a
//! pattern where it is plain. Pure; it never loosens a tolerance.

use super::element::{decode, round, smallest_subnormal, unit_roundoff};
use super::problem::significant_bits;
use super::reference::{Elements, Expected, Values};
use super::{Buffer, InputCase, Poison, Problem, Role, Tolerance};
use crate::source::DType;
use crate::verdict::{Mismatch, MismatchElement};

/// How many wrong elements a mismatch shows.
const SHOWN: usize = 4;

/// What a device handed back of an output.
#[derive(Clone, Copy, Debug)]
pub enum Got<'a> {
    /// The whole buffer as it stands after the launches.
    Whole(&'a [u8]),
    /// The elements that the reference knows, in its order.
    Known(&'a [u8]),
}

/// Compares an output with its reference; `poison` is what the output held before the launches, to tell
/// what was never written.
///
/// `Ok` when every known element is within the task's tolerance. NaN must be NaN, ±∞ the same ∞.
pub fn compare(
    problem: &Problem,
    expected: &Expected,
    got: Got<'_>,
    poison: Poison,
) -> Result<(), Mismatch> {
    let mismatch = |wrong, checked, first, pattern| Mismatch {
        case: problem.label(),
        output: expected.output.clone(),
        wrong,
        checked,
        first,
        pattern,
    };
    let Some(output) = problem.buffer(&expected.output).filter(|output| match got {
        Got::Whole(bytes) => bytes.len() as u64 == output.bytes.0,
        Got::Known(bytes) => bytes.len() == expected.count(output.dtype) * size_of_one(output),
    }) else {
        let (Got::Whole(bytes) | Got::Known(bytes)) = got;
        let pattern = format!("{} bytes came back, of another buffer", bytes.len());
        return Err(mismatch(1, 1, Vec::new(), Some(pattern)));
    };
    let checked = Checked {
        output,
        expected,
        got,
    };
    let allowed = Allowed::new(problem, output);
    let wrong = checked.wrong(&allowed);
    if wrong.is_empty() {
        return Ok(());
    }
    let first = wrong
        .iter()
        .take(SHOWN)
        .map(|at| checked.shown(*at))
        .collect();
    let pattern = pattern(problem, &checked, &allowed, &wrong, poison);
    Err(mismatch(
        wrong.len() as u64,
        checked.count() as u64,
        first,
        pattern,
    ))
}

/// A tolerance with its numbers.
enum Allowed {
    /// The element nearest to the reference, bit for bit up to the sign of zero.
    Nearest,
    /// Bit for bit.
    Bits,
    /// |ŷ − y| ≤ `scaled`·max(|y|, scale) + `spread`·scale + `relative`·|y| + `absolute`.
    Bound {
        scaled: f64,
        spread: f64,
        relative: f64,
        absolute: f64,
    },
    /// ‖ŷ − y‖ ≤ this·‖y‖.
    Norm(f64),
}

impl Allowed {
    fn new(problem: &Problem, output: &Buffer) -> Self {
        let u_out = unit_roundoff(output.dtype);
        // Below the smallest normal number, rounding is absolute.
        let absolute = smallest_subnormal(output.dtype) / 2.0;
        match problem.task.tolerances.get(&output.name) {
            None | Some(Tolerance::Exact) => Self::Bits,
            Some(Tolerance::Dot { .. }) if problem.case == InputCase::Integers => Self::Nearest,
            Some(Tolerance::Dot {
                accumulate,
                rounded,
                ..
            }) => {
                let terms = problem
                    .sum_length(&output.name)
                    .map_or(1.0, |sum| sum.terms as f64);
                Self::Bound {
                    scaled: 4.0 * unit_roundoff(*accumulate) * terms.sqrt(),
                    spread: rounded.map_or(0.0, |dtype| 3.0 * unit_roundoff(dtype)),
                    relative: u_out,
                    absolute: absolute + lost_to_atomics(problem, output, terms),
                }
            }
            Some(Tolerance::Pointwise { ulps, absolute: a }) => Self::Bound {
                scaled: 0.0,
                spread: 0.0,
                relative: ulps * u_out,
                absolute: a + absolute,
            },
            Some(Tolerance::Norm { relative }) => Self::Norm(*relative),
        }
    }

    /// How far an element may be from a finite reference.
    fn slack(&self, y: f64, scale: f64) -> f64 {
        match self {
            Self::Bits | Self::Nearest => 0.0,
            Self::Bound {
                scaled,
                spread,
                relative,
                absolute,
            } => scaled * y.abs().max(scale) + spread * scale + relative * y.abs() + absolute,
            Self::Norm(relative) => relative * y.abs(),
        }
    }
}

/// What additions by atomics may lose near zero where the task allows them: in global memory, `atom.add.f32`
/// flushes subnormal addends and results (PTX ISA, `atom`).
fn lost_to_atomics(problem: &Problem, output: &Buffer, terms: f64) -> f64 {
    let atomics = problem.task.nondeterministic.contains(&output.name);
    if atomics && output.dtype == DType::F32 {
        terms * f64::from(f32::MIN_POSITIVE)
    } else {
        0.0
    }
}

/// The known elements of an output beside what the kernel left there.
struct Checked<'a> {
    output: &'a Buffer,
    expected: &'a Expected,
    got: Got<'a>,
}

fn size_of_one(output: &Buffer) -> usize {
    output.dtype.size() as usize
}

impl Checked<'_> {
    fn count(&self) -> usize {
        self.expected.count(self.output.dtype)
    }

    fn size(&self) -> usize {
        size_of_one(self.output)
    }

    /// Row-major index in the output of the known element numbered `at`.
    fn index(&self, at: usize) -> u64 {
        match &self.expected.elements {
            Elements::All => at as u64,
            Elements::Sampled(indices) => indices[at],
        }
    }

    fn got_bits(&self, at: usize) -> &[u8] {
        let (bytes, element) = match self.got {
            Got::Whole(bytes) => (bytes, self.index(at) as usize),
            Got::Known(bytes) => (bytes, at),
        };
        let start = element * self.size();
        &bytes[start..start + self.size()]
    }

    fn got(&self, at: usize) -> f64 {
        decode(self.output.dtype, self.got_bits(at))
    }

    fn wanted_bits(&self, at: usize) -> Option<&[u8]> {
        match &self.expected.values {
            Values::Bits(bytes) => Some(&bytes[at * self.size()..][..self.size()]),
            Values::Reals { .. } => None,
        }
    }

    fn wanted(&self, at: usize) -> (f64, f64) {
        match &self.expected.values {
            Values::Bits(bytes) => {
                let value = decode(self.output.dtype, &bytes[at * self.size()..][..self.size()]);
                (value, value.abs())
            }
            Values::Reals { y, scale } => (y[at], scale[at]),
        }
    }

    /// The known elements that are outside the tolerance, ascending.
    fn wrong(&self, allowed: &Allowed) -> Vec<usize> {
        match allowed {
            Allowed::Bits => (0..self.count())
                .filter(|at| !self.same_bits(*at))
                .collect(),
            Allowed::Nearest | Allowed::Bound { .. } => (0..self.count())
                .filter(|at| !self.within(*at, allowed))
                .collect(),
            Allowed::Norm(relative) => self.wrong_by_norm(*relative),
        }
    }

    fn same_bits(&self, at: usize) -> bool {
        match self.wanted_bits(at) {
            Some(wanted) => wanted == self.got_bits(at),
            None => {
                let (y, _) = self.wanted(at);
                same_number(self.got(at), round(self.output.dtype, y))
            }
        }
    }

    fn within(&self, at: usize, allowed: &Allowed) -> bool {
        let dtype = self.output.dtype;
        let got = self.got(at);
        let (y, scale) = self.wanted(at);
        // What overflows the output's type is an infinity there.
        let nearest = round(dtype, y);
        if matches!(allowed, Allowed::Nearest) || !nearest.is_finite() || !got.is_finite() {
            return same_number(got, nearest);
        }
        (got - y).abs() <= allowed.slack(y, scale)
    }

    /// All elements whose kind differs; where none does but the norms are apart, those that are off by more
    /// than their share, and at least the worst.
    fn wrong_by_norm(&self, relative: f64) -> Vec<usize> {
        let dtype = self.output.dtype;
        let mut wrong = Vec::new();
        let (mut error, mut norm) = (0.0, 0.0);
        for at in 0..self.count() {
            let (got, y) = (self.got(at), self.wanted(at).0);
            let nearest = round(dtype, y);
            if got.is_finite() && nearest.is_finite() {
                error += (got - y).powi(2);
                norm += y * y;
            } else if !same_number(got, nearest) {
                wrong.push(at);
            }
        }
        if !wrong.is_empty() || f64::sqrt(error) <= relative * f64::sqrt(norm) {
            return wrong;
        }
        let share = relative * f64::sqrt(norm / self.count() as f64);
        let off = |at: &usize| (self.got(*at) - self.wanted(*at).0).abs();
        let mut wrong: Vec<usize> = (0..self.count()).filter(|at| off(at) > share).collect();
        if wrong.is_empty() {
            wrong.extend((0..self.count()).max_by(|a, b| off(a).total_cmp(&off(b))));
        }
        wrong
    }

    fn shown(&self, at: usize) -> MismatchElement {
        let mut rest = self.index(at);
        let mut index: Vec<u64> = self
            .output
            .shape
            .iter()
            .rev()
            .map(|extent| {
                let along = rest % extent;
                rest /= extent;
                along
            })
            .collect();
        index.reverse();
        MismatchElement {
            index,
            got: number(self.output.dtype, self.got(at)),
            expected: number(self.output.dtype, self.wanted(at).0),
        }
    }
}

/// The same number, the same infinity, or both NaN.
fn same_number(a: f64, b: f64) -> bool {
    a == b || (a.is_nan() && b.is_nan())
}

fn number(dtype: DType, value: f64) -> String {
    match dtype {
        DType::F64 | DType::F32 | DType::F16 | DType::Bf16 => {
            // Digits enough to tell two elements apart, no more.
            let digits = (f64::from(significant_bits(dtype)) * std::f64::consts::LOG10_2).ceil();
            if value == 0.0 || !value.is_finite() {
                return format!("{value:?}");
            }
            let shown = format!("{value:.*e}", digits as usize);
            shown
                .parse::<f64>()
                .map_or(shown, |value| format!("{value:?}"))
        }
        DType::I32 | DType::U32 | DType::I64 | DType::U64 | DType::U8 => format!("{value:.0}"),
    }
}

/// A pattern in words, where it is plain: the cheapest and surest first.
fn pattern(
    problem: &Problem,
    checked: &Checked<'_>,
    allowed: &Allowed,
    wrong: &[usize],
    poison: Poison,
) -> Option<String> {
    let count = checked.count();
    let unwritten = wrong
        .iter()
        .filter(|at| checked.got_bits(**at).iter().all(|b| *b == poison.byte()))
        .count();
    if unwritten == wrong.len() && unwritten == count {
        return Some("never written: the poison is left".into());
    }
    let within = || region(count, wrong).map_or_else(String::new, |region| format!(", {region}"));
    if unwritten == wrong.len() {
        return Some(format!(
            "{unwritten} of {count} elements never written: the poison is left{}",
            within()
        ));
    }
    let finite_wanted = |at: usize| checked.wanted(at).0.is_finite();
    if wrong
        .iter()
        .all(|at| checked.got(*at).is_nan() && finite_wanted(*at))
    {
        return Some("NaN where the reference is finite".into());
    }
    let same_everywhere = (0..count).all(|at| checked.got_bits(at) == checked.got_bits(0));
    if count > 1 && same_everywhere && checked.got(0) == 0.0 {
        return Some("all zero".into());
    }
    if count == 1 && checked.got(0) == 0.0 {
        return Some("zero".into());
    }
    if count > 1 && wrong.iter().all(|at| checked.got(*at) == 0.0) {
        return Some(format!(
            "{} of {count} elements are zero{}",
            wrong.len(),
            within()
        ));
    }
    if let Some(pattern) = copied(problem, checked) {
        return Some(pattern);
    }
    if count > 1 && same_everywhere {
        return Some("one value in every element".into());
    }
    if let Some(pattern) = broadcast(checked) {
        return Some(pattern);
    }
    if let Some(factor) = factor(checked, wrong) {
        return Some(format!("off by a constant factor of {factor}"));
    }
    if let Some(pattern) = imprecise(checked, allowed, wrong) {
        return Some(pattern);
    }
    region(count, wrong)
}

/// Where the wrong elements lie, if they are the beginning or the end of the output.
fn region(count: usize, wrong: &[usize]) -> Option<String> {
    let (first, last) = (*wrong.first()?, *wrong.last()?);
    let contiguous = last - first + 1 == wrong.len();
    if !contiguous || wrong.len() == count {
        return None;
    }
    if last + 1 == count {
        Some(format!(
            "only the first {first} of {count} elements are right"
        ))
    } else if first == 0 {
        Some(format!(
            "only the last {} of {count} elements are right",
            count - wrong.len()
        ))
    } else {
        None
    }
}

/// An output that is an input, as it came: its first element, or all of it.
fn copied(problem: &Problem, checked: &Checked<'_>) -> Option<String> {
    let size = checked.size();
    for input in problem.buffers.iter().filter(|b| b.role == Role::Input) {
        if input.dtype != checked.output.dtype {
            continue;
        }
        let stream = problem.stream(&input.name)?;
        let element = |index: u64| {
            let mut bytes = [0; 8];
            stream.fill(index * size as u64, &mut bytes[..size]);
            bytes
        };
        if checked.output.elements == 1 && input.elements > 1 {
            for (index, which) in [(0, "first"), (input.elements - 1, "last")] {
                if element(index)[..size] == *checked.got_bits(0) {
                    return Some(format!("the {which} element of {}", input.name));
                }
            }
        } else if input.elements == checked.output.elements
            && checked.count() > 1
            && (0..checked.count())
                .all(|at| element(checked.index(at))[..size] == *checked.got_bits(at))
        {
            return Some(format!("a copy of {}, in its own order", input.name));
        }
    }
    None
}

/// Every row the same, or every column.
fn broadcast(checked: &Checked<'_>) -> Option<String> {
    let columns = *checked.output.shape.last()? as usize;
    let count = checked.count();
    let whole = matches!(checked.expected.elements, Elements::All);
    if !whole || columns < 2 || count < 2 * columns {
        return None;
    }
    if (columns..count).all(|at| checked.got_bits(at) == checked.got_bits(at % columns)) {
        return Some("every row is the same: computed once and repeated".into());
    }
    if (0..count).all(|at| checked.got_bits(at) == checked.got_bits(at - at % columns)) {
        return Some("every row holds one value: computed once and repeated".into());
    }
    None
}

/// got ÷ expected where it is the same for all wrong elements and at least four of them.
fn factor(checked: &Checked<'_>, wrong: &[usize]) -> Option<String> {
    if wrong.len() < 4 {
        return None;
    }
    let mut ratios = wrong
        .iter()
        .map(|at| checked.got(*at) / checked.wanted(*at).0);
    let first = ratios
        .next()
        .filter(|ratio| ratio.is_finite() && *ratio != 0.0)?;
    let constant = (first - 1.0).abs() > 0.01
        && ratios.all(|ratio| (ratio - first).abs() <= 1e-3 * first.abs());
    constant.then(|| {
        format!("{first:.4}")
            .trim_end_matches('0')
            .trim_end_matches('.')
            .to_owned()
    })
}

/// All errors small beside the terms of the sum, yet beyond the tolerance.
fn imprecise(checked: &Checked<'_>, allowed: &Allowed, wrong: &[usize]) -> Option<String> {
    let mut worst = 0f64;
    for at in wrong {
        let (y, scale) = checked.wanted(*at);
        let error = (checked.got(*at) - y).abs();
        let near = error <= 1e-2 * y.abs().max(scale);
        if !near {
            return None;
        }
        worst = worst.max(error / allowed.slack(y, scale));
    }
    let bound = match allowed {
        Allowed::Bound { .. } => true,
        Allowed::Bits | Allowed::Nearest | Allowed::Norm(_) => false,
    };
    (bound && worst.is_finite()).then(|| {
        format!("close, but less precise than declared: up to {worst:.0} times the tolerance")
    })
}
