//! From what a model wants to a child source: the edit applied, the result read, its launches checked
//! against the task. An edit that could mean two things, or that touches what is not the model's to
//! change, is told back in one message and never guessed at.

use serde_json::Value;

use super::reply::{Change, Unusable, Wish, one_line};
use crate::propose::{Proposal, ProposalRequest, sample_names};
use crate::ptx::edit::{self, EditError};
use crate::ptx::ir::{Function, FunctionKind, Item, Module};
use crate::ptx::{self, Sanitised};
use crate::source::{Argument, KnobValue, LaunchPlan, Setting, Source, SourceError, SpaceError};
use crate::task::{Role, Task};
use crate::units::SmArch;

/// Settings that are tried first, at most.
const SETTINGS: usize = 8;
/// Bytes of an error that are told back: its first findings.
const TOLD: usize = 1500;
/// Bytes of rationale that are kept.
const RATIONALE: usize = 6000;

/// Applies a wish to the request's source. `arch` is the GPU's: what a missing `.target` becomes.
pub(super) fn apply(
    wish: Wish,
    request: &ProposalRequest<'_>,
    arch: SmArch,
) -> Result<Proposal, Unusable> {
    let parent = request.source;
    let (text, fixes) = match &wish.change {
        None => (parent.text.to_string(), Vec::new()),
        Some(change) => changed(change, &parent.text, arch)?,
    };
    let child = if text == *parent.text {
        None
    } else {
        Some(read(&text, request.task)?)
    };
    let source = child.as_ref().unwrap_or(parent);
    let (mut settings, complaints) = settings(&wish.settings, source, request);
    if child.is_none() {
        settings.retain(|setting| Some(setting) != request.setting.as_ref());
        if settings.is_empty() {
            return Err(Unusable::Inapplicable(if complaints.is_empty() {
                "it changes nothing".to_owned()
            } else {
                complaints.join("; ")
            }));
        }
    } else if let Some(carried) = carried(source, request) {
        // An edit is judged where its parent was good, not at the default alone.
        settings.push(carried);
        dedup(&mut settings);
    }
    settings.truncate(SETTINGS);
    let mut rationale = wish.prose;
    for (head, notes) in [("Mended on arrival", &fixes), ("Left out", &complaints)] {
        if !notes.is_empty() {
            rationale.push_str(&format!("\n\n{head}: {}.", notes.join("; ")));
        }
    }
    Ok(Proposal {
        label: label(wish.title, child.is_some(), &settings),
        text: text.into(),
        settings,
        rationale: Some(cut(rationale.trim(), RATIONALE)).filter(|text| !text.is_empty()),
    })
}

/// The changed text, what is safe to mend in it mended; and what that was.
fn changed(change: &Change, parent: &str, arch: SmArch) -> Result<(String, Vec<String>), Unusable> {
    let inapplicable = |error: EditError| Unusable::Inapplicable(error.to_string());
    let text = match change {
        Change::Hunks(hunks) => edit::apply_hunks(parent, hunks).map_err(inapplicable)?,
        Change::Diff(diff) => edit::apply_diff(parent, diff).map_err(inapplicable)?,
        Change::Whole(text) => text.clone(),
    };
    let Sanitised { text, fixes } = ptx::sanitise(&text, arch);
    let fixes = fixes
        .into_iter()
        .map(|fix| format!("line {}: {}", fix.line, fix.what))
        .collect();
    Ok((text, fixes))
}

/// Reads a child and checks it against what the task and its own launches say.
fn read(text: &str, task: &Task) -> Result<Source, Unusable> {
    let is_launch = |line: &str| {
        let rest = line.trim_start().strip_prefix("//@");
        rest.is_some_and(|rest| rest.trim_start().starts_with("launch"))
    };
    if !text.lines().any(is_launch) {
        return Err(Unusable::Illegal(
            "the //@ header with its launch lines is gone; a whole source begins with the header"
                .to_owned(),
        ));
    }
    let broken = |error: SourceError| Unusable::Inapplicable(cut(&error.to_string(), TOLD));
    let source = Source::parse(text).map_err(broken)?;
    let point = source
        .space()
        .default_point()
        .map_err(|error| Unusable::Inapplicable(error.to_string()))?;
    let candidate = source.render(&point).map_err(broken)?;
    let module = candidate.module.as_ref().map_err(|error| {
        let line = candidate.source_line(error.line).unwrap_or(error.line);
        Unusable::Inapplicable(format!("line {line} is no PTX: {}", error.message))
    })?;
    let plan = candidate.plan(&sample_names(task)).map_err(broken)?;
    check_launches(&plan, module, task).map_err(Unusable::Illegal)?;
    Ok(source)
}

fn check_launches(plan: &LaunchPlan, module: &Module, task: &Task) -> Result<(), String> {
    let known = |name: &str| {
        task.params
            .iter()
            .any(|p| p.name == name && p.role != Role::Scalar)
    };
    let all: Vec<&str> = task
        .params
        .iter()
        .map(|param| param.name.as_str())
        .collect();
    let mut passed: Vec<&str> = Vec::new();
    for launch in &plan.launches {
        let entry = &launch.entry;
        let function = kernel(module, entry).ok_or_else(|| {
            format!("a launch names the entry `{entry}`, which the code does not define")
        })?;
        if function.params.len() != launch.args.len() {
            return Err(format!(
                "entry `{entry}` has {} parameters but its launch passes {} arguments",
                function.params.len(),
                launch.args.len()
            ));
        }
        for (index, (param, arg)) in function.params.iter().zip(&launch.args).enumerate() {
            let is_pointer = match arg {
                Argument::Buffer(name) if !known(name) => {
                    return Err(format!(
                        "the launch of `{entry}` passes `{name}`; the task's parameters are {}",
                        all.join(", ")
                    ));
                }
                Argument::Buffer(name) => {
                    passed.push(name);
                    true
                }
                Argument::Workspace(_) => true,
                Argument::TensorMap(_) | Argument::Int(_) | Argument::Float(_) => false,
            };
            if is_pointer && !matches!(param.ty.as_str(), ".u64" | ".b64" | ".s64") {
                return Err(format!(
                    "parameter {} of entry `{entry}` is {}, but it is passed a 64-bit pointer",
                    index + 1,
                    param.ty
                ));
            }
        }
    }
    passed.extend(plan.tensor_maps.iter().map(|map| map.base.as_str()));
    match task
        .outputs()
        .find(|output| !passed.contains(&output.name.as_str()))
    {
        Some(output) => Err(format!("no launch is passed the output `{}`", output.name)),
        None => Ok(()),
    }
}

fn kernel<'a>(module: &'a Module, name: &str) -> Option<&'a Function> {
    module.items.iter().find_map(|item| match item {
        Item::Function(function)
            if function.kind == FunctionKind::Entry
                && function.name == name
                && function.body.is_some() =>
        {
            Some(function)
        }
        Item::Function(_) | Item::Directive(_) | Item::Variable(_) => None,
    })
}

/// The settings that hold, and a sentence on each that does not. What a setting leaves out keeps the value
/// the feedback was about.
fn settings(
    wished: &[Vec<(String, Value)>],
    source: &Source,
    request: &ProposalRequest<'_>,
) -> (Vec<Setting>, Vec<String>) {
    let space = source.space();
    let base = surviving(source, request);
    let (mut found, mut complaints) = (Vec::new(), Vec::new());
    for pairs in wished {
        let own: Setting = pairs
            .iter()
            .filter_map(|(name, value)| Some((name.trim().to_owned(), knob_value(value)?)))
            .collect();
        let whole: Setting = base.clone().into_iter().chain(own.clone()).collect();
        let valid = |setting: &Setting| {
            let point = space.point(setting)?;
            space.require(&point, "the setting")?;
            Ok::<_, SpaceError>(space.setting(&point))
        };
        // The rest of the base may be what does not fit: then the defaults stand in for it.
        match valid(&whole).or_else(|error| valid(&own).map_err(|_| error)) {
            Ok(setting) => found.push(setting),
            Err(error) => complaints.push(one_line(&error.to_string(), 300)),
        }
    }
    dedup(&mut found);
    (found, complaints)
}

/// The parent's setting in the child's space, where it is valid there.
fn carried(source: &Source, request: &ProposalRequest<'_>) -> Option<Setting> {
    request.setting.as_ref()?;
    let space = source.space();
    let point = space.point(&surviving(source, request)).ok()?;
    space.is_valid(&point).then(|| space.setting(&point))
}

/// Those pairs of the parent's setting whose knob and value the source still has.
fn surviving(source: &Source, request: &ProposalRequest<'_>) -> Setting {
    let knobs = source.space().knobs();
    let exists = |name: &str, value: &KnobValue| {
        knobs
            .iter()
            .any(|knob| knob.name == name && knob.values.contains(value))
    };
    let setting = request.setting.iter().flatten();
    setting
        .filter(|(name, value)| exists(name, value))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

fn knob_value(value: &Value) -> Option<KnobValue> {
    match value {
        Value::Bool(on) => Some(KnobValue::Int(i64::from(*on))),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(int), _) => Some(KnobValue::Int(int)),
            (None, Some(float)) if float.fract() == 0.0 && float.abs() < 1e15 => {
                Some(KnobValue::Int(float as i64))
            }
            (None, _) => Some(KnobValue::Text(number.to_string())),
        },
        Value::String(text) => Some(KnobValue::Text(text.clone())),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn dedup(settings: &mut Vec<Setting>) {
    let mut seen = std::collections::BTreeSet::new();
    settings.retain(|setting| seen.insert(setting.clone()));
}

fn label(title: Option<String>, is_edit: bool, settings: &[Setting]) -> String {
    let what = match (title, is_edit, settings.first()) {
        (Some(title), _, _) => title,
        (None, false, Some(setting)) => {
            let pairs: Vec<String> = setting.iter().map(|(k, v)| format!("{k} = {v}")).collect();
            one_line(&pairs.join(", "), 80)
        }
        (None, true, _) | (None, false, None) => "an edit without a plan".to_owned(),
    };
    format!("model: {what}")
}

fn cut(text: &str, longest: usize) -> String {
    match text.char_indices().find(|(at, _)| *at >= longest) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
