//! Inputs as pure functions of (seed, parameter, element index): any range can be made on its own, in any
//! order, on any machine, so that an input of 4 GiB need never exist as a whole. No state, no clock.
//!
//! Each element is one draw of a counter-based generator (SplitMix64's finaliser over key + index). Normal
//! numbers come from the inverse distribution function, linear between 4096 knots and, in the outermost two
//! intervals, between 4096 more, out to ±5.4: only integer operations, one table, one multiplication and one
//! addition, so that another device can repeat it bit for bit.

use std::sync::{Arc, LazyLock};

use half::{bf16, f16};
use statrs::distribution::{ContinuousCDF, Normal};

use super::InputCase;
use crate::source::DType;

/// Fills a slice with a buffer's bytes from the byte offset given.
pub type Fill = Arc<dyn Fn(u64, &mut [u8]) + Send + Sync>;

/// The elements of one input.
#[derive(Clone, Debug)]
pub struct Stream {
    key: u64,
    dtype: DType,
    draw: Draw,
}

/// What limits the integers of a sum that must stay exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SumLength {
    /// Terms of the longest sum.
    pub terms: u64,
    /// Significant bits of the accumulator: 24 for f32.
    pub bits: u32,
}

#[derive(Clone, Debug)]
enum Draw {
    /// N(0, 1) times a factor.
    Scaled(f32),
    /// N(0, 1) plus, one time in a thousand, N(0, 100).
    Spiky,
    /// Uniform from −bound to bound (from 0 where unsigned).
    Uniform { bound: u32 },
    /// ±1 with probability `often`/2³², else 0.
    Sparse { often: u32 },
    /// N(0, 1) with −0 and subnormals, and with probability `rare`/2³² a NaN or an infinity, one of them alone
    /// in each row of so many elements, where there are rows; or exactly one of those, where it is placed.
    Special {
        rare: u32,
        row: Option<u64>,
        placed: Option<(u64, Kind)>,
    },
}

impl Stream {
    /// The elements of the parameter numbered `param` for a seed and a case; `sum` is the longest sum an
    /// output is made of, where the tolerance names one.
    ///
    /// Integer types know two cases: `integers`, small numbers, and all others, uniform within ±1000.
    pub fn new(
        seed: u64,
        param: usize,
        dtype: DType,
        case: InputCase,
        sum: Option<SumLength>,
    ) -> Self {
        let draw = match case {
            InputCase::Integers => integers(sum),
            _ if !dtype.is_float() => Draw::Uniform { bound: 1000 },
            InputCase::Normal => Draw::Scaled(1.0),
            InputCase::Large => Draw::Scaled(1e4),
            InputCase::Small => Draw::Scaled(1e-4),
            InputCase::Spiky => Draw::Spiky,
            InputCase::Special => Draw::Special {
                // One a sum on average: some sums stay finite, some do not. Strewn at 1/64 elsewhere.
                rare: probability(sum.map_or(1.0 / 64.0, |sum| 1.0 / sum.terms.max(64) as f64)),
                row: None,
                placed: None,
            },
        };
        Self {
            key: mix(seed ^ mix(0x7761_7270 ^ ((param as u64) << 32))),
            dtype,
            draw,
        }
    }

    /// The same stream, in rows of so many elements: in each, either NaNs or one infinity are strewn, in turn. What
    /// takes a NaN for nothing shows in a row that no infinity makes one anyway.
    pub(super) fn in_rows(self, elements: u64) -> Self {
        let draw = match self.draw {
            Draw::Special { rare, placed, .. } => Draw::Special {
                rare,
                row: Some(elements),
                placed,
            },
            other => other,
        };
        Self { draw, ..self }
    }

    /// The same stream, but special values hold exactly one NaN or infinity, at element `index`; `turn` says
    /// which, three in turn. For few outputs, which chance would leave without one or the other.
    pub(super) fn with_one_special(self, index: u64, turn: u64) -> Self {
        let draw = match self.draw {
            Draw::Special { .. } => Draw::Special {
                rare: 0,
                row: None,
                placed: Some((index, Kind::in_turn(turn))),
            },
            other => other,
        };
        Self { draw, ..self }
    }

    /// Fills `out` with the stream's bytes from `offset` on; little-endian, element by element.
    pub fn fill(&self, offset: u64, out: &mut [u8]) {
        match self.dtype {
            DType::F64 => self.elements(offset, out, |s, i| s.float64(i).to_le_bytes()),
            DType::F32 => match self.draw {
                // The hot path, free of any further choice.
                Draw::Scaled(scale) => {
                    let table = &**TABLE;
                    self.elements(offset, out, |s, i| {
                        (table.normal(s.hash(i)) * scale).to_le_bytes()
                    });
                }
                Draw::Spiky | Draw::Uniform { .. } | Draw::Sparse { .. } | Draw::Special { .. } => {
                    self.elements(offset, out, |s, i| s.float(i).to_le_bytes());
                }
            },
            DType::F16 => self.elements(offset, out, |s, i| {
                s.special(i, |h| f16_special(h).to_le_bytes())
                    .unwrap_or_else(|| f16::from_f32(s.float(i)).to_le_bytes())
            }),
            DType::Bf16 => self.elements(offset, out, |s, i| {
                s.special(i, |h| bf16_special(h).to_le_bytes())
                    .unwrap_or_else(|| bf16::from_f32(s.float(i)).to_le_bytes())
            }),
            DType::I32 => self.elements(offset, out, |s, i| (s.signed(i) as i32).to_le_bytes()),
            DType::I64 => self.elements(offset, out, |s, i| s.signed(i).to_le_bytes()),
            DType::U32 => self.elements(offset, out, |s, i| (s.unsigned(i) as u32).to_le_bytes()),
            DType::U64 => self.elements(offset, out, |s, i| s.unsigned(i).to_le_bytes()),
            DType::U8 => self.elements(offset, out, |s, i| [s.unsigned(i) as u8]),
        }
    }

    fn elements<const N: usize>(
        &self,
        offset: u64,
        out: &mut [u8],
        element: impl Fn(&Self, u64) -> [u8; N],
    ) {
        let size = N as u64;
        let mut index = offset / size;
        let skip = (offset % size) as usize;
        let mut rest = out;
        if skip != 0 {
            let bytes = element(self, index);
            let take = (N - skip).min(rest.len());
            let (head, tail) = rest.split_at_mut(take);
            head.copy_from_slice(&bytes[skip..skip + take]);
            rest = tail;
            index += 1;
        }
        let (whole, tail) = rest.as_chunks_mut::<N>();
        for chunk in whole {
            *chunk = element(self, index);
            index += 1;
        }
        if !tail.is_empty() {
            tail.copy_from_slice(&element(self, index)[..tail.len()]);
        }
    }

    fn hash(&self, index: u64) -> u64 {
        mix(self.key.wrapping_add(index.wrapping_mul(GOLDEN)))
    }

    /// An element of a floating-point stream, before it is rounded to a narrower type.
    fn float(&self, index: u64) -> f32 {
        let hash = self.hash(index);
        match self.draw {
            Draw::Scaled(scale) => TABLE.normal(hash) * scale,
            Draw::Spiky => {
                let normal = TABLE.normal(hash);
                if hash & 0xf_ffff < 1049 {
                    normal + 10.0 * TABLE.normal(mix(hash ^ GOLDEN))
                } else {
                    normal
                }
            }
            Draw::Uniform { bound } => uniform(hash, bound) as f32,
            Draw::Sparse { often } => sparse(hash, often) as f32,
            Draw::Special { .. } => self
                .special(index, f32_special)
                .unwrap_or_else(|| TABLE.normal(hash)),
        }
    }

    fn float64(&self, index: u64) -> f64 {
        if let Some(special) = self.special(index, f64_special) {
            return special;
        }
        let value = f64::from(self.float(index));
        match self.draw {
            // Fill the mantissa's lower bits too, so that a downcast to f32 shows.
            Draw::Scaled(_) | Draw::Spiky | Draw::Special { .. } => {
                let low = (self.hash(index) & 0xf_ffff) as f64 - 524_288.0;
                value * (1.0 + low * 2f64.powi(-45))
            }
            Draw::Uniform { .. } | Draw::Sparse { .. } => value,
        }
    }

    /// `make` of some random bits where this element is a special value.
    fn special<T>(&self, index: u64, make: impl Fn(Special) -> T) -> Option<T> {
        let Draw::Special { rare, row, placed } = self.draw else {
            return None;
        };
        let hash = mix(self.hash(index) ^ GOLDEN);
        let kind = if let Some((_, kind)) = placed.filter(|(at, _)| *at == index) {
            kind
        } else if ((hash >> 32) as u32) < rare {
            Kind::in_turn(row.map_or(hash, |elements| self.key % 3 + index / elements))
        } else {
            match hash & 15 {
                0 => Kind::NegativeZero,
                1 => Kind::Subnormal,
                _ => return None,
            }
        };
        Some(make(Special {
            kind,
            bits: hash >> 8,
        }))
    }

    fn signed(&self, index: u64) -> i64 {
        let hash = self.hash(index);
        match self.draw {
            Draw::Uniform { bound } => uniform(hash, bound),
            Draw::Sparse { often } => sparse(hash, often),
            Draw::Scaled(_) | Draw::Spiky | Draw::Special { .. } => {
                unreachable!("invariant: integer streams draw integers")
            }
        }
    }

    fn unsigned(&self, index: u64) -> u64 {
        self.signed(index).unsigned_abs()
    }
}

/// 64 random bits for a counter: for choices that are no input's elements.
pub(super) fn random_bits(seed: u64, counter: u64) -> u64 {
    mix(mix(seed ^ 0x7374_7261_7461).wrapping_add(counter.wrapping_mul(GOLDEN)))
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// SplitMix64's finaliser: every bit of the result depends on every bit of `x`.
fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Integers of which every partial sum of products of two is exact: |a·b|·terms ≤ 2^bits. Where even ±1 is
/// too large, most are zero, so that the nonzero ones alone stay within half of that.
fn integers(sum: Option<SumLength>) -> Draw {
    const LARGEST: u32 = 8;
    let Some(sum) = sum else {
        return Draw::Uniform { bound: LARGEST };
    };
    let room = 2f64.powi(sum.bits.min(53) as i32);
    let bound = (room / sum.terms.max(1) as f64).sqrt().floor();
    if bound >= 1.0 {
        Draw::Uniform {
            bound: bound.min(f64::from(LARGEST)) as u32,
        }
    } else {
        Draw::Sparse {
            often: probability(room / 2.0 / sum.terms as f64),
        }
    }
}

fn probability(p: f64) -> u32 {
    (p * 2f64.powi(32)) as u32
}

fn uniform(hash: u64, bound: u32) -> i64 {
    let count = 2 * u64::from(bound) + 1;
    let drawn = ((hash >> 32) * count) >> 32;
    drawn as i64 - i64::from(bound)
}

fn sparse(hash: u64, often: u32) -> i64 {
    if ((hash >> 32) as u32) >= often {
        0
    } else if hash & 1 == 0 {
        1
    } else {
        -1
    }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Nan,
    Infinity,
    NegativeInfinity,
    NegativeZero,
    Subnormal,
}

impl Kind {
    fn in_turn(turn: u64) -> Self {
        match turn % 3 {
            0 => Self::Nan,
            1 => Self::Infinity,
            _ => Self::NegativeInfinity,
        }
    }
}

#[derive(Clone, Copy)]
struct Special {
    kind: Kind,
    bits: u64,
}

impl Special {
    /// The bit pattern in a format with these many mantissa bits below a sign and an exponent field.
    fn pattern(self, mantissa_bits: u32, exponent_bits: u32) -> u64 {
        let mantissa = (1u64 << mantissa_bits) - 1;
        let exponent = ((1u64 << exponent_bits) - 1) << mantissa_bits;
        let sign = 1u64 << (mantissa_bits + exponent_bits);
        match self.kind {
            // A quiet NaN whose payload tells it from a poisoned buffer's (all ones).
            Kind::Nan => exponent | 1 << (mantissa_bits - 1) | self.bits & (mantissa >> 2),
            Kind::Infinity => exponent,
            Kind::NegativeInfinity => sign | exponent,
            Kind::NegativeZero => sign,
            Kind::Subnormal => (self.bits & mantissa).max(1) | (self.bits & sign),
        }
    }
}

fn f64_special(special: Special) -> f64 {
    f64::from_bits(special.pattern(52, 11))
}

fn f32_special(special: Special) -> f32 {
    f32::from_bits(special.pattern(23, 8) as u32)
}

fn f16_special(special: Special) -> f16 {
    f16::from_bits(special.pattern(10, 5) as u16)
}

fn bf16_special(special: Special) -> bf16 {
    bf16::from_bits(special.pattern(7, 8) as u16)
}

const KNOTS: usize = 4096;

static TABLE: LazyLock<Box<NormalTable>> = LazyLock::new(NormalTable::new);

/// The inverse of the normal distribution function at equally spaced probabilities.
struct NormalTable {
    /// At i/4096; the two ends are never used.
    body: [f32; KNOTS + 1],
    /// At i/4096² (the first at 2⁻²⁵): the lowest interval of `body`; mirrored for the highest.
    tail: [f32; KNOTS + 1],
}

impl NormalTable {
    fn new() -> Box<Self> {
        let normal = Normal::standard();
        let knots = KNOTS as f64;
        let body = |i: usize| normal.inverse_cdf((i as f64 / knots).clamp(1e-9, 1.0 - 1e-9)) as f32;
        let tail = |i: usize| normal.inverse_cdf((i as f64).max(0.5) / (knots * knots)) as f32;
        Box::new(Self {
            body: std::array::from_fn(body),
            tail: std::array::from_fn(tail),
        })
    }

    /// A normal number from 64 random bits: the top twelve choose the interval, the next 24 the place in it.
    fn normal(&self, hash: u64) -> f32 {
        let interval = (hash >> 52) as usize;
        if interval == 0 || interval == KNOTS - 1 {
            let value = between(&self.tail, (hash >> 40) as usize & (KNOTS - 1), hash >> 16);
            return if interval == 0 { value } else { -value };
        }
        between(&self.body, interval, hash >> 28)
    }
}

fn between(knots: &[f32; KNOTS + 1], interval: usize, fraction: u64) -> f32 {
    let fraction = (fraction & 0xff_ffff) as f32 * (1.0 / 16_777_216.0);
    let low = knots[interval];
    low + fraction * (knots[interval + 1] - low)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const CASES: [InputCase; 6] = [
        InputCase::Normal,
        InputCase::Spiky,
        InputCase::Integers,
        InputCase::Large,
        InputCase::Small,
        InputCase::Special,
    ];

    fn floats(stream: &Stream, count: usize) -> Vec<f32> {
        let mut bytes = vec![0; 4 * count];
        stream.fill(0, &mut bytes);
        bytes
            .as_chunks::<4>()
            .0
            .iter()
            .map(|chunk| f32::from_le_bytes(*chunk))
            .collect()
    }

    #[test]
    fn any_range_is_the_same_alone_as_in_the_whole() {
        for dtype in DType::ALL {
            for case in CASES {
                let stream = Stream::new(7, 1, dtype, case, None);
                let mut whole = vec![0; 500];
                stream.fill(0, &mut whole);
                for (from, to) in [(0, 1), (3, 9), (8, 16), (13, 14), (1, 499), (77, 300)] {
                    let mut part = vec![0; to - from];
                    stream.fill(from as u64, &mut part);
                    assert_eq!(part, whole[from..to], "{dtype:?} {case:?} {from}..{to}");
                }
            }
        }
    }

    #[test]
    fn seeds_and_parameters_give_independent_streams() {
        let stream = |seed, param| Stream::new(seed, param, DType::F32, InputCase::Normal, None);
        let base = floats(&stream(1, 0), 1000);
        for other in [stream(2, 0), stream(1, 1), stream(0, 0)] {
            let other = floats(&other, 1000);
            let dot: f64 = base.iter().zip(&other).map(|(a, b)| f64::from(a * b)).sum();
            assert!(dot.abs() < 5.0 * 1000f64.sqrt(), "{dot}");
        }
        assert_eq!(base, floats(&stream(1, 0), 1000));
    }

    #[test]
    fn normal_numbers_are_normal() {
        let count = 1 << 20;
        let values = floats(
            &Stream::new(3, 0, DType::F32, InputCase::Normal, None),
            count,
        );
        let mean = |power: i32| {
            values
                .iter()
                .map(|v| f64::from(*v).powi(power))
                .sum::<f64>()
                / count as f64
        };
        assert!(mean(1).abs() < 0.005, "{}", mean(1));
        assert!((mean(2) - 1.0).abs() < 0.01, "{}", mean(2));
        assert!(mean(3).abs() < 0.03, "{}", mean(3));
        assert!((mean(4) - 3.0).abs() < 0.1, "{}", mean(4));
        let beyond = |x: f32| values.iter().filter(|v| v.abs() > x).count() as f64 / count as f64;
        assert!((beyond(1.959_964) - 0.05).abs() < 0.001);
        assert!((beyond(3.890_592) - 1e-4).abs() < 5e-5);
    }

    #[test]
    fn spikes_are_one_in_a_thousand() {
        let values = floats(
            &Stream::new(3, 0, DType::F32, InputCase::Spiky, None),
            1 << 20,
        );
        let square =
            values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>() / values.len() as f64;
        assert!((square - 1.1).abs() < 0.02, "{square}");
    }

    #[test]
    fn sums_of_integers_stay_exact() {
        for terms in [1u64, 1000, 65_537, 1 << 22, 1 << 24] {
            let sum = SumLength { terms, bits: 24 };
            let Draw::Uniform { bound } = integers(Some(sum)) else {
                panic!("{terms} terms leave room for ±1");
            };
            assert!(bound >= 1 && u64::from(bound).pow(2) * terms <= 1 << 24);
        }
        let sum = SumLength {
            terms: 1 << 30,
            bits: 24,
        };
        let stream = Stream::new(1, 0, DType::F32, InputCase::Integers, Some(sum));
        let values = floats(&stream, 1 << 20);
        let nonzero = values.iter().filter(|v| **v != 0.0).count();
        assert!(
            (7000..9500).contains(&nonzero),
            "{nonzero} of 2^20, 1/128 wanted"
        );
        assert!(values.iter().all(|v| v.abs() <= 1.0));
    }

    /// Chance would leave some sums without a NaN, or without one kind of infinity.
    #[test]
    fn a_placed_special_value_is_the_only_one() {
        let kinds: [fn(&f32) -> bool; 3] = [
            |v| v.is_nan(),
            |v| *v == f32::INFINITY,
            |v| *v == f32::NEG_INFINITY,
        ];
        for (turn, is_kind) in (0..).zip(kinds) {
            let stream = Stream::new(5, 0, DType::F32, InputCase::Special, None);
            let values = floats(&stream.with_one_special(77, turn), 10_000);
            assert!(is_kind(&values[77]));
            assert_eq!(values.iter().filter(|v| !v.is_finite()).count(), 1);
        }
    }

    #[test]
    fn special_values_are_strewn() {
        let values = floats(
            &Stream::new(5, 0, DType::F32, InputCase::Special, None),
            10_000,
        );
        let count = |is: fn(&f32) -> bool| values.iter().filter(|v| is(v)).count();
        assert!(count(|v| v.is_nan()) > 20);
        assert!(count(|v| *v == f32::INFINITY) > 20);
        assert!(count(|v| *v == f32::NEG_INFINITY) > 20);
        assert!(count(|v| v.is_subnormal()) > 300);
        assert!(count(|v| v.to_bits() == 0x8000_0000) > 300);
        assert!(count(|v| v.to_bits() == u32::MAX) == 0);
    }

    /// Strewn by chance alone, 2 of 100 seeds leave no row of a small softmax with NaNs and no infinity.
    #[test]
    fn special_values_of_a_row_are_of_one_kind_and_each_kind_has_its_rows() {
        for seed in 0..20 {
            let stream = Stream::new(seed, 0, DType::F32, InputCase::Special, None).in_rows(1000);
            let values = floats(&stream, 3000);
            let kinds: HashSet<u32> = (values.chunks(1000))
                .map(|row| {
                    let mut special = row.iter().filter(|v| !v.is_finite());
                    let kind = |v: &f32| match v.is_nan() {
                        true => 0,
                        false => v.to_bits(),
                    };
                    let first = kind(special.next().unwrap());
                    assert!(special.all(|v| kind(v) == first));
                    first
                })
                .collect();
            assert_eq!(kinds.len(), 3, "{seed}");
        }
    }

    /// Needs `--release`; prints elements per second.
    #[test]
    #[ignore = "a measurement: cargo test --release -- --ignored generator_speed --nocapture"]
    fn generator_speed() {
        let mut out = vec![0; 64 << 20];
        for case in CASES {
            let stream = Stream::new(1, 0, DType::F32, case, None);
            let start = std::time::Instant::now();
            stream.fill(0, &mut out);
            let rate = (out.len() / 4) as f64 / start.elapsed().as_secs_f64();
            println!("{case:?}: {:.0} M elements/s", rate / 1e6);
            assert!(rate > 50e6);
        }
    }
}
