//! The body of a source: `${ expression }` holes and `//%` line statements, rendered with one setting.
//! Every rendered line knows the source line it came from, inside loops and macros too.
//! Work and output are bounded: a loop of a billion turns is an error.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, LazyLock};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Value as Raw, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State, UndefinedBehavior};

use super::error::{Finding, Place};
use super::header::Header;
use crate::expr::{FUNCTIONS, Value, add_functions, known_names, to_raw, words};

/// Instructions of the template engine that one rendering may take; 64 bytes of output cost one.
const FUEL: u64 = 4_000_000;

/// The longest rendering in bytes; ptxas takes minutes beyond.
const LONGEST: usize = 16 << 20;

/// Around the line number that is put before each line of the body and taken away after rendering.
const MARK: char = '\u{1}';

/// What holes may call besides [`FUNCTIONS`].
const EXTRA_FUNCTIONS: [&str; 3] = ["range", "vec", "regs"];

const TEMPLATE: &str = "source";

/// A compiled body.
#[derive(Clone)]
pub(super) struct Template {
    environment: Arc<Environment<'static>>,
    /// 1-based source line of the body's first line.
    first_line: u32,
}

/// A rendered body.
pub(super) struct Rendering {
    pub(super) text: String,
    /// The 1-based source line of each line.
    pub(super) lines: Vec<u32>,
}

impl Template {
    /// Compiles the lines of `text` from `first_line` on.
    pub(super) fn new(text: &str, first_line: u32, header: &Header) -> Result<Self, Vec<Finding>> {
        let mut findings = Vec::new();
        let mut marked = String::with_capacity(text.len() + text.len() / 4);
        let mut holes: Vec<(Place, &str)> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            if number < first_line {
                continue;
            }
            if let Some(column) = line.find(|c: char| c.is_control() && c != '\t') {
                findings.push(Finding::header(
                    place(number, column..column + 1),
                    "a control character",
                ));
                continue;
            }
            let trimmed = line.trim_start();
            if let Some(statement) = trimmed.strip_prefix("//%") {
                holes.push((
                    place(number, line.len() - statement.len()..line.len()),
                    line,
                ));
                marked.push_str(line);
            } else {
                let (ranges, unclosed) = find_holes(line);
                marked.push_str(&format!("{MARK}{number}{MARK}"));
                let mut from = 0;
                for range in ranges {
                    // The spaces keep `${-N}` from being read as a trim mark.
                    marked.push_str(&line[from..range.start]);
                    marked.push(' ');
                    marked.push_str(&line[range.clone()]);
                    marked.push(' ');
                    from = range.end;
                    holes.push((place(number, range), line));
                }
                marked.push_str(&line[from..]);
                if let Some(column) = unclosed {
                    findings.push(
                        Finding::header(
                            place(number, column..line.trim_end().len()),
                            "this hole is not closed on its line",
                        )
                        .help("close it with `}`"),
                    );
                }
            }
            marked.push('\n');
        }
        if !findings.is_empty() {
            return Err(findings);
        }
        let mut environment = ENVIRONMENT.clone();
        environment
            .add_template_owned(TEMPLATE, marked)
            .map_err(|error| vec![explain(&error, first_line)])?;
        let template = Self {
            environment: Arc::new(environment),
            first_line,
        };
        template.check_names(header, &holes)?;
        Ok(template)
    }

    /// Renders with these values for knobs and derived values.
    pub(super) fn render(&self, values: &BTreeMap<String, Value>) -> Result<Rendering, Finding> {
        let context = Raw::from_pairs(
            values
                .iter()
                .map(|(name, value)| (name.as_str(), to_raw(value))),
        );
        let rendered = self
            .environment
            .get_template(TEMPLATE)
            .and_then(|template| template.render(context))
            .map_err(|error| explain(&error, self.first_line))?;
        if rendered.len() > LONGEST {
            return Err(Finding::at_line(
                "rendering",
                None,
                format!("the rendering is longer than {} MiB", LONGEST >> 20),
            )
            .help("unroll less"));
        }
        Ok(self.unmark(&rendered))
    }

    /// Takes the marks away. A line belongs to the last mark before its first character, so a macro's lines
    /// belong to the macro; white space before that mark and the empty rest of a macro's call go.
    fn unmark(&self, rendered: &str) -> Rendering {
        let mut text = String::with_capacity(rendered.len());
        let mut lines = Vec::new();
        let mut current = self.first_line;
        for line in rendered.lines() {
            let start = text.len();
            let mut own = None;
            for (index, part) in line.split(MARK).enumerate() {
                if index % 2 == 0 {
                    text.push_str(part);
                } else if let Ok(number) = part.parse::<u32>() {
                    current = number;
                    if text[start..].trim().is_empty() {
                        text.truncate(start);
                        own = Some(number);
                    }
                }
            }
            if own.is_none() && text[start..].trim().is_empty() {
                text.truncate(start);
                continue;
            }
            lines.push(own.unwrap_or(current));
            text.push('\n');
        }
        Rendering { text, lines }
    }

    /// Every name that a hole or statement uses must be a knob, a derived value that is known when
    /// rendering, or something the body defines itself.
    fn check_names(&self, header: &Header, holes: &[(Place, &str)]) -> Result<(), Vec<Finding>> {
        let used = self
            .environment
            .get_template(TEMPLATE)
            .map_err(|error| vec![explain(&error, self.first_line)])?
            .undeclared_variables(false);
        let known = header.static_names();
        let mut unknown: Vec<String> = used
            .into_iter()
            .filter(|name| !known.contains(name) && !is_function(name))
            .collect();
        unknown.sort();
        if unknown.is_empty() {
            return Ok(());
        }
        Err(unknown
            .iter()
            .map(|name| {
                let site = holes.iter().find_map(|(hole, line)| {
                    let inside = &line[hole.columns.clone()];
                    let word = words(inside).find(|word| inside[word.clone()] == **name)?;
                    let start = hole.columns.start + word.start;
                    Some(place(hole.line, start..start + name.len()))
                });
                let (message, help) = match header.launch_let(name) {
                    Some(derived) => (
                        format!("`{name}` is not known when rendering"),
                        format!(
                            "line {} defines it from what only a launch knows; pass it to the kernel \
                             as an argument",
                            derived.value.place.line
                        ),
                    ),
                    None => (
                        format!("unknown name `{name}`"),
                        known_names(name, &known),
                    ),
                };
                match site {
                    Some(site) => Finding::header(site, message),
                    None => Finding::at_line("template", None, message),
                }
                .help(help)
            })
            .collect())
    }
}

impl std::fmt::Debug for Template {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Template")
            .field("first_line", &self.first_line)
            .finish_non_exhaustive()
    }
}

static ENVIRONMENT: LazyLock<Environment<'static>> = LazyLock::new(|| {
    let mut environment = Environment::empty();
    // Blocks and comments get delimiters that cannot occur: `{%r1` and `{#` are PTX.
    let syntax = SyntaxConfig::builder()
        .variable_delimiters("${", "}")
        .block_delimiters("\u{2}[", "]\u{2}")
        .comment_delimiters("\u{3}[", "]\u{3}")
        .line_statement_prefix("//%")
        .keep_trailing_newline(true)
        .build()
        .expect("invariant: the delimiters differ");
    environment.set_syntax(syntax);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    environment.set_formatter(format_hole);
    add_functions(&mut environment);
    environment.add_function("range", minijinja::functions::range);
    environment.add_function("vec", vec);
    environment.add_function("regs", regs);
    environment.add_filter("f32hex", |value: f64| {
        format!("0f{:08X}", (value as f32).to_bits())
    });
    environment.add_filter("f64hex", |value: f64| format!("0d{:016X}", value.to_bits()));
    environment.add_filter("join", minijinja::filters::join);
    environment
});

/// Writes a hole's value: integers and text as they are, a condition as 1 or 0.
fn format_hole(out: &mut Output<'_>, _state: &mut State<'_, '_>, value: &Raw) -> Result<(), Error> {
    let refuse = |what: String| Err(Error::new(ErrorKind::BadSerialization, what));
    let written = match value.kind() {
        ValueKind::Undefined => return Ok(()),
        ValueKind::Bool => out.write_str(if value.is_true() { "1" } else { "0" }),
        ValueKind::Number if value.is_integer() => out.write_str(&value.to_string()),
        ValueKind::Number => {
            return refuse(format!(
                "a hole gives the float {value}; write `|f32hex` or `|f64hex` for a PTX literal, \
                 `//` for an integer division"
            ));
        }
        ValueKind::String => out.write_str(value.as_str().unwrap_or_default()),
        kind => return refuse(format!("a hole gives a {kind}, not a number or text")),
    };
    written.map_err(|error| {
        Error::new(ErrorKind::WriteFailure, "writing a hole's value failed").with_source(error)
    })
}

/// The modifier of a load or store of `width` elements: nothing, `.v2` or `.v4`.
fn vec(width: i64) -> Result<String, Error> {
    match width {
        1 => Ok(String::new()),
        2 | 4 | 8 => Ok(format!(".v{width}")),
        _ => Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("vec({width}): 1, 2, 4 or 8 is wanted"),
        )),
    }
}

/// The operand of such a load: `%a3`, or `{%a3, %a4}`.
fn regs(name: &str, first: i64, count: i64) -> Result<String, Error> {
    match count {
        1 => Ok(format!("{name}{first}")),
        2..=256 => {
            let names: Vec<String> = (0..count)
                .map(|i| first.saturating_add(i))
                .map(|i| format!("{name}{i}"))
                .collect();
            Ok(format!("{{{}}}", names.join(", ")))
        }
        _ => Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("regs({name:?}, {first}, {count}): 1 to 256 registers are wanted"),
        )),
    }
}

fn is_function(name: &str) -> bool {
    FUNCTIONS.contains(&name) || EXTRA_FUNCTIONS.contains(&name)
}

/// The inside of each `${ … }` on a line, and the column of one that is not closed.
fn find_holes(line: &str) -> (Vec<Range<usize>>, Option<usize>) {
    let mut holes = Vec::new();
    let mut from = 0;
    while let Some(found) = line[from..].find("${") {
        let open = from + found;
        let mut depth = 0usize;
        let mut quote = None;
        let mut close = None;
        for (offset, c) in line[open + 2..].char_indices() {
            match (quote, c) {
                (Some(open), _) if c == open => quote = None,
                (Some(_), _) => {}
                (None, '"' | '\'') => quote = Some(c),
                (None, '{') => depth += 1,
                (None, '}') if depth == 0 => {
                    close = Some(open + 2 + offset);
                    break;
                }
                (None, '}') => depth -= 1,
                (None, _) => {}
            }
        }
        let Some(close) = close else {
            return (holes, Some(open));
        };
        holes.push(open + 2..close);
        from = close + 1;
    }
    (holes, None)
}

fn explain(error: &Error, first_line: u32) -> Finding {
    let line = error.line().map(|line| line as u32 + first_line - 1);
    match error.kind() {
        ErrorKind::OutOfFuel => Finding::at_line(
            "rendering",
            line,
            "the rendering takes too long or grows too large".into(),
        )
        .help("a loop runs over too many values; unroll less"),
        kind => {
            let message = error
                .detail()
                .map_or_else(|| kind.to_string(), ToOwned::to_owned)
                .replace(MARK, "");
            Finding::at_line("template", line, message)
        }
    }
}

fn place(line: u32, columns: Range<usize>) -> Place {
    Place { line, columns }
}
