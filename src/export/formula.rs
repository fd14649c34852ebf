//! Launch formulas in the languages of the loaders: an expression of a source's header, over task sizes
//! and device facts, as a 64-bit integer expression of C++, Rust or Python. What has no exact counterpart
//! (a float division, a piece of text) is refused, never approximated. The loaders bring `ceil_div`,
//! `floor_div` and `floor_mod`, which refuse divisors that are not positive.

use std::collections::BTreeMap;

use crate::expr::{Expr, KEYWORDS, Value};

/// A language of a loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// C++17.
    Cpp,
    /// Rust 2021.
    Rust,
    /// Python 3.
    Python,
}

/// The expression cannot be written in a loader's language.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{expression}` cannot be written into a loader: {message}")]
pub struct FormulaError {
    /// The whole expression.
    pub expression: String,
    /// What stands in the way.
    pub message: String,
}

/// Translates `expression`; `names` gives each name it may use the loader's name for it.
pub fn translate(
    expression: &str,
    language: Language,
    names: &BTreeMap<String, String>,
) -> Result<String, FormulaError> {
    let refuse = |message: String| FormulaError {
        expression: expression.to_owned(),
        message,
    };
    if let Some(constant) = constant(expression).map_err(refuse)? {
        return match constant {
            Value::Int(value) if value < 0 => {
                let digits = Formula::Number(value.unsigned_abs().to_string());
                Ok(Formula::Negate(Box::new(digits)).write(language))
            }
            Value::Int(value) => Ok(Formula::Number(value.to_string()).write(language)),
            Value::Float(_) | Value::Text(_) => {
                Err(refuse(format!("it gives {constant}, which is no integer")))
            }
        };
    }
    let tokens = tokens(expression).map_err(refuse)?;
    let mut parser = Parser {
        tokens: &tokens,
        at: 0,
        names,
    };
    let formula = parser.ternary().map_err(refuse)?;
    match parser.peek() {
        None => Ok(formula.write(language)),
        Some(token) => Err(refuse(format!("unexpected `{token}`"))),
    }
}

/// The value of an expression that names nothing.
pub fn constant(expression: &str) -> Result<Option<Value>, String> {
    let expr = Expr::new(expression).map_err(|error| error.message)?;
    if expr.names().len() != 0 {
        return Ok(None);
    }
    expr.value(&BTreeMap::<String, i64>::new())
        .map(Some)
        .map_err(|error| error.message)
}

#[derive(Debug)]
enum Formula {
    Number(String),
    /// A text knob's value: it can only be compared with another, and is gone after that.
    Text(String),
    Name(String),
    Negate(Box<Formula>),
    Not(Box<Formula>),
    Binary(Operator, Box<Formula>, Box<Formula>),
    Choice {
        condition: Box<Formula>,
        then: Box<Formula>,
        otherwise: Box<Formula>,
    },
    Call(Function, Vec<Formula>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Add,
    Subtract,
    Multiply,
    FloorDivide,
    Remainder,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Equal,
    NotEqual,
    And,
    Or,
}

impl Operator {
    fn symbol(self) -> &'static str {
        match self {
            Self::Add => "+",
            Self::Subtract => "-",
            Self::Multiply => "*",
            Self::FloorDivide => "/",
            Self::Remainder => "%",
            Self::Less => "<",
            Self::LessEqual => "<=",
            Self::Greater => ">",
            Self::GreaterEqual => ">=",
            Self::Equal => "==",
            Self::NotEqual => "!=",
            Self::And => "&&",
            Self::Or => "||",
        }
    }

    fn is_comparison(self) -> bool {
        match self {
            Self::Less
            | Self::LessEqual
            | Self::Greater
            | Self::GreaterEqual
            | Self::Equal
            | Self::NotEqual => true,
            Self::Add
            | Self::Subtract
            | Self::Multiply
            | Self::FloorDivide
            | Self::Remainder
            | Self::And
            | Self::Or => false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Function {
    CeilDiv,
    Min,
    Max,
}

impl Formula {
    /// Itself, unless it is a text.
    fn numeric(self) -> Result<Self, String> {
        match self {
            Self::Text(text) => Err(format!("the text \"{text}\" is no number")),
            number => Ok(number),
        }
    }

    fn write(&self, language: Language) -> String {
        let inner = |formula: &Self| formula.write(language);
        match self {
            Self::Number(digits) => match language {
                Language::Cpp => format!("INT64_C({digits})"),
                Language::Rust => format!("{digits}_i64"),
                Language::Python => digits.clone(),
            },
            Self::Text(_) => unreachable!("`numeric` refused it"),
            Self::Name(name) => name.clone(),
            Self::Negate(operand) => format!("(-{})", inner(operand)),
            Self::Not(operand) => match language {
                Language::Cpp => format!("int64_t({} == 0)", inner(operand)),
                Language::Rust => format!("i64::from({} == 0)", inner(operand)),
                Language::Python => format!("int({} == 0)", inner(operand)),
            },
            Self::Binary(operator, left, right) => {
                let (left, right) = (inner(left), inner(right));
                match (operator, language) {
                    (
                        Operator::FloorDivide | Operator::Remainder,
                        Language::Cpp | Language::Rust | Language::Python,
                    ) => {
                        let name = if *operator == Operator::FloorDivide {
                            "floor_div"
                        } else {
                            "floor_mod"
                        };
                        let fails = if language == Language::Rust { "?" } else { "" };
                        format!("{name}({left}, {right}){fails}")
                    }
                    // The value of `a and b` is one of the two, as in Python.
                    (Operator::And, Language::Cpp) => {
                        format!("({left} != 0 ? {right} : INT64_C(0))")
                    }
                    (Operator::Or, Language::Cpp) => format!("({left} != 0 ? {left} : {right})"),
                    (Operator::And, Language::Rust) => {
                        format!("(if {left} != 0 {{ {right} }} else {{ 0_i64 }})")
                    }
                    (Operator::Or, Language::Rust) => {
                        format!("(if {left} != 0 {{ {left} }} else {{ {right} }})")
                    }
                    (Operator::And, Language::Python) => format!("({left} and {right})"),
                    (Operator::Or, Language::Python) => format!("({left} or {right})"),
                    (comparison, Language::Cpp) if comparison.is_comparison() => {
                        format!("int64_t({left} {} {right})", comparison.symbol())
                    }
                    (comparison, Language::Rust) if comparison.is_comparison() => {
                        format!("i64::from({left} {} {right})", comparison.symbol())
                    }
                    (comparison, Language::Python) if comparison.is_comparison() => {
                        format!("int({left} {} {right})", comparison.symbol())
                    }
                    (arithmetic, Language::Cpp | Language::Rust | Language::Python) => {
                        format!("({left} {} {right})", arithmetic.symbol())
                    }
                }
            }
            Self::Choice {
                condition,
                then,
                otherwise,
            } => {
                let (condition, then, otherwise) =
                    (inner(condition), inner(then), inner(otherwise));
                match language {
                    Language::Cpp => format!("({condition} != 0 ? {then} : {otherwise})"),
                    Language::Rust => {
                        format!("(if {condition} != 0 {{ {then} }} else {{ {otherwise} }})")
                    }
                    Language::Python => format!("({then} if {condition} != 0 else {otherwise})"),
                }
            }
            Self::Call(function, arguments) => {
                let arguments: Vec<String> = arguments.iter().map(inner).collect();
                fold_call(*function, &arguments, language)
            }
        }
    }
}

fn fold_call(function: Function, arguments: &[String], language: Language) -> String {
    let call = |a: &str, b: &str| match (function, language) {
        (Function::CeilDiv, Language::Cpp | Language::Python) => format!("ceil_div({a}, {b})"),
        (Function::CeilDiv, Language::Rust) => format!("ceil_div({a}, {b})?"),
        (Function::Min, Language::Cpp) => format!("std::min<int64_t>({a}, {b})"),
        (Function::Max, Language::Cpp) => format!("std::max<int64_t>({a}, {b})"),
        (Function::Min, Language::Rust) => format!("({a}).min({b})"),
        (Function::Max, Language::Rust) => format!("({a}).max({b})"),
        (Function::Min, Language::Python) => format!("min({a}, {b})"),
        (Function::Max, Language::Python) => format!("max({a}, {b})"),
    };
    let mut result = arguments[0].clone();
    for argument in &arguments[1..] {
        result = call(&result, argument);
    }
    result
}

struct Parser<'a> {
    tokens: &'a [String],
    at: usize,
    names: &'a BTreeMap<String, String>,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&str> {
        self.tokens.get(self.at).map(String::as_str)
    }

    fn eat(&mut self, token: &str) -> bool {
        let found = self.peek() == Some(token);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, token: &str) -> Result<(), String> {
        if self.eat(token) {
            return Ok(());
        }
        Err(format!(
            "expected `{token}`, found `{}`",
            self.peek().unwrap_or("the end")
        ))
    }

    fn ternary(&mut self) -> Result<Formula, String> {
        let then = self.level(0)?.numeric()?;
        if !self.eat("if") {
            return Ok(then);
        }
        let condition = self.level(0)?.numeric()?;
        self.expect("else")?;
        let otherwise = self.ternary()?;
        if let Formula::Number(known) = &condition {
            return Ok(if known == "0" { otherwise } else { then });
        }
        Ok(Formula::Choice {
            condition: condition.into(),
            then: then.into(),
            otherwise: otherwise.into(),
        })
    }

    /// Binary operators by rising precedence; the comparisons' level does not chain.
    fn level(&mut self, level: usize) -> Result<Formula, String> {
        const LEVELS: [&[(&str, Operator)]; 5] = [
            &[("or", Operator::Or)],
            &[("and", Operator::And)],
            &[
                ("<", Operator::Less),
                ("<=", Operator::LessEqual),
                (">", Operator::Greater),
                (">=", Operator::GreaterEqual),
                ("==", Operator::Equal),
                ("!=", Operator::NotEqual),
            ],
            &[("+", Operator::Add), ("-", Operator::Subtract)],
            &[
                ("*", Operator::Multiply),
                ("//", Operator::FloorDivide),
                ("%", Operator::Remainder),
            ],
        ];
        let Some(operators) = LEVELS.get(level) else {
            return self.unary();
        };
        if level == 2 && self.eat("not") {
            return Ok(Formula::Not(self.level(level)?.numeric()?.into()));
        }
        let mut left = self.level(level + 1)?;
        let mut compared = false;
        while let Some((_, operator)) = operators
            .iter()
            .find(|(token, _)| self.peek() == Some(token))
        {
            if compared {
                return Err("chained comparisons".into());
            }
            compared = operator.is_comparison();
            self.at += 1;
            let right = self.level(level + 1)?;
            left = match (left, right, operator) {
                (Formula::Text(left), Formula::Text(right), Operator::Equal) => {
                    Formula::Number(u8::from(left == right).to_string())
                }
                (Formula::Text(left), Formula::Text(right), Operator::NotEqual) => {
                    Formula::Number(u8::from(left != right).to_string())
                }
                (left, right, operator) => {
                    let (left, right) = (left.numeric()?, right.numeric()?);
                    Formula::Binary(*operator, left.into(), right.into())
                }
            };
        }
        Ok(left)
    }

    fn unary(&mut self) -> Result<Formula, String> {
        if self.eat("-") {
            return Ok(Formula::Negate(self.unary()?.numeric()?.into()));
        }
        let Some(token) = self.peek().map(str::to_owned) else {
            return Err("it ends too early".into());
        };
        self.at += 1;
        if token == "(" {
            let inner = self.ternary()?;
            self.expect(")")?;
            return Ok(inner);
        }
        if token.bytes().all(|byte| byte.is_ascii_digit()) {
            return Ok(Formula::Number(token));
        }
        if let Some(text) = token.strip_prefix('"') {
            return Ok(Formula::Text(text.to_owned()));
        }
        if !token.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            return Err(format!("unexpected `{token}`"));
        }
        if KEYWORDS.contains(&token.as_str()) {
            return Err(format!("no counterpart of `{token}`"));
        }
        if !self.eat("(") {
            return match self.names.get(&token) {
                Some(name) => Ok(Formula::Name(name.clone())),
                None => Err(format!(
                    "`{token}` is neither a size of the task nor a fact of the device"
                )),
            };
        }
        let function = match token.as_str() {
            "ceil_div" => Function::CeilDiv,
            "min" => Function::Min,
            "max" => Function::Max,
            _ => return Err(format!("no counterpart of the function `{token}`")),
        };
        let mut arguments = vec![self.ternary()?];
        while self.eat(",") {
            arguments.push(self.ternary()?);
        }
        self.expect(")")?;
        if function == Function::CeilDiv && arguments.len() != 2 {
            return Err("ceil_div takes two arguments".into());
        }
        Ok(Formula::Call(function, arguments))
    }
}

fn tokens(text: &str) -> Result<Vec<String>, String> {
    const DOUBLE: [&str; 5] = ["//", "<=", ">=", "==", "!="];
    let mut tokens = Vec::new();
    let mut rest = text.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if first.is_ascii_alphanumeric() || first == '_' {
            rest.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
                .unwrap_or(rest.len())
        } else if DOUBLE.iter().any(|double| rest.starts_with(double)) {
            2
        } else if "+-*%()<>,".contains(first) {
            1
        } else if first == '"' {
            // Texts come from knobs and hold no quotes; the closing one is dropped.
            let end = rest[1..]
                .find('"')
                .ok_or("a text without its closing quote")?;
            tokens.push(rest[..=end].to_owned());
            rest = rest[end + 2..].trim_start();
            continue;
        } else if first == '/' {
            return Err("`/` gives a float; `//` divides integers".into());
        } else {
            return Err(format!("no counterpart of `{first}`"));
        };
        let (token, after) = rest.split_at(length);
        if token.starts_with(|c: char| c.is_ascii_digit())
            && !token.bytes().all(|byte| byte.is_ascii_digit())
        {
            return Err(format!("`{token}` is no integer"));
        }
        tokens.push(token.to_owned());
        rest = after.trim_start();
    }
    Ok(tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> BTreeMap<String, String> {
        ["n", "m", "a", "b", "sm_count", "in_"]
            .map(|name| (name.trim_end_matches('_').to_owned(), name.to_owned()))
            .into()
    }

    #[test]
    fn each_language_gets_its_own_spelling() {
        let cases = [
            (
                "ceil_div(n, 1024)",
                "ceil_div(n, INT64_C(1024))",
                "ceil_div(n, 1024_i64)?",
                "ceil_div(n, 1024)",
            ),
            (
                "min(n // 4, sm_count*2, 8)",
                "std::min<int64_t>(std::min<int64_t>(floor_div(n, INT64_C(4)), (sm_count * INT64_C(2))), INT64_C(8))",
                "((floor_div(n, 4_i64)?).min((sm_count * 2_i64))).min(8_i64)",
                "min(min(floor_div(n, 4), (sm_count * 2)), 8)",
            ),
            (
                "a if n > 3 and m else -b % 2",
                "((int64_t(n > INT64_C(3)) != 0 ? m : INT64_C(0)) != 0 ? a : floor_mod((-b), INT64_C(2)))",
                "(if (if i64::from(n > 3_i64) != 0 { m } else { 0_i64 }) != 0 { a } else { floor_mod((-b), 2_i64)? })",
                "(a if (int(n > 3) and m) != 0 else floor_mod((-b), 2))",
            ),
            (
                "not n",
                "int64_t(n == 0)",
                "i64::from(n == 0)",
                "int(n == 0)",
            ),
            (
                "2 ** 10 if 'ca' == 'ca' else 1",
                "INT64_C(1024)",
                "1024_i64",
                "1024",
            ),
            ("3 - 7", "(-INT64_C(4))", "(-4_i64)", "(-4)"),
        ];
        for (expression, cpp, rust, python) in cases {
            let translate = |language| translate(expression, language, &names());
            assert_eq!(translate(Language::Cpp).as_deref(), Ok(cpp));
            assert_eq!(translate(Language::Rust).as_deref(), Ok(rust));
            assert_eq!(translate(Language::Python).as_deref(), Ok(python));
        }
    }

    /// Text knobs are known when a loader is written; nothing of them is left in it.
    #[test]
    fn comparisons_of_texts_are_decided() {
        for (expression, rust) in [
            ("n if \"row\"==\"row\" else m", "n"),
            ("n if \"row\"!=\"row\" else m", "m"),
            ("(n)if\"column\"==\"row\"else(m)", "m"),
        ] {
            assert_eq!(
                translate(expression, Language::Rust, &names()).as_deref(),
                Ok(rust)
            );
        }
    }

    #[test]
    fn what_has_no_counterpart_is_refused() {
        for (expression, why) in [
            ("n / 2", "`/` gives a float"),
            ("log2(n)", "function `log2`"),
            ("n + \"row\"", "the text \"row\""),
            ("n if \"row\" else m", "the text \"row\""),
            ("n if \"row == 1 else m", "end of string"),
            ("a < b < n", "chained"),
            ("(n", "expected"),
            ("n 3", "unexpected"),
            ("n + 1.5", "`.`"),
            ("1.5", "no integer"),
            ("other + 1", "neither a size"),
            ("n + true", "counterpart of `true`"),
            ("", "wanted"),
        ] {
            let error = translate(expression, Language::Rust, &names()).expect_err(expression);
            assert!(error.message.contains(why), "{expression}: {error}");
        }
    }
}
