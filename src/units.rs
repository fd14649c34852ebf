//! Quantities that carry their unit: times, bytes, operations, GPU architectures.
//! Nothing here measures, converts silently or knows a task.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A duration on the device, in nanoseconds. Always finite and positive.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Nanos(f64);

impl TryFrom<f64> for Nanos {
    type Error = String;

    fn try_from(ns: f64) -> Result<Self, String> {
        Self::new(ns).ok_or_else(|| format!("{ns} ns is no time: times are finite and positive"))
    }
}

impl From<Nanos> for f64 {
    fn from(time: Nanos) -> Self {
        time.0
    }
}

impl Nanos {
    /// `None` unless `ns` is finite and positive: a time of zero never enters a ratio.
    pub fn new(ns: f64) -> Option<Self> {
        (ns.is_finite() && ns > 0.0).then_some(Self(ns))
    }

    /// The value in nanoseconds.
    pub fn get(self) -> f64 {
        self.0
    }

    /// The value in seconds.
    pub fn seconds(self) -> f64 {
        self.0 * 1e-9
    }
}

impl fmt::Display for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0;
        match ns {
            _ if ns < 1e3 => write!(f, "{ns:.0} ns"),
            _ if ns < 1e6 => write!(f, "{:.2} µs", ns / 1e3),
            _ if ns < 1e9 => write!(f, "{:.3} ms", ns / 1e6),
            _ => write!(f, "{:.3} s", ns / 1e9),
        }
    }
}

/// A count of bytes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let b = self.0 as f64;
        match self.0 {
            n if n < 1 << 10 => write!(f, "{n} B"),
            n if n < 1 << 20 => write!(f, "{:.1} KiB", b / 1024.0),
            n if n < 1 << 30 => write!(f, "{:.1} MiB", b / 1048576.0),
            _ => write!(f, "{:.2} GiB", b / 1073741824.0),
        }
    }
}

/// A count and what is counted: `1 reply`, `2 replies`, `3 kernels`.
pub fn counted(count: impl TryInto<u64>, noun: &str) -> String {
    match (count.try_into().unwrap_or(u64::MAX), noun.strip_suffix('y')) {
        (1, _) => format!("1 {noun}"),
        (many, Some(stem)) => format!("{many} {stem}ies"),
        (many, None) => format!("{many} {noun}s"),
    }
}

/// A count of floating-point operations; a fused multiply-add counts two.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Flops(pub f64);

/// What an architecture's name ends in: `sm_90`, `sm_90a` (specific) or `sm_100f` (family).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SmSuffix {
    /// Runs on later architectures too.
    Portable,
    /// `a`: this architecture only, all its instructions.
    Specific,
    /// `f`: this family.
    Family,
}

/// A GPU architecture as ptxas names it: `sm_90a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SmArch {
    /// 90 for `sm_90a`.
    pub number: u16,
    /// The letter after it.
    pub suffix: SmSuffix,
}

impl SmArch {
    /// Hopper with all its instructions.
    pub const SM_90A: Self = Self {
        number: 90,
        suffix: SmSuffix::Specific,
    };

    /// Whether code built for `self` runs on a GPU whose full name is `gpu` (`sm_90a` for an H100).
    pub fn runs_on(self, gpu: SmArch) -> bool {
        match self.suffix {
            SmSuffix::Portable => self.number / 10 == gpu.number / 10 && self.number <= gpu.number,
            SmSuffix::Specific => self.number == gpu.number,
            SmSuffix::Family => self.number / 10 == gpu.number / 10 && self.number <= gpu.number,
        }
    }
}

impl fmt::Display for SmArch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let suffix = match self.suffix {
            SmSuffix::Portable => "",
            SmSuffix::Specific => "a",
            SmSuffix::Family => "f",
        };
        write!(f, "sm_{}{suffix}", self.number)
    }
}

/// The text is no architecture name.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no GPU architecture; write it as ptxas does, for example sm_90a")]
pub struct BadArch(String);

impl FromStr for SmArch {
    type Err = BadArch;

    fn from_str(text: &str) -> Result<Self, BadArch> {
        let bad = || BadArch(text.to_owned());
        let rest = text.strip_prefix("sm_").ok_or_else(bad)?;
        let (digits, suffix) = match rest.as_bytes().last() {
            Some(b'a') => (&rest[..rest.len() - 1], SmSuffix::Specific),
            Some(b'f') => (&rest[..rest.len() - 1], SmSuffix::Family),
            _ => (rest, SmSuffix::Portable),
        };
        if !(2..=3).contains(&digits.len()) || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(bad());
        }
        Ok(Self {
            number: digits.parse().map_err(|_| bad())?,
            suffix,
        })
    }
}

impl Serialize for SmArch {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SmArch {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// A BLAKE3 hash: of a canonical kernel, a stored object, a tool. Printed as hex.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The hash of `bytes`.
    pub fn of(bytes: impl AsRef<[u8]>) -> Self {
        Self(*blake3::hash(bytes.as_ref()).as_bytes())
    }

    /// The hash of several fields in order; lengths are part of it, so fields cannot run together.
    pub fn of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Self(*hasher.finalize().as_bytes())
    }

    /// The first twelve hex digits, for people.
    pub fn short(&self) -> String {
        self.to_string()[..12].to_owned()
    }

    /// The first eight bytes as a seed.
    pub fn seed(&self) -> u64 {
        let mut first = [0; 8];
        first.copy_from_slice(&self.0[..8]);
        u64::from_le_bytes(first)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.short())
    }
}

impl FromStr for Digest {
    type Err = BadDigest;

    fn from_str(text: &str) -> Result<Self, BadDigest> {
        let bad = || BadDigest(text.to_owned());
        let hash = blake3::Hash::from_hex(text).map_err(|_| bad())?;
        Ok(Self(*hash.as_bytes()))
    }
}

/// The text is no hash.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no 64-digit hexadecimal hash")]
pub struct BadDigest(String);

impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_read_from_a_file_is_one() {
        let read = |text: &str| serde_json::from_str::<Nanos>(text);
        assert_eq!(read("1.5").expect("a time").get(), 1.5);
        assert_eq!(serde_json::to_string(&Nanos(1.5)).expect("writes"), "1.5");
        for none in ["0", "-2.5", "null"] {
            assert!(read(none).is_err(), "{none}");
        }
    }
}
