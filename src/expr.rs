//! Expressions over named numbers, for task files and source headers alike: Python's operators (`//`
//! floors, `/` always gives a float, comparisons chain), `a if c else b`, and the functions [`FUNCTIONS`].
//! Compiled once, evaluated often. An unknown name or an overflow is an error, never a default.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use minijinja::value::{Enumerator, Object, Rest, Value as Raw};
use minijinja::{Environment, Error, ErrorKind, Expression, UndefinedBehavior};

/// The functions every expression may call.
pub const FUNCTIONS: [&str; 6] = ["ceil_div", "min", "max", "pow2", "log2", "is_pow2"];

/// Words that cannot be names: the language's own.
pub const KEYWORDS: [&str; 14] = [
    "and", "or", "not", "in", "is", "if", "else", "true", "false", "none", "True", "False", "None",
    "loop",
];

/// What a name stands for, and what an expression gives. A condition gives 0 or 1.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f64),
    /// A piece of text.
    Text(Arc<str>),
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(value) => value.fmt(f),
            Self::Float(value) => write!(f, "{value:?}"),
            Self::Text(text) => text.fmt(f),
        }
    }
}

/// What the names of an expression stand for.
pub trait Names {
    /// The value of `name`.
    fn value(&self, name: &str) -> Option<Value>;

    /// Every name there is, for error messages.
    fn known(&self) -> Vec<String>;
}

impl Names for BTreeMap<String, i64> {
    fn value(&self, name: &str) -> Option<Value> {
        self.get(name).copied().map(Value::Int)
    }

    fn known(&self) -> Vec<String> {
        self.keys().cloned().collect()
    }
}

impl Names for BTreeMap<String, Value> {
    fn value(&self, name: &str) -> Option<Value> {
        self.get(name).cloned()
    }

    fn known(&self) -> Vec<String> {
        self.keys().cloned().collect()
    }
}

/// Why an expression does not compile, or has no value.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("in `{expression}`: {message}")]
pub struct ExprError {
    /// The expression's text.
    pub expression: Arc<str>,
    /// Byte range in it, where known.
    pub at: Option<Range<usize>>,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub help: Option<String>,
}

/// A compiled expression. Cheap to clone.
#[derive(Clone)]
pub struct Expr {
    text: Arc<str>,
    names: Arc<[Arc<str>]>,
    compiled: Arc<Expression<'static, 'static>>,
}

impl Expr {
    /// Compiles `text`.
    pub fn new(text: &str) -> Result<Self, ExprError> {
        let text: Arc<str> = text.trim().into();
        let compiled = ENVIRONMENT
            .compile_expression_owned(text.to_string())
            .map_err(|error| explain(&text, &error))?;
        let mut names = BTreeSet::new();
        for name in compiled.undeclared_variables(false) {
            let called = is_called(&text, &name);
            let function = FUNCTIONS.contains(&name.as_str());
            if called && !function {
                return Err(ExprError {
                    at: find_name(&text, &name),
                    message: format!("there is no function `{name}`"),
                    help: Some(format!("functions: {}", FUNCTIONS.join(", "))),
                    expression: text,
                });
            }
            if !called && function {
                return Err(ExprError {
                    at: find_name(&text, &name),
                    message: format!("`{name}` is a function: call it, `{name}(…)`"),
                    help: None,
                    expression: text,
                });
            }
            if !function {
                names.insert(Arc::from(name.as_str()));
            }
        }
        Ok(Self {
            text,
            names: names.into_iter().collect(),
            compiled: Arc::new(compiled),
        })
    }

    /// As written, trimmed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The names it uses, sorted, functions left out.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.names.iter().map(AsRef::as_ref)
    }

    /// Whether it is nothing but a name.
    pub fn as_name(&self) -> Option<&str> {
        self.names
            .first()
            .filter(|name| ***name == *self.text)
            .map(AsRef::as_ref)
    }

    /// Its value.
    pub fn value(&self, names: &(impl Names + ?Sized)) -> Result<Value, ExprError> {
        let mut values = Vec::with_capacity(self.names.len());
        for name in &*self.names {
            values.push(names.value(name).ok_or_else(|| self.unknown(name, names))?);
        }
        self.apply(values)
    }

    /// Its value as an integer; a float is an error, as `//` was probably meant.
    pub fn int(&self, names: &(impl Names + ?Sized)) -> Result<i64, ExprError> {
        match self.value(names)? {
            Value::Int(value) => Ok(value),
            Value::Float(value) => Err(self.error(
                format!("gives {value:?}, which is no integer"),
                Some("`//` divides integers, `ceil_div(a, b)` rounds up".into()),
            )),
            Value::Text(text) => {
                Err(self.error(format!("gives the text `{text}`, not an integer"), None))
            }
        }
    }

    /// Its value as a number, for formulas of work and bytes.
    pub fn float(&self, names: &(impl Names + ?Sized)) -> Result<f64, ExprError> {
        match self.value(names)? {
            Value::Int(value) => Ok(value as f64),
            Value::Float(value) => Ok(value),
            Value::Text(text) => {
                Err(self.error(format!("gives the text `{text}`, not a number"), None))
            }
        }
    }

    /// Its value as a condition: a comparison's outcome, or a number that is not zero.
    pub fn holds(&self, names: &(impl Names + ?Sized)) -> Result<bool, ExprError> {
        let value = self.value(names)?;
        self.condition(value)
    }

    /// Its value where the names, in the order of [`Expr::names`], have these values.
    pub(crate) fn apply(&self, values: Vec<Value>) -> Result<Value, ExprError> {
        let bindings = Bindings {
            names: Arc::clone(&self.names),
            values: values.iter().map(to_raw).collect(),
        };
        let raw = self
            .compiled
            .eval(Raw::from_object(bindings))
            .map_err(|error| explain(&self.text, &error))?;
        from_raw(&raw).map_err(|message| self.error(message, None))
    }

    /// Reads a value of this expression as a condition.
    pub(crate) fn condition(&self, value: Value) -> Result<bool, ExprError> {
        match value {
            Value::Int(value) => Ok(value != 0),
            Value::Float(value) => Ok(value != 0.0),
            Value::Text(text) => {
                Err(self.error(format!("gives the text `{text}`, not a condition"), None))
            }
        }
    }

    fn unknown(&self, name: &str, names: &(impl Names + ?Sized)) -> ExprError {
        let known = names.known();
        ExprError {
            expression: Arc::clone(&self.text),
            at: find_name(&self.text, name),
            message: format!("unknown name `{name}`"),
            help: Some(known_names(name, &known)),
        }
    }

    fn error(&self, message: String, help: Option<String>) -> ExprError {
        ExprError {
            expression: Arc::clone(&self.text),
            at: None,
            message,
            help,
        }
    }
}

impl fmt::Debug for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Expr({:?})", self.text)
    }
}

impl fmt::Display for Expr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for Expr {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

/// A sentence that lists the names there are, the most similar one first where there is one.
pub(crate) fn known_names(name: &str, known: &[String]) -> String {
    let near = known
        .iter()
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 4)
        .min();
    let list = if known.is_empty() {
        "no names are known here".to_owned()
    } else {
        format!("known names: {}", known.join(", "))
    };
    match near {
        Some((_, candidate)) => format!("did you mean `{candidate}`? {list}"),
        None => list,
    }
}

/// Adds [`FUNCTIONS`] to an environment.
pub(crate) fn add_functions(environment: &mut Environment<'static>) {
    environment.add_function("ceil_div", ceil_div);
    environment.add_function("min", |values: Rest<Raw>| extreme("min", &values, Raw::lt));
    environment.add_function("max", |values: Rest<Raw>| extreme("max", &values, Raw::gt));
    environment.add_function("pow2", pow2);
    environment.add_function("log2", log2);
    environment.add_function("is_pow2", |n: i64| n > 0 && n.count_ones() == 1);
}

/// The template engine's value of one of ours.
pub(crate) fn to_raw(value: &Value) -> Raw {
    match value {
        Value::Int(value) => Raw::from(*value),
        Value::Float(value) => Raw::from(*value),
        Value::Text(text) => Raw::from(Arc::clone(text)),
    }
}

/// Our value of one of the template engine's.
pub(crate) fn from_raw(raw: &Raw) -> Result<Value, String> {
    use minijinja::value::ValueKind;
    match raw.kind() {
        ValueKind::Bool => Ok(Value::Int(i64::from(raw.is_true()))),
        ValueKind::Number if raw.is_integer() => raw
            .as_i64()
            .map(Value::Int)
            .ok_or_else(|| format!("gives {raw}, which overflows a 64-bit integer")),
        ValueKind::Number => match f64::try_from(raw.clone()) {
            Ok(value) if value.is_finite() => Ok(Value::Float(value)),
            Ok(_) | Err(_) => Err(format!("gives {raw}, which is no finite number")),
        },
        ValueKind::String => Ok(Value::Text(
            raw.as_str()
                .expect("invariant: a string value has text")
                .into(),
        )),
        ValueKind::Undefined => Err("has no value: an `if` without `else`?".into()),
        kind => Err(format!(
            "gives a {kind}; a number, a condition or text is wanted"
        )),
    }
}

/// Where `name` stands in `text` as a whole word.
pub(crate) fn find_name(text: &str, name: &str) -> Option<Range<usize>> {
    words(text).find(|range| &text[range.clone()] == name)
}

/// The identifiers of an expression, in order; text in quotes is left out.
pub(crate) fn words(text: &str) -> impl Iterator<Item = Range<usize>> {
    let bytes = text.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < bytes.len() {
            let byte = bytes[at];
            if byte == b'"' || byte == b'\'' {
                at += 1;
                while at < bytes.len() && bytes[at] != byte {
                    at += if bytes[at] == b'\\' { 2 } else { 1 };
                }
                at += 1;
            } else if is_word(byte) {
                let start = at;
                while at < bytes.len() && is_word(bytes[at]) {
                    at += 1;
                }
                if !byte.is_ascii_digit() {
                    return Some(start..at);
                }
            } else {
                at += 1;
            }
        }
        None
    })
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::empty();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(10_000));
    add_functions(&mut environment);
    environment
});

/// Values for an expression's names.
#[derive(Debug)]
struct Bindings {
    names: Arc<[Arc<str>]>,
    values: Vec<Raw>,
}

impl Object for Bindings {
    fn get_value(self: &Arc<Self>, key: &Raw) -> Option<Raw> {
        let key = key.as_str()?;
        let index = self.names.iter().position(|name| **name == *key)?;
        self.values.get(index).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::NonEnumerable
    }
}

fn explain(text: &Arc<str>, error: &Error) -> ExprError {
    let message = match error.kind() {
        ErrorKind::OutOfFuel => "takes too long to evaluate".to_owned(),
        _ => error
            .detail()
            .map_or_else(|| error.kind().to_string(), ToOwned::to_owned),
    };
    let message = if text.is_empty() {
        "an expression is wanted here".to_owned()
    } else if message.starts_with("unable to calculate") {
        format!("{message}: division by zero or overflow")
    } else {
        message
    };
    ExprError {
        expression: Arc::clone(text),
        at: error
            .range()
            .filter(|range| range.end <= text.len() && range.start < range.end),
        message,
        help: None,
    }
}

fn is_called(text: &str, name: &str) -> bool {
    words(text)
        .filter(|range| &text[range.clone()] == name)
        .any(|range| text[range.end..].trim_start().starts_with('('))
}

fn ceil_div(a: i64, b: i64) -> Result<i64, Error> {
    if b <= 0 {
        return Err(failed(format!(
            "ceil_div({a}, {b}): the divisor must be positive"
        )));
    }
    Ok(a.div_euclid(b) + i64::from(a.rem_euclid(b) != 0))
}

fn extreme(name: &str, values: &[Raw], better: fn(&Raw, &Raw) -> bool) -> Result<Raw, Error> {
    let mut values = values.iter();
    let first = values
        .next()
        .ok_or_else(|| failed(format!("{name}() wants at least one value")))?;
    let mut best = first;
    for value in std::iter::once(first).chain(values) {
        if !value.is_number() {
            return Err(failed(format!("{name}(): `{value}` is no number")));
        }
        if better(value, best) {
            best = value;
        }
    }
    Ok(best.clone())
}

fn pow2(n: i64) -> Result<i64, Error> {
    match u32::try_from(n) {
        Ok(n) if n <= 62 => Ok(1 << n),
        Ok(_) | Err(_) => Err(failed(format!("pow2({n}): 0 to 62 is wanted"))),
    }
}

fn log2(n: i64) -> Result<i64, Error> {
    if n <= 0 || n.count_ones() != 1 {
        return Err(failed(format!("log2({n}): a power of two is wanted")));
    }
    Ok(i64::from(n.trailing_zeros()))
}

fn failed(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

/// Edits (insert, delete, replace) between two names.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(!x.eq_ignore_ascii_case(y));
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> BTreeMap<String, i64> {
        [("n", 1000), ("BM", 64), ("BK", 8), ("big", i64::MAX)]
            .map(|(name, value)| (name.to_owned(), value))
            .into()
    }

    #[test]
    fn values() {
        for (text, expected) in [
            ("ceil_div(n, BM)", 16),
            ("n // BM + n % BM", 55),
            ("-7 // 2", -4),
            ("-7 % 3", 2),
            ("2 ** 10", 1024),
            ("min(n, BM, 3) + max(1, BK)", 11),
            ("pow2(5) + log2(BM)", 38),
            ("is_pow2(BM) and not is_pow2(n)", 1),
            ("32 <= BM <= 63", 0),
            ("1 if BM > BK else 2", 1),
            ("BM in [32, 64]", 1),
            ("(BM * BK) // 3", 170),
        ] {
            let value = Expr::new(text).unwrap().int(&names()).unwrap();
            assert_eq!(value, expected, "{text}");
        }
    }

    #[test]
    fn floats_and_conditions() {
        let value = |text: &str| Expr::new(text).unwrap().value(&names()).unwrap();
        assert_eq!(value("BM / 128"), Value::Float(0.5));
        assert_eq!(value("'ca' if BK else 'cg'"), Value::Text("ca".into()));
        assert!(Expr::new("BM % 32 == 0").unwrap().holds(&names()).unwrap());
        assert!(!Expr::new("BK // 9").unwrap().holds(&names()).unwrap());
    }

    #[test]
    fn errors_say_what_and_where() {
        for (text, expected) in [
            ("BN * 2", "unknown name `BN`"),
            ("BM / 3", "no integer"),
            ("big + 1", "overflows"),
            ("big ** 9", "overflow"),
            ("n // 0", "division by zero"),
            ("log2(n)", "power of two"),
            ("ceil_div(n, 0)", "must be positive"),
            ("1 if BM > 99", "without `else`"),
            ("'x' * 100000000", "too long"),
            ("pow2(63)", "0 to 62"),
            ("max('a')", "no number"),
            ("'text'", "the text `text`"),
        ] {
            let error = Expr::new(text).unwrap().int(&names()).unwrap_err();
            assert!(error.message.contains(expected), "{text}: {error}");
            assert_eq!(&*error.expression, text);
        }
        for (text, expected) in [
            ("BM *", "unexpected end"),
            ("", "wanted"),
            ("frob(3)", "no function `frob`"),
            ("max + 1", "is a function"),
            ("BM $ 3", "unexpected"),
        ] {
            let error = Expr::new(text).unwrap_err();
            assert!(error.message.contains(expected), "{text}: {error}");
        }
        let error = Expr::new("1 + bm").unwrap().int(&names()).unwrap_err();
        assert_eq!(error.at, Some(4..6));
        assert!(error.help.unwrap().starts_with("did you mean `BM`?"));
    }
}
