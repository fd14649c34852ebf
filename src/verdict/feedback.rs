//! A verdict as a short text, for prompts and for people: what became of the kernel, where, and what
//! usually helps. It shows differing outputs, never inputs, seeds or samples.

use std::fmt::Write as _;

use super::{
    Diagnosis, Diagnostic, InstructionScore, Measurement, Mismatch, Severity, Verdict, spilled,
};
use crate::units::Bytes;

/// How many diagnostics, evidence lines and differing elements are shown of each.
const SHOWN: usize = 6;

/// The verdict about `source` (the text that a person or model edits) in at most `limit` bytes; what does
/// not fit is left off at a line's end, and said.
pub fn feedback(verdict: &Verdict, source: &str, limit: usize) -> String {
    let mut text = Text {
        out: String::new(),
        source: source.lines().collect(),
    };
    text.verdict(verdict);
    bounded(text.out, limit)
}

struct Text<'a> {
    out: String,
    source: Vec<&'a str>,
}

impl Text<'_> {
    fn line(&mut self, line: impl AsRef<str>) {
        self.out.push_str(line.as_ref().trim_end());
        self.out.push('\n');
    }

    fn verdict(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Unrenderable { diagnostics } => {
                self.line("The source gives no kernel.");
                self.diagnostics(diagnostics);
            }
            Verdict::Forbidden { diagnostics } => {
                self.line("The task does not allow what it uses.");
                self.diagnostics(diagnostics);
            }
            Verdict::Unassembled { diagnostics } => {
                self.line("ptxas refused it.");
                self.diagnostics(diagnostics);
            }
            Verdict::AssemblerFailed { message } => {
                self.line(format!("The assembler failed on it: {message}"));
                self.line("Write it differently: this text crashes or stalls ptxas.");
            }
            Verdict::OverLimits { message } => {
                self.line(format!("It assembles but does not fit the GPU: {message}"));
            }
            Verdict::Faulted { diagnostics } => {
                self.line("It faulted when it ran.");
                self.diagnostics(diagnostics);
            }
            Verdict::Hung { diagnostics } => {
                self.line("It did not end: a loop without end, a deadlock, or far too much work.");
                self.diagnostics(diagnostics);
            }
            Verdict::Racy { diagnostics } => {
                self.line("It has a race: its result depends on the order of its threads.");
                self.diagnostics(diagnostics);
            }
            Verdict::Wrong { mismatch } => self.mismatch(mismatch),
            Verdict::Voided {
                reasons,
                measurement,
            } => {
                self.line("The numbers are right, but the score counts nothing:");
                for reason in reasons {
                    self.line(format!("- {reason}"));
                }
                self.measurement(measurement);
            }
            Verdict::Measured(measurement) => {
                self.line("Correct.");
                self.measurement(measurement);
            }
            Verdict::RecordedFailure { reason } => {
                self.line(format!(
                    "This configuration failed when it was recorded: {reason}"
                ));
            }
        }
    }

    fn diagnostics(&mut self, diagnostics: &[Diagnostic]) {
        let mut sorted: Vec<&Diagnostic> = diagnostics.iter().collect();
        sorted.sort_by_key(|d| std::cmp::Reverse(d.severity));
        for diagnostic in sorted.iter().take(SHOWN) {
            let severity = match diagnostic.severity {
                Severity::Note => "note",
                Severity::Warning => "warning",
                Severity::Error => "error",
            };
            let place = match (diagnostic.line, diagnostic.other_line) {
                (Some(line), Some(other)) if other != line => {
                    format!(" line {line} and line {other}")
                }
                (Some(line), Some(_) | None) => format!(" line {line}"),
                (None, Some(other)) => format!(" line {other}"),
                (None, None) => String::new(),
            };
            self.line(format!(
                "{severity}[{}]{place}: {}",
                diagnostic.code, diagnostic.message
            ));
            self.quote(diagnostic.line);
            if diagnostic.other_line != diagnostic.line {
                self.quote(diagnostic.other_line);
            }
            if let Some(help) = &diagnostic.help {
                self.line(format!("  help: {help}"));
            }
        }
        self.more(sorted.len());
    }

    fn quote(&mut self, line: Option<u32>) {
        let text = line.and_then(|line| {
            let at = usize::try_from(line).ok()?.checked_sub(1)?;
            Some((line, *self.source.get(at)?))
        });
        if let Some((line, text)) = text {
            let text: String = text.trim_end().chars().take(160).collect();
            self.line(format!("  {line} | {text}"));
        }
    }

    fn more(&mut self, count: usize) {
        if count > SHOWN {
            self.line(format!("  and {} more", count - SHOWN));
        }
    }

    fn mismatch(&mut self, mismatch: &Mismatch) {
        self.line(format!(
            "Wrong numbers in `{}` ({}): {} of {} elements checked.",
            mismatch.output, mismatch.case, mismatch.wrong, mismatch.checked
        ));
        if let Some(pattern) = &mismatch.pattern {
            self.line(format!("Pattern: {pattern}."));
        }
        for element in mismatch.first.iter().take(SHOWN) {
            let index: Vec<String> = element.index.iter().map(u64::to_string).collect();
            self.line(format!(
                "  [{}]: got {}, expected {}",
                index.join(", "),
                element.got,
                element.expected
            ));
        }
    }

    fn measurement(&mut self, measurement: &Measurement) {
        let time = &measurement.time;
        self.line(format!("Time: {} ({}).", time.nanos(), time.label()));
        if let Some(speedup) = &measurement.score.speedup {
            self.line(format!("Speed: {speedup}."));
        }
        match measurement.score.instructions {
            InstructionScore::Counted { value } if value < 1.0 => self.line(format!(
                "Target instructions did {:.0} % of their work (after the spill rule).",
                value * 100.0
            )),
            InstructionScore::NotProfiled { .. } => {
                self.line("Target instructions: not profiled.");
            }
            InstructionScore::Counted { .. } | InstructionScore::NotRequired { .. } => {}
        }
        for entry in &measurement.resources {
            self.line(format!(
                "Entry {}: {} registers, {} static shared memory, {} stack.",
                entry.entry, entry.registers, entry.static_smem, entry.stack
            ));
        }
        let spill = spilled(&measurement.resources);
        if spill > Bytes(0) {
            self.line(format!(
                "It spills {} per thread: use fewer registers, smaller tiles, or raise the register cap.",
                spill
            ));
        }
        if let Some(diagnosis) = &measurement.diagnosis {
            self.diagnosis(diagnosis);
        }
        if !measurement.warnings.is_empty() {
            self.line("Warnings:");
            self.diagnostics(&measurement.warnings);
        }
    }

    fn diagnosis(&mut self, diagnosis: &Diagnosis) {
        self.line(format!(
            "Bottleneck ({}): {}.",
            diagnosis.source, diagnosis.bottleneck
        ));
        for evidence in diagnosis.evidence.iter().take(SHOWN) {
            match evidence.line {
                Some(line) => self.line(format!("- {} (line {line})", evidence.text)),
                None => self.line(format!("- {}", evidence.text)),
            }
            self.quote(evidence.line);
            if let Some(advice) = &evidence.advice {
                self.line(format!("  help: {advice}"));
            }
        }
        self.more(diagnosis.evidence.len());
        let stalls: Vec<String> = diagnosis
            .stalls
            .iter()
            .take(3)
            .map(|stall| format!("{} {:.0} %", stall.reason, stall.share * 100.0))
            .collect();
        if !stalls.is_empty() {
            self.line(format!("Stalls: {}.", stalls.join(", ")));
        }
        if let Some(occupancy) = &diagnosis.occupancy {
            self.line(format!(
                "Occupancy: {} of {} warps, limited by {}.",
                occupancy.warps, occupancy.of, occupancy.limiter
            ));
        }
    }
}

fn bounded(text: String, limit: usize) -> String {
    const CUT: &str = "… (cut)\n";
    if text.len() <= limit {
        return text;
    }
    let room = limit.saturating_sub(CUT.len());
    let mut kept = String::new();
    for line in text.lines() {
        if kept.len() + line.len() + 1 > room {
            break;
        }
        let _infallible = writeln!(kept, "{line}");
    }
    if kept.len() + CUT.len() <= limit {
        kept.push_str(CUT);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Nanos;
    use crate::verdict::{
        Audit, Denominator, Evidence, MismatchElement, Resources, Score, Speedup, TargetShare, Time,
    };

    const SOURCE: &str = "//@ knob U = 1 in {1, 2}\n.version 8.0\n  add.u32 %r99, %r1, %r1;\n";

    fn error(line: u32) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            code: "ptxas".into(),
            message: "Unknown symbol '%r99'".into(),
            line: Some(line),
            other_line: None,
            help: Some("declare the register".into()),
        }
    }

    #[test]
    fn errors_quote_the_source() {
        let verdict = Verdict::Unassembled {
            diagnostics: vec![error(3)],
        };
        assert_eq!(
            feedback(&verdict, SOURCE, 1000),
            "ptxas refused it.\nerror[ptxas] line 3: Unknown symbol '%r99'\n  3 |   add.u32 %r99, %r1, %r1;\n  help: declare the register\n"
        );
    }

    #[test]
    fn a_line_beyond_the_source_is_named_but_not_quoted() {
        let verdict = Verdict::Unassembled {
            diagnostics: vec![error(400), error(0)],
        };
        let text = feedback(&verdict, SOURCE, 1000);
        assert!(
            text.contains("line 400") && !text.contains("400 |"),
            "{text}"
        );
    }

    #[test]
    fn wrong_numbers_show_the_first_of_them() {
        let verdict = Verdict::Wrong {
            mismatch: Mismatch {
                case: "edge n=1000, normal".into(),
                output: "out".into(),
                wrong: 24,
                checked: 1000,
                first: vec![MismatchElement {
                    index: vec![3, 976],
                    got: "NaN".into(),
                    expected: "1.5".into(),
                }],
                pattern: Some("never written".into()),
            },
        };
        assert_eq!(
            feedback(&verdict, "", 1000),
            "Wrong numbers in `out` (edge n=1000, normal): 24 of 1000 elements checked.\nPattern: never written.\n  [3, 976]: got NaN, expected 1.5\n"
        );
    }

    #[test]
    fn a_measurement_tells_time_speed_spills_and_what_limits_it() {
        let time = Nanos::new(12_340.0).expect("positive");
        let verdict = Verdict::Measured(Box::new(Measurement {
            time: Time::Estimated {
                time,
                gpu: "NVIDIA H200".into(),
            },
            resources: vec![Resources {
                entry: "k".into(),
                registers: 32,
                spill_stores: Bytes(100),
                spill_loads: Bytes(100),
                ..Resources::default()
            }],
            score: Score {
                correct: true,
                instructions: InstructionScore::new(TargetShare::Counted(1.0), Bytes(200)),
                speedup: Some(Speedup::new(Denominator::Seed, time, time)),
                audit: Audit::Passed,
            },
            diagnosis: Some(Diagnosis {
                source: "simulator".into(),
                bottleneck: crate::verdict::Bottleneck::SharedMemory,
                evidence: vec![Evidence {
                    text: "shared loads conflict 8-way".into(),
                    line: Some(3),
                    advice: Some("pad or swizzle".into()),
                }],
                stalls: Vec::new(),
                occupancy: None,
                flops: Vec::new(),
                dram: None,
                target_instructions: Vec::new(),
                executed: None,
                hardware: None,
            }),
            checked: Vec::new(),
            not_checked: Vec::new(),
            warnings: Vec::new(),
        }));
        let text = feedback(&verdict, SOURCE, 2000);
        for part in [
            "12.34 µs (estimated)",
            "1.00× the seed",
            "did 50 %",
            "32 registers",
            "spills 200 B",
            "bank conflicts",
            "8-way (line 3)",
            "3 |   add.u32",
            "pad or swizzle",
        ] {
            assert!(text.contains(part), "{part} missing in:\n{text}");
        }
    }

    #[test]
    fn the_length_is_kept_and_the_cut_is_told() {
        let verdict = Verdict::Unassembled {
            diagnostics: (0..50).map(error).collect(),
        };
        let whole = feedback(&verdict, SOURCE, 100_000);
        assert!(whole.contains("and 44 more"));
        for limit in 0..whole.len() {
            let text = feedback(&verdict, SOURCE, limit);
            assert!(text.len() <= limit);
            assert!(limit < 40 || text.ends_with("(cut)\n"), "{limit}: {text}");
        }
    }
}
