//! From what a model wrote to what it wants changed. A reply is judged by its form alone here: no task, no
//! source. Nothing in it is ever a command, a path or an address; it is text that will be edited text.

use serde_json::Value;

use super::fence::{Block, shape, without_thinking};
use super::hunks;
use crate::llm::{ChatReply, Finish};
use crate::ptx::edit::Hunk;

/// What a model wants.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Wish {
    /// Its plan in one line.
    pub(super) title: Option<String>,
    /// What it says besides the edit.
    pub(super) prose: String,
    /// A change of the source.
    pub(super) change: Option<Change>,
    /// Knob settings to try first, as written: name and value pairs.
    pub(super) settings: Vec<Vec<(String, Value)>>,
}

/// A change of the source.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Change {
    /// Replace these pieces.
    Hunks(Vec<Hunk>),
    /// Apply this unified diff.
    Diff(String),
    /// Replace everything.
    Whole(String),
}

/// Why a reply cannot be used. The message goes into the next prompt.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unusable {
    /// No text at all.
    #[error("the reply was empty; answer with an analysis, a plan and one edit")]
    Empty,
    /// Nothing outside the thinking.
    #[error("the reply held only thinking and no answer; think less and end with one edit")]
    ThinkingOnly,
    /// The model or a filter refused.
    #[error("the reply was a refusal ({0}); this is ordinary performance work on a compute kernel")]
    Refused(String),
    /// Cut off by the length limit.
    #[error(
        "the reply was cut off by the length limit before its edit was complete; write a shorter analysis and \
         prefer hunks to the whole source"
    )]
    Truncated,
    /// Prose, or fragments, but nothing to apply.
    #[error("the reply held no edit: {0}")]
    NoEdit(String),
    /// The edit is there but cannot be applied.
    #[error("the edit cannot be applied: {0}")]
    Inapplicable(String),
    /// The edit applies, but may not be made.
    #[error("the edit is not allowed: {0}")]
    Illegal(String),
}

impl Unusable {
    /// Whether asking the model to correct its reply makes sense.
    pub(super) fn can_be_corrected(&self) -> bool {
        match self {
            Self::Refused(_) => false,
            Self::Empty
            | Self::ThinkingOnly
            | Self::Truncated
            | Self::NoEdit(_)
            | Self::Inapplicable(_)
            | Self::Illegal(_) => true,
        }
    }
}

/// Reads a reply. Of several edits the last complete one is meant; hunks spread over several blocks belong
/// together; settings may stand beside a change.
pub(super) fn read(reply: &ChatReply) -> Result<Wish, Unusable> {
    if reply.finish == Finish::Refused {
        return Err(Unusable::Refused(one_line(&reply.text, 200)));
    }
    if reply.text.trim().is_empty() {
        return Err(match reply.finish {
            Finish::Length => Unusable::Truncated,
            Finish::Stop | Finish::Refused | Finish::Other(_) => Unusable::Empty,
        });
    }
    let text = without_thinking(&reply.text).ok_or(match reply.finish {
        Finish::Length => Unusable::Truncated,
        Finish::Stop | Finish::Refused | Finish::Other(_) => Unusable::ThinkingOnly,
    })?;
    let cut = reply.finish == Finish::Length;
    if let Some(wish) = structured(&text) {
        return Ok(wish);
    }
    let shape = shape(&text);
    let mut kinds: Vec<(Kind, &Block)> = shape
        .blocks
        .iter()
        .map(|block| (Kind::of(block), block))
        .collect();
    if let Some((kind, block)) = kinds.last()
        && !block.closed
        && *kind != Kind::Other
    {
        if cut {
            return Err(Unusable::Truncated);
        }
        // Its end was forgotten, or it was given up. Where it is whole it is the last word.
        let earlier = kinds.iter().any(|(k, b)| b.closed && *k != Kind::Other);
        if earlier && !is_whole(*kind, &block.text) {
            kinds.pop();
        }
    }
    let wish = Wish {
        title: title(&shape.prose),
        prose: shape.prose.trim().to_owned(),
        change: change(&kinds)?,
        settings: settings(&kinds)?,
    };
    if wish.change.is_some() || !wish.settings.is_empty() {
        return Ok(wish);
    }
    if cut {
        return Err(Unusable::Truncated);
    }
    unfenced(&text, wish, &shape.blocks)
}

/// A reply that was held to the schema of a knob change: one JSON object and nothing else.
fn structured(text: &str) -> Option<Wish> {
    let value: Value = serde_json::from_str(text.trim()).ok()?;
    let object = value
        .as_object()
        .filter(|object| object.contains_key("settings"))?;
    let word = |name: &str| {
        object
            .get(name)
            .and_then(Value::as_str)
            .unwrap_or("")
            .trim()
    };
    let (analysis, plan) = (word("analysis"), word("plan"));
    let settings = settings_of(&value);
    (!settings.is_empty()).then(|| Wish {
        title: Some(one_line(plan, 80)).filter(|plan| !plan.is_empty()),
        prose: format!("{analysis}\n\n{plan}").trim().to_owned(),
        change: None,
        settings,
    })
}

/// One line of at most `longest` characters, printable.
pub(super) fn one_line(text: &str, longest: usize) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line: String = words
        .join(" ")
        .chars()
        .filter(|c| !c.is_control())
        .collect();
    match line.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", line[..end].trim_end()),
        None => line,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    SearchReplace,
    Diff,
    Whole,
    Json,
    Other,
}

impl Kind {
    fn of(block: &Block) -> Self {
        let text = block.text.trim_start();
        let named_diff = matches!(block.language.as_str(), "diff" | "patch");
        if hunks::has_search_marker(text) {
            Self::SearchReplace
        } else if hunks::is_diff(text) || (named_diff && hunks::has_changes(text)) {
            Self::Diff
        } else if block.language.starts_with("json")
            || (text.starts_with(['{', '[']) && lenient_json(text).is_some())
        {
            Self::Json
        } else if is_module(text) {
            Self::Whole
        } else {
            Self::Other
        }
    }
}

fn is_module(text: &str) -> bool {
    text.contains(".entry") && text.contains('{')
}

/// Whether an unclosed block looks finished.
fn is_whole(kind: Kind, text: &str) -> bool {
    match kind {
        Kind::SearchReplace => {
            let last = text.lines().rev().find(|line| !line.trim().is_empty());
            last.is_some_and(|line| line.trim_start().starts_with(">>>>>"))
        }
        Kind::Diff => true,
        Kind::Whole => text.trim_end().ends_with('}') && balanced(text),
        Kind::Json => lenient_json(text).is_some(),
        Kind::Other => false,
    }
}

fn balanced(text: &str) -> bool {
    text.matches('{').count() == text.matches('}').count()
}

/// The last change, hunks of several blocks taken together.
fn change(kinds: &[(Kind, &Block)]) -> Result<Option<Change>, Unusable> {
    let is_change = |kind: &Kind| matches!(kind, Kind::SearchReplace | Kind::Diff | Kind::Whole);
    let Some((last, block)) = kinds.iter().rev().find(|(kind, _)| is_change(kind)) else {
        return Ok(None);
    };
    match last {
        Kind::Whole => {
            let text = hunks::strip_line_numbers(&block.text).unwrap_or_else(|| block.text.clone());
            Ok(Some(Change::Whole(text)))
        }
        Kind::Diff => Ok(Some(Change::Diff(all_of(kinds, Kind::Diff, |text| {
            hunks::plain_diff(text)
        })))),
        Kind::SearchReplace | Kind::Json | Kind::Other => {
            let text = all_of(kinds, Kind::SearchReplace, str::to_owned);
            let found = hunks::search_replace(&text).map_err(Unusable::Inapplicable)?;
            Ok(Some(Change::Hunks(latest(found))))
        }
    }
}

/// The blocks of one kind as one text.
fn all_of(kinds: &[(Kind, &Block)], wanted: Kind, text: impl Fn(&str) -> String) -> String {
    let blocks = kinds.iter().filter(|(kind, _)| *kind == wanted);
    blocks.map(|(_, block)| text(&block.text)).collect()
}

/// A draft and its correction name the same place: the later one is meant.
fn latest(hunks: Vec<Hunk>) -> Vec<Hunk> {
    let mut kept: Vec<Hunk> = Vec::with_capacity(hunks.len());
    for hunk in hunks {
        kept.retain(|earlier| earlier.search.trim() != hunk.search.trim());
        kept.push(hunk);
    }
    kept
}

fn settings(kinds: &[(Kind, &Block)]) -> Result<Vec<Vec<(String, Value)>>, Unusable> {
    let json = kinds.iter().rev().filter(|(kind, _)| *kind == Kind::Json);
    let mut broken = None;
    for (_, block) in json {
        match lenient_json(&block.text) {
            Some(value) => {
                let found = settings_of(&value);
                if !found.is_empty() {
                    return Ok(found);
                }
            }
            None => broken = Some(one_line(&block.text, 120)),
        }
    }
    let only = kinds
        .iter()
        .all(|(kind, _)| matches!(kind, Kind::Json | Kind::Other));
    match broken {
        Some(text) if only => Err(Unusable::Inapplicable(format!(
            "the JSON block is not valid JSON (`{text}`); write {{\"settings\": [{{\"KNOB\": VALUE}}]}}"
        ))),
        Some(_) | None => Ok(Vec::new()),
    }
}

/// `{"settings": [{…}]}`, `{"settings": {…}}`, `[{…}]` or `{…}`; only objects of plain values count.
fn settings_of(value: &Value) -> Vec<Vec<(String, Value)>> {
    let plain = |value: &Value| -> Option<Vec<(String, Value)>> {
        let object = value.as_object()?;
        let pairs: Vec<_> = object.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        let scalars = pairs
            .iter()
            .all(|(_, v)| !v.is_object() && !v.is_array() && !v.is_null());
        (scalars && !pairs.is_empty()).then_some(pairs)
    };
    let inner = ["settings", "setting", "knobs"]
        .iter()
        .find_map(|key| value.get(*key))
        .unwrap_or(value);
    match inner {
        Value::Array(list) => list.iter().filter_map(plain).collect(),
        Value::Object(_) => plain(inner).into_iter().collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

/// The reply has no fenced edit: perhaps it has one without fences.
fn unfenced(text: &str, mut wish: Wish, blocks: &[Block]) -> Result<Wish, Unusable> {
    if hunks::has_search_marker(text) {
        let found = hunks::search_replace(text).map_err(Unusable::Inapplicable)?;
        wish.change = Some(Change::Hunks(latest(found)));
        return Ok(wish);
    }
    if text.lines().any(|line| line.starts_with("@@")) && hunks::is_diff(text) {
        let from = text
            .lines()
            .skip_while(|line| !line.starts_with("@@"))
            .collect::<Vec<_>>()
            .join("\n");
        wish.change = Some(Change::Diff(hunks::plain_diff(&from)));
        return Ok(wish);
    }
    if is_module(text) && (text.contains(".version") || text.contains("//@")) {
        // The sanitiser takes the prose off.
        wish.change = Some(Change::Whole(text.to_owned()));
        return Ok(wish);
    }
    if let Some(value) = last_object(text) {
        wish.settings = settings_of(&value);
        if !wish.settings.is_empty() {
            return Ok(wish);
        }
    }
    let fragment = blocks.iter().any(|block| block.text.contains(';'));
    Err(Unusable::NoEdit(if fragment {
        "its code block is a fragment; send search/replace hunks, or the whole source with its //@ header"
            .to_owned()
    } else {
        format!("it begins \"{}\"", one_line(text, 120))
    }))
}

/// The last `{…"settings"…}` in a text.
fn last_object(text: &str) -> Option<Value> {
    let key = text.rfind("\"settings\"")?;
    let start = text[..key].rfind('{')?;
    let mut depth = 0_usize;
    for (offset, byte) in text[start..].bytes().enumerate() {
        match byte {
            b'{' => depth += 1,
            b'}' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return lenient_json(&text[start..=start + offset]);
                }
            }
            _ => {}
        }
    }
    None
}

/// JSON as models write it: `//` comments and trailing commas are forgiven.
fn lenient_json(text: &str) -> Option<Value> {
    if let Ok(value) = serde_json::from_str(text) {
        return Some(value);
    }
    let mut out = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    let mut in_string = false;
    while let Some(c) = chars.next() {
        match c {
            '\\' if in_string => {
                out.push(c);
                out.extend(chars.next());
            }
            '"' => {
                in_string = !in_string;
                out.push(c);
            }
            '/' if !in_string && chars.peek() == Some(&'/') => {
                while chars.peek().is_some_and(|c| *c != '\n') {
                    chars.next();
                }
            }
            '}' | ']' if !in_string => {
                let kept = out.trim_end();
                if let Some(before) = kept.strip_suffix(',') {
                    out.truncate(before.len());
                }
                out.push(c);
            }
            _ => out.push(c),
        }
    }
    serde_json::from_str(&out).ok()
}

/// The line after `Plan:`, else the first line under a heading `Plan`.
fn title(prose: &str) -> Option<String> {
    let bare = |line: &str| -> String {
        line.trim_start_matches(|c: char| "#*->_`".contains(c) || c.is_whitespace())
            .trim_start_matches(|c: char| c.is_ascii_digit() || c == '.' || c == ')' || c == ' ')
            .replace(['*', '`'], "")
            .trim()
            .to_owned()
    };
    let mut lines = prose.lines().map(bare);
    let after = lines.find_map(|line| {
        let head = line.get(..4)?;
        let rest = line[4..]
            .trim_start_matches([':', '-', '.', ' ', '—'])
            .to_owned();
        let ends = line[4..].is_empty() || line[4..].starts_with([':', ' ', '.', '-']);
        (head.eq_ignore_ascii_case("plan") && ends).then_some(rest)
    })?;
    let line = if after.is_empty() {
        lines.find(|line| !line.is_empty())?
    } else {
        after
    };
    Some(one_line(&line, 80))
}
