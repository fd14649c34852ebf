//! Baselines as a table for people.

use std::fmt::Write as _;

use crate::units::Nanos;
use crate::verdict::Baselines;

/// One line each, the fastest first: time, ratio, whether it is right; then what is missing. The ratio is
/// over `kernel`'s time, or else over the frontier's.
pub fn baselines_table(baselines: &Baselines, kernel: Option<Nanos>) -> String {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    let ratio = match kernel {
        Some(_) => "÷ winner",
        None => "÷ frontier",
    };
    table.set_header(["  baseline", "time", "quartiles", ratio, "correct", ""]);
    let frontier = baselines.frontier();
    let library = baselines.library();
    let over = kernel.or(frontier.map(|frontier| frontier.time));
    let mut sorted: Vec<_> = baselines.measured.iter().collect();
    sorted.sort_by(|a, b| a.time.get().total_cmp(&b.time.get()));
    for one in sorted {
        let mut roles = Vec::new();
        if frontier == Some(one) {
            roles.push("frontier");
        }
        if library == Some(one) {
            roles.push("as users call it");
        }
        table.add_row([
            format!("  {}", one.title()),
            one.time.to_string(),
            format!("{} to {}", one.quartiles.0, one.quartiles.1),
            over.map_or_else(
                || "-".to_owned(),
                |over| format!("{:.3}", one.time.get() / over.get()),
            ),
            one.correctness.words(),
            roles.join(", "),
        ]);
    }
    let mut text = String::new();
    if !baselines.measured.is_empty() {
        for line in table.lines() {
            let _ = writeln!(text, "{}", line.trim_end());
        }
    }
    for missing in &baselines.missing {
        let _ = writeln!(text, "  missing: {}: {}", missing.name, missing.reason);
    }
    if baselines.frontier().is_none() {
        text.push_str("  frontier: not measured\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::{Correctness, MeasuredBaseline, MissingBaseline, Variant};

    #[test]
    fn it_is_sorted_and_names_the_frontier_the_library_and_what_is_missing() {
        let one = |variant, ns: f64| {
            let time = Nanos::new(ns).expect("positive");
            MeasuredBaseline {
                name: "torch.mm".to_owned(),
                variant,
                time,
                quartiles: (time, time),
                samples: vec![ns],
                correctness: Correctness::Verified {
                    on: "smoke".to_owned(),
                },
                notes: Vec::new(),
            }
        };
        let baselines = Baselines {
            measured: vec![one(Variant::Eager, 2e6), one(Variant::Compiled, 1e6)],
            missing: vec![MissingBaseline {
                name: "cuBLAS sgemm".to_owned(),
                reason: "libcublasLt does not load".to_owned(),
            }],
        };
        let text = baselines_table(&baselines, Nanos::new(0.5e6));
        let lines: Vec<&str> = text.lines().collect();
        assert!(
            lines[1].contains("torch.compile") && lines[1].ends_with("frontier"),
            "{text}"
        );
        assert!(lines[1].contains("2.000"), "{text}");
        assert!(lines[2].ends_with("as users call it"), "{text}");
        assert!(
            lines[3].contains("missing: cuBLAS sgemm: libcublasLt"),
            "{text}"
        );
        let empty = baselines_table(&Baselines::default(), None);
        assert_eq!(empty, "  frontier: not measured\n");
    }
}
