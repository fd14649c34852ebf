//! The `//@` lines at the top of a source: knobs, derived values, requirements, register cap, workspaces,
//! tensor maps and launches. Reading them gives everything a candidate's host side needs; nothing below the
//! header is looked at, and nothing is evaluated that needs a problem size.

use std::ops::Range;

use super::error::{Finding, Place};
use super::knob::{Knob, KnobValue, Setting};
use super::plan::DType;
use super::scan::{Cursor, Field};
use super::space::Require;
use crate::expr::{Expr, FUNCTIONS, KEYWORDS};

/// What the header says.
#[derive(Clone, Debug, Default)]
pub(super) struct Header {
    pub(super) about: Vec<String>,
    pub(super) knobs: Vec<Knob>,
    /// In the order of their definition.
    pub(super) lets: Vec<Let>,
    pub(super) requires: Vec<Require>,
    pub(super) tries: Vec<Placed<Setting>>,
    pub(super) maxnreg: Option<Placed<Expr>>,
    pub(super) workspaces: Vec<WorkspaceLine>,
    pub(super) tensor_maps: Vec<TensorMapLine>,
    pub(super) launches: Vec<LaunchLine>,
}

/// Something and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Placed<T> {
    pub(super) value: T,
    pub(super) place: Place,
}

/// `//@ let TILE = BM*BK`
#[derive(Clone, Debug)]
pub(super) struct Let {
    pub(super) name: String,
    pub(super) value: Placed<Expr>,
    /// It depends, through whatever other values, on a name that is known at launch only.
    pub(super) at_launch: bool,
}

/// `//@ workspace partial f32[ceil_div(n, BLOCK)] zero`
#[derive(Clone, Debug)]
pub(super) struct WorkspaceLine {
    pub(super) name: String,
    pub(super) dtype: DType,
    pub(super) elements: Placed<Expr>,
    pub(super) zero: bool,
}

/// `//@ tensormap mapA base=a dtype=bf16 dims=(K, M) strides=(K*2) box=(64, BM) swizzle=128`
#[derive(Clone, Debug)]
pub(super) struct TensorMapLine {
    pub(super) name: Placed<String>,
    pub(super) base: String,
    pub(super) dtype: DType,
    pub(super) dims: Vec<Placed<Expr>>,
    pub(super) strides: Vec<Placed<Expr>>,
    pub(super) tile: Vec<Placed<Expr>>,
    pub(super) swizzle: Option<Placed<Expr>>,
    pub(super) promotion: Option<Placed<Expr>>,
    pub(super) nan_fill: bool,
}

/// `//@ launch main grid=(gx, gy) block=(256) smem=BYTES args=(x, out, n)`
#[derive(Clone, Debug)]
pub(super) struct LaunchLine {
    pub(super) entry: Placed<String>,
    pub(super) grid: Vec<Placed<Expr>>,
    pub(super) block: Vec<Placed<Expr>>,
    pub(super) smem: Option<Placed<Expr>>,
    pub(super) cluster: Vec<Placed<Expr>>,
    pub(super) args: Vec<Placed<Expr>>,
}

/// The kinds of header line, for error messages.
const KINDS: &str = "about, knob, let, require, try, maxnreg, workspace, tensormap, launch";

/// Reads the header. Gives what could be read, the 1-based line on which the body begins (one past the end
/// where there is none), and everything that is wrong.
pub(super) fn parse(text: &str) -> (Header, u32, Vec<Finding>) {
    let mut header = Header::default();
    let mut findings = Vec::new();
    let mut body = None;
    let mut count = 0;
    for (number, line) in (1..).zip(text.lines()) {
        count = number;
        let trimmed = line.trim_start();
        let Some(rest) = trimmed.strip_prefix("//@") else {
            let comment = trimmed.starts_with("//") && !trimmed.starts_with("//%");
            if body.is_none() && !trimmed.is_empty() && !comment {
                body = Some(number);
            }
            continue;
        };
        let start = line.len() - rest.len();
        if body.is_some() {
            let place = Place {
                line: number,
                columns: start - 3..start,
            };
            findings.push(
                Finding::header(
                    place,
                    "a `//@` line below the first line of code is not read",
                )
                .help("move it to the top of the file"),
            );
            continue;
        }
        let mut cursor = Cursor::new(line, number, start);
        if let Err(finding) = header.line(&mut cursor) {
            findings.push(finding);
        }
    }
    header.resolve(&mut findings);
    (header, body.unwrap_or(count + 1), findings)
}

impl Header {
    /// The derived values that depend on knobs alone.
    pub(super) fn static_lets(&self) -> Vec<(String, Expr)> {
        self.lets
            .iter()
            .filter(|derived| !derived.at_launch)
            .map(|derived| (derived.name.clone(), derived.value.value.clone()))
            .collect()
    }

    /// Every name that holes and requirements may use.
    pub(super) fn static_names(&self) -> Vec<String> {
        let knobs = self.knobs.iter().map(|knob| knob.name.clone());
        knobs
            .chain(self.static_lets().into_iter().map(|(name, _)| name))
            .collect()
    }

    /// The derived value of this name that is known at launch only.
    pub(super) fn launch_let(&self, name: &str) -> Option<&Let> {
        self.lets
            .iter()
            .find(|derived| derived.at_launch && derived.name == name)
    }

    fn line(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Finding> {
        let kind = cursor.word(&format!("what kind of line this is: {KINDS}"))?;
        match kind.value.as_str() {
            "about" => {
                self.about.push(cursor.rest().trim().to_owned());
                return Ok(());
            }
            "knob" => self.knob(cursor)?,
            "let" => self.derived(cursor)?,
            "require" => self.require(cursor)?,
            "try" => self.try_early(cursor, kind.place)?,
            "maxnreg" => self.maxnreg(cursor, kind.place)?,
            "workspace" => self.workspace(cursor)?,
            "tensormap" => self.tensor_map(cursor)?,
            "launch" => self.launch(cursor)?,
            other => {
                let message = format!("`{other}` is no kind of header line");
                return Err(Finding::header(kind.place, message).help(format!("kinds: {KINDS}")));
            }
        }
        Ok(())
    }

    /// `BM = 64 in {32, 64, 128}`
    fn knob(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Finding> {
        cursor.cut_comment();
        let name = self.new_name(cursor, "the knob's name")?;
        cursor.expect('=')?;
        let default = cursor.literal("the default value")?;
        let keyword = cursor.word("`in` and the values")?;
        if keyword.value != "in" {
            return Err(Finding::header(
                keyword.place,
                "`in {…}` must follow the default",
            ));
        }
        cursor.expect('{')?;
        let mut values: Vec<KnobValue> = Vec::new();
        loop {
            let value = cursor.literal("a value")?;
            if values.contains(&value.value) {
                let message = format!("{} is listed twice", value.value);
                return Err(Finding::header(value.place, message));
            }
            values.push(value.value);
            if cursor.eat('}') {
                break;
            }
            cursor.expect(',')?;
        }
        cursor.end()?;
        let Some(index) = values.iter().position(|value| *value == default.value) else {
            let message = format!("the default {} is none of the values", default.value);
            return Err(Finding::header(default.place, message));
        };
        let index = u16::try_from(index)
            .map_err(|_| Finding::header(name.place.clone(), "a knob has at most 65,535 values"))?;
        self.knobs.push(Knob {
            name: name.value,
            values,
            default: index,
        });
        Ok(())
    }

    /// `TILE = BM*BK`
    fn derived(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Finding> {
        cursor.cut_comment();
        let name = self.new_name(cursor, "the value's name")?;
        cursor.expect('=')?;
        let value = expression(cursor.rest_placed())?;
        self.lets.push(Let {
            name: name.value,
            value,
            at_launch: false,
        });
        Ok(())
    }

    /// `BM*BN <= 16384  # registers`
    fn require(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Finding> {
        let why = cursor.cut_comment();
        let line = cursor.line();
        let condition = expression(cursor.rest_placed())?;
        self.requires.push(Require {
            condition: condition.value,
            why,
            line: Some(line),
        });
        Ok(())
    }

    /// `BN=16 EPILOGUE=direct`
    fn try_early(&mut self, cursor: &mut Cursor<'_>, place: Place) -> Result<(), Finding> {
        cursor.cut_comment();
        let mut setting = Setting::new();
        while !cursor.is_at_end() {
            let name = cursor.word("a knob's name")?;
            cursor.expect('=')?;
            let value = cursor.literal("its value")?;
            if setting.insert(name.value.clone(), value.value).is_some() {
                let message = format!("`{}` has two values", name.value);
                return Err(Finding::header(name.place, message));
            }
        }
        if setting.is_empty() {
            return Err(Finding::header(place, "nothing to try").help("write KNOB=VALUE …"));
        }
        self.tries.push(Placed {
            value: setting,
            place,
        });
        Ok(())
    }

    fn maxnreg(&mut self, cursor: &mut Cursor<'_>, place: Place) -> Result<(), Finding> {
        cursor.cut_comment();
        if self.maxnreg.is_some() {
            return Err(Finding::header(
                place,
                "a second `maxnreg`; one cap holds for every entry",
            ));
        }
        self.maxnreg = Some(expression(cursor.rest_placed())?);
        Ok(())
    }

    /// `partial f32[n] zero`
    fn workspace(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Finding> {
        cursor.cut_comment();
        let name = self.new_name(cursor, "the workspace's name")?;
        let dtype = dtype(cursor.word("an element type")?)?;
        let elements = expression(cursor.bracketed('[', ']')?)?;
        let filled = cursor.word("`zero` or `poison`")?;
        let zero = match filled.value.as_str() {
            "zero" => true,
            "poison" => false,
            other => {
                let message = format!("`{other}` is not how a workspace begins");
                return Err(Finding::header(filled.place, message).help(
                    "`zero`: cleared before each call; `poison`: its contents are arbitrary",
                ));
            }
        };
        cursor.end()?;
        self.workspaces.push(WorkspaceLine {
            name: name.value,
            dtype,
            elements,
            zero,
        });
        Ok(())
    }

    fn tensor_map(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Finding> {
        cursor.cut_comment();
        let name = self.new_name(cursor, "the tensor map's name")?;
        let mut fields = Fields::read(
            cursor,
            &[
                "base",
                "dtype",
                "dims",
                "strides",
                "box",
                "swizzle",
                "promotion",
                "fill",
            ],
        )?;
        let base = fields.name("base")?;
        let dtype = dtype(fields.name("dtype")?)?;
        let dims = fields.list("dims")?;
        let strides = fields.optional_list("strides")?;
        let tile = fields.list("box")?;
        let swizzle = fields.optional("swizzle")?;
        let promotion = fields.optional("promotion")?;
        let nan_fill = match fields.optional_name("fill")? {
            None => false,
            Some(fill) => match fill.value.as_str() {
                "zero" => false,
                "nan" => true,
                other => {
                    let message = format!("`{other}` is no fill; `zero` or `nan`");
                    return Err(Finding::header(fill.place, message));
                }
            },
        };
        let rank = dims.len();
        if rank > 5 {
            return Err(Finding::header(
                name.place,
                format!("{rank} dims; at most 5 are possible"),
            ));
        }
        if tile.len() != rank || strides.len() + 1 != rank {
            let message = format!(
                "{rank} dims want {rank} box sizes and {} strides (of all dims but the innermost); \
                 there are {} and {}",
                rank - 1,
                tile.len(),
                strides.len()
            );
            return Err(Finding::header(name.place, message));
        }
        self.tensor_maps.push(TensorMapLine {
            name,
            base: base.value,
            dtype,
            dims,
            strides,
            tile,
            swizzle,
            promotion,
            nan_fill,
        });
        Ok(())
    }

    fn launch(&mut self, cursor: &mut Cursor<'_>) -> Result<(), Finding> {
        cursor.cut_comment();
        let entry = cursor.symbol("the entry's name")?;
        let mut fields = Fields::read(cursor, &["grid", "block", "smem", "cluster", "args"])?;
        let launch = LaunchLine {
            grid: fields.extents("grid")?,
            block: fields.extents("block")?,
            smem: fields.optional("smem")?,
            cluster: if fields.has("cluster") {
                fields.extents("cluster")?
            } else {
                Vec::new()
            },
            args: fields.optional_list("args")?,
            entry,
        };
        self.launches.push(launch);
        Ok(())
    }

    /// Reads a name that nothing else has.
    fn new_name(&self, cursor: &mut Cursor<'_>, wanted: &str) -> Result<Placed<String>, Finding> {
        let name = cursor.word(wanted)?;
        let text = name.value.as_str();
        if KEYWORDS.contains(&text) || FUNCTIONS.contains(&text) || text == "range" {
            let message = format!("`{text}` is a word of the expression language, not a name");
            return Err(Finding::header(name.place, message));
        }
        let taken = self.knobs.iter().any(|knob| knob.name == text)
            || self.lets.iter().any(|derived| derived.name == text)
            || self
                .workspaces
                .iter()
                .any(|workspace| workspace.name == text)
            || self.tensor_maps.iter().any(|map| map.name.value == text);
        if taken {
            let message = format!("`{text}` is declared twice");
            return Err(Finding::header(name.place, message));
        }
        Ok(name)
    }

    /// What only the whole header can tell: which derived values wait for the launch.
    fn resolve(&mut self, findings: &mut Vec<Finding>) {
        for index in 0..self.lets.len() {
            let (before, after) = self.lets.split_at(index);
            let (own, _) = after.split_first().expect("invariant: index is in range");
            let mut at_launch = false;
            for name in own.value.value.names() {
                if self.knobs.iter().any(|knob| knob.name == name) {
                    continue;
                }
                if let Some(derived) = before.iter().find(|derived| derived.name == name) {
                    at_launch |= derived.at_launch;
                    continue;
                }
                at_launch = true;
                if let Some(derived) = after.iter().find(|derived| derived.name == name) {
                    let line = derived.value.place.line;
                    let message =
                        format!("`{name}` is defined on line {line}, not before this line");
                    findings.push(Finding::header(own.value.place.clone(), message));
                }
            }
            self.lets[index].at_launch = at_launch;
        }
    }
}

/// Compiles an expression.
fn expression(text: Placed<String>) -> Result<Placed<Expr>, Finding> {
    match Expr::new(&text.value) {
        Ok(value) => Ok(Placed {
            value,
            place: text.place,
        }),
        Err(error) => Err(Finding::expression(&text.place, error)),
    }
}

fn dtype(word: Placed<String>) -> Result<DType, Finding> {
    DType::ALL
        .into_iter()
        .find(|dtype| dtype.word() == word.value)
        .ok_or_else(|| {
            Finding::header(word.place, format!("`{}` is no element type", word.value))
                .help(format!("types: {}", DType::ALL.map(DType::word).join(", ")))
        })
}

/// `key=value` fields of a line, each value an expression or a list in parentheses.
struct Fields {
    line: Place,
    values: Vec<Field>,
}

impl Fields {
    fn read(cursor: &mut Cursor<'_>, keys: &[&str]) -> Result<Self, Finding> {
        let line = cursor.whole_line();
        let mut values: Vec<Field> = Vec::new();
        while let Some(Field { key, value }) = cursor.field()? {
            if !keys.contains(&key.value.as_str()) {
                let message = format!("`{}` is no key of this line", key.value);
                return Err(
                    Finding::header(key.place, message).help(format!("keys: {}", keys.join(", ")))
                );
            }
            if values.iter().any(|known| known.key.value == key.value) {
                let message = format!("`{}` is given twice", key.value);
                return Err(Finding::header(key.place, message));
            }
            values.push(Field { key, value });
        }
        Ok(Self { line, values })
    }

    fn has(&self, key: &str) -> bool {
        self.values.iter().any(|field| field.key.value == key)
    }

    fn take(&mut self, key: &str) -> Option<Placed<String>> {
        let index = self
            .values
            .iter()
            .position(|field| field.key.value == key)?;
        Some(self.values.remove(index).value)
    }

    fn required(&mut self, key: &str) -> Result<Placed<String>, Finding> {
        self.take(key)
            .ok_or_else(|| Finding::header(self.line.clone(), format!("`{key}=` is missing")))
    }

    fn name(&mut self, key: &str) -> Result<Placed<String>, Finding> {
        let value = self.required(key)?;
        is_name(value, key)
    }

    fn optional_name(&mut self, key: &str) -> Result<Option<Placed<String>>, Finding> {
        self.take(key).map(|value| is_name(value, key)).transpose()
    }

    fn optional(&mut self, key: &str) -> Result<Option<Placed<Expr>>, Finding> {
        self.take(key).map(expression).transpose()
    }

    fn list(&mut self, key: &str) -> Result<Vec<Placed<Expr>>, Finding> {
        let value = self.required(key)?;
        let place = value.place.clone();
        let items = items(value)?;
        if items.is_empty() {
            return Err(Finding::header(
                place,
                format!("`{key}` wants at least one value"),
            ));
        }
        Ok(items)
    }

    fn optional_list(&mut self, key: &str) -> Result<Vec<Placed<Expr>>, Finding> {
        self.take(key).map_or_else(|| Ok(Vec::new()), items)
    }

    /// One to three sizes.
    fn extents(&mut self, key: &str) -> Result<Vec<Placed<Expr>>, Finding> {
        let items = self.list(key)?;
        match items.get(3) {
            Some(extra) => Err(Finding::header(
                extra.place.clone(),
                format!("`{key}` has three dimensions at most"),
            )),
            None => Ok(items),
        }
    }
}

fn is_name(value: Placed<String>, key: &str) -> Result<Placed<String>, Finding> {
    let named = value
        .value
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if named && !value.value.is_empty() {
        return Ok(value);
    }
    Err(Finding::header(
        value.place,
        format!("`{key}` wants a name"),
    ))
}

/// The items of `(a, b, c)`; a text that is not one parenthesis is a single item.
fn items(value: Placed<String>) -> Result<Vec<Placed<Expr>>, Finding> {
    let text = value.value.as_str();
    let part = |range: Range<usize>| {
        let raw = &text[range.clone()];
        let start = value.place.columns.start + range.start + raw.len() - raw.trim_start().len();
        Placed {
            value: raw.trim().to_owned(),
            place: Place {
                line: value.place.line,
                columns: start..start + raw.trim().len(),
            },
        }
    };
    let mut depth = 0usize;
    let mut quote = None;
    let mut cuts = vec![0];
    let mut closed = None;
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') => {
                depth = depth.saturating_sub(1);
                if depth == 0 && closed.is_none() {
                    closed = Some(at);
                }
            }
            (None, ',') if depth == 1 && closed.is_none() => cuts.push(at),
            (None, _) => {}
        }
    }
    if !text.starts_with('(') || closed != Some(text.len() - 1) {
        return Ok(vec![expression(part(0..text.len()))?]);
    }
    if text[1..text.len() - 1].trim().is_empty() {
        return Ok(Vec::new());
    }
    cuts.push(text.len() - 1);
    cuts.windows(2)
        .map(|cut| expression(part(cut[0] + 1..cut[1])))
        .collect()
}
