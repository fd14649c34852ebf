//! What a model is asked: templates filled with the task, the GPU, the source with line numbers, what became
//! of it, what failed here and on the way here, and one request. Its length is bounded; what is left out is
//! said. It shows what a proposer may know, and so never an input, a seed or a sample. A user's folder may
//! replace any template.

use std::collections::BTreeMap;
use std::path::Path;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;

use crate::device::Gpu;
use crate::expr::Expr;
use crate::propose::{Ask, ProposalRequest};
use crate::source::{KnobValue, Setting, Source};
use crate::task::{MathMode, Param, Purpose, Role, Task, Tolerance};
use crate::units::{Nanos, SmArch};
use crate::verdict::{Verdict, feedback};

/// The templates, in minijinja's language.
pub(super) struct Prompts {
    environment: Environment<'static>,
}

/// A filled prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Prompt {
    pub(super) system: String,
    pub(super) user: String,
}

/// Bytes of a prompt's parts that grow, as shares of its limit.
const FEEDBACK_SHARE: usize = 8;
const HISTORY_SHARE: usize = 12;
/// Entries of the history that are shown, the latest.
const HISTORY_SHOWN: usize = 8;
/// Of what was tried beside the path, the latest.
const BESIDE_SHOWN: usize = 6;

/// Every template by its file's name.
const TEMPLATES: [(&str, &str); 11] = [
    ("system.md", include_str!("../prompts/system.md")),
    ("user.md", include_str!("../prompts/user.md")),
    ("improve.md", include_str!("../prompts/improve.md")),
    ("knob-change.md", include_str!("../prompts/knob-change.md")),
    ("local-edit.md", include_str!("../prompts/local-edit.md")),
    ("restructure.md", include_str!("../prompts/restructure.md")),
    ("new-knob.md", include_str!("../prompts/new-knob.md")),
    ("repair.md", include_str!("../prompts/repair.md")),
    ("continue.md", include_str!("../prompts/continue.md")),
    ("correct.md", include_str!("../prompts/correct.md")),
    ("sm_90a.md", include_str!("../prompts/sm_90a.md")),
];

impl Prompts {
    /// The templates of this crate.
    pub(super) fn embedded() -> Result<Self, minijinja::Error> {
        Self::new(|_| None)
    }

    /// The same, with those of `folder` in their place. A file that replaces nothing is an error.
    pub(super) fn with_folder(folder: &Path) -> Result<Self, String> {
        let fault = |path: &Path, what: String| format!("--prompts: {}: {what}", path.display());
        let mut own: BTreeMap<String, String> = BTreeMap::new();
        let entries =
            std::fs::read_dir(folder).map_err(|error| fault(folder, error.to_string()))?;
        for entry in entries {
            let path = entry
                .map_err(|error| fault(folder, error.to_string()))?
                .path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if !name.ends_with(".md") {
                continue;
            }
            let known = TEMPLATES.iter().any(|(known, _)| *known == name);
            let architecture = name.trim_end_matches(".md").parse::<SmArch>().is_ok();
            if !known && !architecture {
                let names: Vec<&str> = TEMPLATES.iter().map(|(name, _)| *name).collect();
                let what = format!(
                    "no template has this name; they are {} and one for an architecture (sm_100a.md)",
                    names.join(", ")
                );
                return Err(fault(&path, what));
            }
            let text =
                std::fs::read_to_string(&path).map_err(|error| fault(&path, error.to_string()))?;
            own.insert(name, text);
        }
        let mut prompts = Self::new(|name| own.remove(name))
            .map_err(|error| format!("--prompts {}: {error:#}", folder.display()))?;
        for (name, text) in own {
            prompts
                .environment
                .add_template_owned(name, text)
                .map_err(|error| format!("--prompts {}: {error:#}", folder.display()))?;
        }
        Ok(prompts)
    }

    fn new(mut own: impl FnMut(&str) -> Option<String>) -> Result<Self, minijinja::Error> {
        let mut environment = Environment::new();
        environment.set_undefined_behavior(UndefinedBehavior::Strict);
        let lines = SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()?;
        environment.set_syntax(lines);
        for (name, text) in TEMPLATES {
            match own(name) {
                Some(own) => environment.add_template_owned(name, own)?,
                None => environment.add_template(name, text)?,
            }
        }
        Ok(Self { environment })
    }

    /// Fills them. `limit` bounds the whole in bytes, but for what cannot be left out.
    pub(super) fn fill(
        &self,
        request: &ProposalRequest<'_>,
        gpu: &Gpu,
        limit: usize,
    ) -> Result<Prompt, minijinja::Error> {
        let system = self.environment.get_template("system.md")?.render(())?;
        let user = self.environment.get_template("user.md")?;
        let mut context = Context::new(request, gpu, limit);
        context.wanted = self.render(&format!("{}.md", context.request), ())?;
        let targets = request.task.targets.get(&gpu.arch);
        if targets.is_some_and(|targets| !targets.is_empty()) {
            let name = format!("{}.md", gpu.arch);
            if self.environment.get_template(&name).is_ok() {
                context.instructions = Some(self.render(&name, ())?);
            }
        }
        let bare = user.render(Serde(&context))?.len() + system.len();
        context.source.numbered = numbered(&request.source.text, limit.saturating_sub(bare));
        let user = user.render(Serde(&context))?;
        Ok(Prompt { system, user })
    }
}

impl Prompts {
    /// What is said to a model whose reply was cut.
    pub(super) fn go_on(&self) -> Result<String, minijinja::Error> {
        self.render("continue.md", ())
    }

    /// What is said to a model whose reply cannot be used.
    pub(super) fn correct(&self, why: &str) -> Result<String, minijinja::Error> {
        self.render("correct.md", minijinja::context! { why })
    }

    fn render(
        &self,
        name: &str,
        context: impl Into<minijinja::Value>,
    ) -> Result<String, minijinja::Error> {
        let text = self
            .environment
            .get_template(name)?
            .render(context.into())?;
        Ok(text.trim_end().to_owned())
    }
}

/// Whether the verdict asks for a repair rather than for more speed.
fn needs_repair(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Measured(_) | Verdict::RecordedFailure { .. } => false,
        Verdict::Unrenderable { .. }
        | Verdict::Forbidden { .. }
        | Verdict::Unassembled { .. }
        | Verdict::AssemblerFailed { .. }
        | Verdict::OverLimits { .. }
        | Verdict::Faulted { .. }
        | Verdict::Hung { .. }
        | Verdict::Racy { .. }
        | Verdict::Wrong { .. }
        | Verdict::Voided { .. } => true,
    }
}

#[derive(Serialize)]
struct Context {
    task: TaskWords,
    gpu: GpuWords,
    roofline: Option<String>,
    instructions: Option<String>,
    source: SourceWords,
    setting: Option<String>,
    feedback: Option<String>,
    path: Vec<Tried>,
    beside: Vec<Tried>,
    history: Vec<Tried>,
    request: &'static str,
    wanted: String,
}

#[derive(Serialize)]
struct TaskWords {
    name: String,
    title: String,
    params: Vec<ParamWords>,
    timed: String,
    checked: String,
    math: &'static str,
    tolerances: Vec<String>,
    cost: String,
    rules: Vec<String>,
}

#[derive(Serialize)]
struct ParamWords {
    name: String,
    words: String,
}

#[derive(Serialize)]
struct GpuWords {
    name: String,
    arch: String,
    rows: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    name: &'static str,
    words: String,
}

#[derive(Serialize)]
struct SourceWords {
    numbered: String,
    knobs: Vec<String>,
    points: u64,
}

#[derive(Serialize)]
struct Tried {
    edit: String,
    outcome: String,
}

impl Context {
    fn new(request: &ProposalRequest<'_>, gpu: &Gpu, limit: usize) -> Self {
        let source = request.source;
        let repair = request.feedback.is_some_and(needs_repair);
        let told = request
            .feedback
            .map(|verdict| feedback(verdict, &source.text, limit / FEEDBACK_SHARE));
        let each = limit / HISTORY_SHARE / HISTORY_SHOWN;
        let latest = |tried: &[(String, String)], shown: usize| -> Vec<Tried> {
            tried[tried.len().saturating_sub(shown)..]
                .iter()
                .map(|(edit, outcome)| Tried {
                    edit: super::reply::one_line(edit, each / 3),
                    outcome: super::reply::one_line(outcome, each),
                })
                .collect()
        };
        let ask = match (request.ask, repair) {
            (Some(ask), _) => ask.name(),
            (None, true) => Ask::Repair.name(),
            (None, false) => "improve",
        };
        Self {
            task: task_words(request.task, gpu),
            gpu: gpu_words(gpu),
            source: source_words(source),
            setting: request.setting.as_ref().map(setting_words),
            feedback: told.map(|text| text.trim_end().to_owned()),
            roofline: roofline(request, gpu),
            instructions: None,
            path: latest(request.path, HISTORY_SHOWN),
            beside: latest(request.beside, BESIDE_SHOWN),
            history: latest(request.history, HISTORY_SHOWN),
            request: ask,
            wanted: String::new(),
        }
    }
}

fn task_words(task: &Task, gpu: &Gpu) -> TaskWords {
    let sizes = |wanted: &[Purpose]| -> String {
        let mut all: Vec<String> = task
            .sizes
            .iter()
            .filter(|size| wanted.contains(&size.purpose))
            .map(|size| {
                let dims: Vec<String> = size
                    .dims
                    .iter()
                    .map(|(k, v)| format!("{k} = {v}"))
                    .collect();
                dims.join(", ")
            })
            .collect();
        all.dedup();
        all.join("; ")
    };
    let mut rules = Vec::new();
    if let Some(targets) = task.targets.get(&gpu.arch).filter(|list| !list.is_empty()) {
        let names: Vec<String> = targets
            .iter()
            .map(|t| format!("`{}`", t.mnemonic))
            .collect();
        rules.push(format!("The work must be done by {}.", names.join(" and ")));
    }
    let listed = |list: &[String]| -> String {
        let names: Vec<String> = list.iter().map(|name| format!("`{name}`")).collect();
        names.join(", ")
    };
    if !task.policy.allow.is_empty() {
        rules.push(format!(
            "Only these instructions are allowed: {}.",
            listed(&task.policy.allow)
        ));
    }
    if !task.policy.deny.is_empty() {
        rules.push(format!(
            "These instructions are not allowed: {}.",
            listed(&task.policy.deny)
        ));
    }
    let restricted = !task.policy.allow.is_empty() || !task.policy.deny.is_empty();
    if restricted && !task.policy.reason.is_empty() {
        rules.push(format!("Why: {}", task.policy.reason));
    }
    if !task.nondeterministic.is_empty() {
        rules.push(format!(
            "Repeats may differ within the tolerance in {} (atomics are fine there).",
            listed(&task.nondeterministic)
        ));
    }
    TaskWords {
        name: task.name.clone(),
        title: task.title.trim_end_matches('.').to_owned(),
        params: task.params.iter().map(param_words).collect(),
        timed: sizes(&[Purpose::Bench]),
        checked: sizes(&[Purpose::Smoke, Purpose::Edge]),
        math: match task.math {
            MathMode::Ieee => {
                "the declared precision throughout; no tf32, no approximate functions, no flushed denormals."
            }
            MathMode::Fast => {
                "approximate functions and flushed denormals are fine within the tolerance."
            }
        },
        tolerances: task
            .tolerances
            .iter()
            .map(|(output, tolerance)| {
                format!("Tolerance of `{output}`: {}", tolerance_words(tolerance))
            })
            .collect(),
        cost: format!(
            "{} FLOPs, at least {} bytes of device memory",
            task.cost.flops, task.cost.bytes
        ),
        rules,
    }
}

fn param_words(param: &Param) -> ParamWords {
    let dtype = param.dtype.word();
    let shape = if param.shape.is_empty() {
        String::new()
    } else {
        format!("[{}]", param.shape.join(", "))
    };
    let words = match param.role {
        Role::Input => format!("input, device pointer to {dtype}{shape}, never written"),
        Role::Output => format!(
            "output, device pointer to {dtype}{shape}; it arrives with garbage and is written in full"
        ),
        Role::Scalar => match &param.value {
            Some(value) => format!("{dtype} by value: {value}"),
            None => format!("{dtype} by value"),
        },
    };
    ParamWords {
        name: param.name.clone(),
        words,
    }
}

fn tolerance_words(tolerance: &Tolerance) -> String {
    match tolerance {
        Tolerance::Exact => "bit for bit.".to_owned(),
        Tolerance::Dot {
            length,
            accumulate,
            rounded,
        } => {
            let factor = rounded.map_or_else(String::new, |dtype| {
                format!(", one factor of each may be rounded to {}", dtype.word())
            });
            format!(
                "a sum of {length} terms accumulated in {}, in any order{factor}; about the rounding error of such \
                 a sum.",
                accumulate.word()
            )
        }
        Tolerance::Pointwise { ulps, absolute } => {
            format!("each element within {ulps} units in the last place (plus {absolute}).")
        }
        Tolerance::Norm { relative } => {
            format!("the error's norm within {relative} of the output's norm.")
        }
    }
}

fn gpu_words(gpu: &Gpu) -> GpuWords {
    let row = |name, words| Row { name, words };
    GpuWords {
        name: gpu.name.clone(),
        arch: gpu.arch.to_string(),
        rows: vec![
            row(
                "SMs",
                format!("{} at {:.0} MHz", gpu.sm_count, gpu.sm_clock_mhz),
            ),
            row(
                "device memory",
                format!("{:.2} TB/s", gpu.memory_bandwidth / 1e12),
            ),
            row("L2", gpu.l2.to_string()),
            row(
                "shared memory",
                format!("{} a block, {} an SM", gpu.smem_per_block, gpu.smem_per_sm),
            ),
            row(
                "an SM holds",
                format!(
                    "{} registers, {} threads, {} blocks",
                    gpu.registers_per_sm, gpu.threads_per_sm, gpu.blocks_per_sm
                ),
            ),
            row(
                "fp32",
                format!(
                    "{} FMAs a cycle and SM, {:.1} TFLOP/s",
                    gpu.fp32_fma_per_cycle,
                    fp32_peak(gpu) / 1e12
                ),
            ),
            row(
                "bf16 tensor cores",
                format!("{:.0} TFLOP/s, dense", tensor_peak(gpu) / 1e12),
            ),
        ],
    }
}

fn fp32_peak(gpu: &Gpu) -> f64 {
    2.0 * f64::from(gpu.fp32_fma_per_cycle) * f64::from(gpu.sm_count) * gpu.sm_clock_mhz * 1e6
}

fn tensor_peak(gpu: &Gpu) -> f64 {
    f64::from(gpu.tensor_bf16_flops_per_cycle) * f64::from(gpu.sm_count) * gpu.sm_clock_mhz * 1e6
}

/// The least a call at the timed size can take, and how near the version asked about comes to it.
fn roofline(request: &ProposalRequest<'_>, gpu: &Gpu) -> Option<String> {
    let task = request.task;
    let size = task
        .sizes
        .iter()
        .find(|size| size.purpose == Purpose::Bench)?;
    let amount = |formula: &str| Expr::new(formula).ok()?.float(&size.dims).ok();
    let (bytes, flops) = (amount(&task.cost.bytes)?, amount(&task.cost.flops)?);
    let time = |amount: f64, rate: f64| Nanos::new(amount / rate * 1e9);
    let moved = time(bytes, gpu.memory_bandwidth)?;
    let mut text = format!(
        "Roofline at the timed size: moving {:.3} GB takes at least {moved}",
        bytes / 1e9
    );
    if let (Some(fp32), Some(tensor)) = (time(flops, fp32_peak(gpu)), time(flops, tensor_peak(gpu)))
    {
        text.push_str(&format!(
            "; {:.3} GFLOP take at least {fp32} in fp32 and {tensor} on bf16 tensor cores",
            flops / 1e9
        ));
    }
    text.push('.');
    let measured = request.feedback.and_then(Verdict::measurement);
    if let Some(measurement) = measured {
        let time = measurement.time.nanos();
        text.push_str(&format!(
            " The version above takes {time} ({}): {:.0} % of the bandwidth, {:.1} TFLOP/s.",
            measurement.time.label(),
            moved.get() / time.get() * 100.0,
            flops / time.seconds() / 1e12
        ));
    }
    Some(text)
}

fn source_words(source: &Source) -> SourceWords {
    let knobs = source.space().knobs().iter().map(|knob| {
        let values: Vec<String> = knob.values.iter().map(value_word).collect();
        let default = value_word(&knob.values[usize::from(knob.default)]);
        format!("{}: {} (default {default})", knob.name, values.join(", "))
    });
    SourceWords {
        numbered: String::new(),
        knobs: knobs.collect(),
        points: source.space().len(),
    }
}

fn setting_words(setting: &Setting) -> String {
    let pairs: Vec<String> = setting
        .iter()
        .map(|(name, value)| format!("{name} = {}", value_word(value)))
        .collect();
    if pairs.is_empty() {
        "its only setting".to_owned()
    } else {
        pairs.join(", ")
    }
}

/// As the header and JSON write it.
fn value_word(value: &KnobValue) -> String {
    match value {
        KnobValue::Int(value) => value.to_string(),
        KnobValue::Text(text) => format!("{text:?}"),
    }
}

/// The text with line numbers, in at most `limit` bytes: where it is longer its middle is left out.
fn numbered(text: &str, limit: usize) -> String {
    let lines: Vec<String> = text
        .lines()
        .enumerate()
        .map(|(index, line)| format!("{:>4} | {}\n", index + 1, line.trim_end()))
        .collect();
    let total: usize = lines.iter().map(String::len).sum();
    if total <= limit {
        return lines.concat().trim_end().to_owned();
    }
    // The header and the signature stand first; the end shows how it is left. Two thirds for the former.
    const NOTE: usize = 160;
    let room = limit.saturating_sub(NOTE);
    let fit = |lines: &mut dyn Iterator<Item = &String>, room: usize| -> usize {
        let mut used = 0;
        lines
            .take_while(|line| {
                used += line.len();
                used <= room
            })
            .count()
    };
    let head = fit(&mut lines.iter(), room / 3 * 2);
    let tail = fit(&mut lines[head..].iter().rev(), room / 3);
    let (from, to) = (head + 1, lines.len() - tail);
    format!(
        "{}… lines {from} to {to} are left out for length: edit with hunks, do not send the whole source …\n{}",
        lines[..head].concat(),
        lines[lines.len() - tail..].concat().trim_end()
    )
}

#[cfg(test)]
mod tests {
    use super::numbered;

    #[test]
    fn a_long_source_loses_its_middle_and_says_so() {
        let text: String = (0..1000)
            .map(|n| format!("add.u32 %r{n}, %r1, %r2;\n"))
            .collect();
        let whole = numbered(&text, usize::MAX);
        assert!(whole.starts_with("   1 | add.u32 %r0") && whole.ends_with("%r999, %r1, %r2;"));
        for limit in [0, 100, 1000, 5000, 20_000] {
            let short = numbered(&text, limit);
            assert!(short.len() <= limit.max(160), "{limit}: {}", short.len());
            assert!(short.contains("are left out"));
        }
        assert_eq!(numbered("a\n", 100), "   1 | a");
    }
}
