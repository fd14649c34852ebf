//! What tokens cost: a dated table inside the program, and the user's own over it. It asks no server, and
//! a model that no table names has no price: it is never taken for free.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{ChatError, Usage};

/// An amount of US dollars, never negative, exact to a billionth of a cent; too large a sum saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dollars(u64);

const PICO: f64 = 1e12;

impl Dollars {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// `None` unless `dollars` is finite and not negative. What is too large saturates.
    pub fn new(dollars: f64) -> Option<Self> {
        (dollars.is_finite() && dollars >= 0.0).then(|| Self((dollars * PICO).round() as u64))
    }

    /// The value in dollars.
    pub fn get(self) -> f64 {
        self.0 as f64 / PICO
    }

    /// The sum, at most the largest amount there is.
    pub fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, at least nothing.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Dollars {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dollars = self.get();
        match self.0 {
            0 => f.write_str("$0"),
            small if small < 10_000_000_000 => write!(f, "${dollars:.6}"),
            _ => write!(f, "${dollars:.2}"),
        }
    }
}

impl std::str::FromStr for Dollars {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = text.trim().trim_start_matches('$').parse().ok();
        number
            .and_then(Self::new)
            .ok_or_else(|| "write dollars, not negative: 2.50".to_owned())
    }
}

impl Serialize for Dollars {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.get().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Dollars {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let dollars = f64::deserialize(deserializer)?;
        Self::new(dollars).ok_or_else(|| serde::de::Error::custom("dollars are not negative"))
    }
}

/// What a million tokens of one model cost.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// Prompt tokens.
    input: Dollars,
    /// Prompt tokens read from the server's cache; as `input` where absent.
    cached: Option<Dollars>,
    /// Prompt tokens written to the server's cache; as `input` where absent.
    cache_write: Option<Dollars>,
    /// Reply tokens, reasoning included.
    output: Dollars,
}

impl Price {
    /// What an exchange costs. Parts that claim to be larger than their whole count as the whole.
    pub fn of(&self, usage: &Usage) -> Dollars {
        let cached = usage.cached.min(usage.input);
        let written = usage.cache_written.min(usage.input - cached);
        let plain = usage.input - cached - written;
        [
            (plain, self.input),
            (cached, self.cached.unwrap_or(self.input)),
            (written, self.cache_write.unwrap_or(self.input)),
            (usage.output, self.output),
        ]
        .into_iter()
        .map(|(tokens, per_million)| scaled(tokens, per_million))
        .fold(Dollars::ZERO, Dollars::saturating_add)
    }

    /// The most that so many tokens can cost, however they are cached.
    pub(super) fn at_most(&self, input: u64, output: u64) -> Dollars {
        let dearest = [self.cached, self.cache_write]
            .into_iter()
            .flatten()
            .fold(self.input, Dollars::max);
        scaled(input, dearest).saturating_add(scaled(output, self.output))
    }
}

/// Rounded up: a budget is not overrun by roundings.
fn scaled(tokens: u64, per_million: Dollars) -> Dollars {
    let pico = (u128::from(tokens) * u128::from(per_million.0)).div_ceil(1_000_000);
    Dollars(u64::try_from(pico).unwrap_or(u64::MAX))
}

/// The table.
#[derive(Clone, Debug)]
pub struct Prices {
    models: BTreeMap<String, Price>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// When the prices were read: `YYYY-MM-DD`.
    as_of: String,
    #[serde(default)]
    model: BTreeMap<String, Price>,
}

impl Prices {
    /// The table of this program.
    pub fn embedded() -> Self {
        let file = read(include_str!("prices.toml"));
        Self {
            models: file.expect("invariant: the embedded table is checked by a test"),
        }
    }

    /// The same with the prices of a file over it.
    pub fn with_file(mut self, path: &Path) -> Result<Self, ChatError> {
        let fault = |message: String| ChatError::Configuration {
            message: format!("{}: {message}", path.display()),
        };
        let text = std::fs::read_to_string(path).map_err(|error| fault(error.to_string()))?;
        self.models.extend(read(&text).map_err(fault)?);
        Ok(self)
    }

    /// A model's price: under its own name, else under its name without a date at the end
    /// (`claude-sonnet-4-5-20250929`, `gpt-5-2025-08-07`).
    pub fn of(&self, model: &str) -> Option<Price> {
        let undated = || {
            let cut = model.trim_end_matches(|c: char| c.is_ascii_digit() || c == '-');
            (0..model.len())
                .filter(|at| *at >= cut.len() && model[*at..].starts_with('-'))
                .filter(|at| model[*at..].bytes().filter(u8::is_ascii_digit).count() == 8)
                .find_map(|at| self.models.get(&model[..at]))
        };
        self.models.get(model).or_else(undated).copied()
    }
}

fn read(text: &str) -> Result<BTreeMap<String, Price>, String> {
    let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
    let digits = file.as_of.bytes().filter(u8::is_ascii_digit).count();
    if file.as_of.len() != 10 || digits != 8 {
        return Err(format!(
            "as_of = {:?} is no date; write when the prices were read: \"2026-01-31\"",
            file.as_of
        ));
    }
    Ok(file.model)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(input: f64, cached: Option<f64>, output: f64) -> Price {
        let dollars = |value: f64| Dollars::new(value).expect("a price");
        Price {
            input: dollars(input),
            cached: cached.map(dollars),
            cache_write: None,
            output: dollars(output),
        }
    }

    fn usage(input: u64, cached: u64, output: u64) -> Usage {
        Usage {
            input,
            cached,
            output,
            ..Usage::default()
        }
    }

    #[test]
    fn tokens_cost_what_the_table_says() {
        let price = price(1.25, Some(0.125), 10.0);
        for (usage, dollars) in [
            (usage(1_000_000, 0, 0), 1.25),
            (usage(1_000_000, 1_000_000, 0), 0.125),
            (usage(0, 0, 1_000_000), 10.0),
            (usage(1, 0, 0), 0.00000125),
            (usage(1000, 400, 200), 0.00075 + 0.00005 + 0.002),
            // more cached than there is: all of it
            (usage(1_000_000, u64::MAX, 0), 0.125),
        ] {
            assert_eq!(
                price.of(&usage),
                Dollars::new(dollars).expect("a sum"),
                "{usage:?}"
            );
        }
        assert_eq!(price.of(&usage(u64::MAX, 0, u64::MAX)), Dollars(u64::MAX));
        assert!(price.at_most(1000, 200) >= price.of(&usage(1000, 400, 200)));
    }

    #[test]
    fn no_amount_is_negative_or_no_number() {
        for bad in [-1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert_eq!(Dollars::new(bad), None);
        }
        for text in ["-1", "NaN", "inf", "1e999", "", "two"] {
            assert!(text.parse::<Dollars>().is_err(), "{text}");
        }
        assert_eq!("$2.50".parse(), Ok(Dollars(2_500_000_000_000)));
        assert_eq!(Dollars::new(1e30), Some(Dollars(u64::MAX)));
        let back: Dollars =
            serde_json::from_str(&serde_json::to_string(&Dollars(12_345_678)).expect("writes"))
                .expect("reads");
        assert_eq!(back, Dollars(12_345_678));
    }

    #[test]
    fn the_embedded_table_reads_and_names_are_not_guessed() {
        let prices = Prices::embedded();
        assert!(!prices.models.is_empty());
        for (name, price) in &prices.models {
            assert!(
                price.input > Dollars::ZERO && price.output >= price.input,
                "{name}"
            );
            assert!(
                price.cached.is_none_or(|cached| cached < price.input),
                "{name}"
            );
        }
        let prices = Prices {
            models: BTreeMap::from([("m-5".to_owned(), price(1.0, None, 2.0))]),
        };
        for (name, known) in [
            ("m-5", true),
            ("m-5-20250929", true),
            ("m-5-2025-08-07", true),
            ("m-5-mini", false),
            ("m-5-1", false),
            ("m", false),
            ("x/m-5", false),
            ("", false),
        ] {
            assert_eq!(prices.of(name).is_some(), known, "{name}");
        }
    }

    #[test]
    fn a_table_needs_a_date_and_whole_prices() {
        for (text, words) in [
            ("[model.m]\ninput = 1\noutput = 2", "as_of"),
            ("as_of = \"soon\"", "is no date"),
            ("as_of = \"2026-01-31\"\n[model.m]\ninput = 1", "output"),
            (
                "as_of = \"2026-01-31\"\n[model.m]\ninput = -1\noutput = 2",
                "not negative",
            ),
            (
                "as_of = \"2026-01-31\"\n[model.m]\ninput = nan\noutput = 2",
                "not negative",
            ),
            (
                "as_of = \"2026-01-31\"\n[model.m]\ninput = 1\noutput = 2\ntax = 3",
                "tax",
            ),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(words), "{error}");
        }
    }
}
