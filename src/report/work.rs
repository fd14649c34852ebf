//! What a judged kernel executed, as a profiler tells it: totals, the time of each unit, the busiest lines.
//! It prints what a verdict holds; it derives nothing.

use std::fmt::Write as _;

use crate::units::Nanos;
use crate::verdict::{Diagnosis, Executed, LineWork, Measurement, Traffic};

/// Columns of the bar of the unit that takes longest.
const BAR: usize = 24;
/// Columns of a line's text.
const TEXT: usize = 72;

/// Totals, limits and busiest lines of a kernel that was counted, quoting `source`; then the checks that found
/// nothing. Empty for a kernel that was not counted.
pub fn work(measurement: &Measurement, source: &str) -> String {
    let Some(diagnosis) = &measurement.diagnosis else {
        return String::new();
    };
    let Some(executed) = &diagnosis.executed else {
        return String::new();
    };
    let mut text = String::from("\nExecuted in one call\n");
    totals(&mut text, diagnosis, executed);
    let _ = writeln!(text, "\nTime of each unit, if nothing else took any");
    limits(&mut text, &executed.limits);
    let _ = writeln!(text, "\nBusiest lines");
    lines(
        &mut text,
        &executed.lines,
        &source.lines().collect::<Vec<_>>(),
    );
    for (title, list) in [
        ("\nChecked", &measurement.checked),
        ("\nNot checked", &measurement.not_checked),
    ] {
        if !list.is_empty() {
            let _ = writeln!(text, "{title}");
        }
        for check in list {
            let _ = writeln!(text, "  {check}");
        }
    }
    text
}

fn totals(text: &mut String, diagnosis: &Diagnosis, executed: &Executed) {
    let mut row = |name: &str, value: String| {
        let _ = writeln!(text, "  {name:<20} {value}");
    };
    row("warp instructions", count(executed.instructions as f64));
    for (unit, flops) in &diagnosis.flops {
        row(&format!("FLOPs, {unit}"), count(flops.0));
    }
    for (name, traffic) in [
        ("global loads", executed.loads),
        ("global stores", executed.stores),
        ("cp.async", executed.copies),
        ("global atomics", executed.atomics),
    ] {
        if traffic.requests > 0 {
            row(name, sectors(&traffic));
        }
    }
    for (name, bytes) in [
        ("bulk copies read", executed.bulk_read),
        ("bulk copies wrote", executed.bulk_written),
    ] {
        if bytes.0 > 0 {
            row(name, bytes.to_string());
        }
    }
    let shared = executed.shared;
    if shared.requests > 0 {
        row(
            "shared memory",
            format!(
                "{} wavefronts, {:.0} % of them conflicts",
                count(shared.wavefronts as f64),
                100.0 * shared.conflicts() as f64 / shared.wavefronts.max(1) as f64
            ),
        );
    }
    if executed.local_sectors > 0 {
        row(
            "local memory",
            format!("{} sectors", count(executed.local_sectors as f64)),
        );
    }
    if let Some(dram) = diagnosis.dram {
        row("device memory", dram.to_string());
    }
    if executed.barriers > 0 {
        row("barriers", count(executed.barriers as f64));
    }
}

fn sectors(traffic: &Traffic) -> String {
    format!(
        "{} requests, {:.1} sectors each, {:.0} % of their bytes used",
        count(traffic.requests as f64),
        traffic.per_request().unwrap_or(0.0),
        100.0 * traffic.used().unwrap_or(0.0)
    )
}

fn limits(text: &mut String, limits: &[(String, Nanos)]) {
    let longest = limits.first().map_or(1.0, |(_, time)| time.get());
    for (unit, time) in limits {
        let bar = (time.get() / longest * BAR as f64).round() as usize;
        let _ = writeln!(
            text,
            "  {unit:<24} {:>10}  {}",
            time.to_string(),
            "█".repeat(bar)
        );
    }
}

fn lines(text: &mut String, lines: &[LineWork], source: &[&str]) {
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header([
        "  share",
        "instructions",
        "sectors/request",
        "wavefronts",
        "line",
        "",
    ]);
    for line in lines {
        let global = line.global.per_request().map_or_else(
            || match line.bulk.0 {
                0 => String::new(),
                _ => format!("{} in bulk", line.bulk),
            },
            |per| {
                let used = line.global.used().unwrap_or(0.0);
                format!("{per:.1} ({:.0} % used)", used * 100.0)
            },
        );
        let shared = match line.shared.requests {
            0 => String::new(),
            _ => format!(
                "{} ({:.1}-way)",
                count(line.shared.wavefronts as f64),
                line.shared.wavefronts as f64 / line.shared.ideal.max(1) as f64
            ),
        };
        let quoted = (line.line as usize)
            .checked_sub(1)
            .and_then(|at| source.get(at))
            .map_or_else(String::new, |text| text.trim().chars().take(TEXT).collect());
        table.add_row([
            format!("  {:.1} %", line.share * 100.0),
            count(line.instructions as f64),
            global,
            shared,
            line.line.to_string(),
            quoted,
        ]);
    }
    for line in table.lines() {
        let _ = writeln!(text, "{}", line.trim_end());
    }
}

/// Three digits and a unit: `1.31 M`.
fn count(value: f64) -> String {
    let (scaled, unit) = match value {
        v if v < 1e4 => return format!("{v:.0}"),
        v if v < 1e6 => (v / 1e3, "k"),
        v if v < 1e9 => (v / 1e6, "M"),
        v if v < 1e12 => (v / 1e9, "G"),
        v => (v / 1e12, "T"),
    };
    let digits = match scaled {
        s if s < 10.0 => 2,
        s if s < 100.0 => 1,
        _ => 0,
    };
    format!("{scaled:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_three_digits_and_a_unit() {
        for (value, text) in [
            (0.0, "0"),
            (9999.0, "9999"),
            (12_345.0, "12.3 k"),
            (1_310_720.0, "1.31 M"),
            (629_145_600.0, "629 M"),
            (2.0 * 4096f64.powi(3), "137 G"),
        ] {
            assert_eq!(count(value), text);
        }
    }
}
