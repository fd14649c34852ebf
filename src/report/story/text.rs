//! A story as text for a terminal. Every number in it is the story's.

use std::fmt;
use std::path::Path;

use super::{Story, Winner, setting_line};
use crate::llm::Spent;
use crate::report::{baselines_table, by_size, retimed};
use crate::units::counted;
use crate::verdict::Diagnosis;

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = &self.config;
        writeln!(
            f,
            "{} on {} ({}), {} judged in {:.1} s, seed {}",
            config.task,
            config.gpu,
            config.device,
            counted(self.evaluations, "kernel"),
            self.elapsed_ms as f64 / 1e3,
            config.seed
        )?;
        match self.ended {
            Some(reason) => writeln!(f, "ended: {reason}")?,
            None if config.is_batch() => writeln!(
                f,
                "not ended: the `warptree batch` command that began it goes on with it"
            )?,
            None => writeln!(f, "not ended: `warptree resume` goes on with it")?,
        }
        let Some(winner) = &self.winner else {
            writeln!(f, "\n{}", self.no_winner())?;
            self.write_funnel(f)?;
            return self.write_asked(f);
        };
        let label = winner.measurement.time.label();
        writeln!(f, "\nFrom seed to winner (times {label})")?;
        for step in &self.path {
            let time = step
                .time
                .map_or("not judged".to_owned(), |time| time.to_string());
            let gain = step
                .gain
                .map_or(String::new(), |gain| format!("{gain:.2}×"));
            writeln!(f, "  {time:>11}  {gain:>7}  {}", step.what)?;
        }
        self.write_winner(f, winner)?;
        self.write_baselines(f, winner)?;
        if let Some(claim) = &winner.claim {
            write!(f, "\nFinal claim, {claim}")?;
        }
        if !self.retimed.is_empty() {
            let load = retimed::at_load(self.retimed.iter().any(|line| line.full_load));
            writeln!(f, "\nTimed again{load}, in turns")?;
            f.write_str(&retimed::table(&self.retimed))?;
        }
        writeln!(f, "\nTop {} of {}", self.top.len(), self.evaluations)?;
        f.write_str(&self.top_table())?;
        writeln!(f, "\nSources")?;
        for source in &self.sources {
            let best = source
                .best
                .map_or("none valid".to_owned(), |best| best.to_string());
            let estimated = source.estimated.map_or(String::new(), |ratio| {
                format!("  ({:.2}× its parent's time estimated)", ratio.get())
            });
            writeln!(
                f,
                "  {:>11}  {:>4} judged, {:>4} valid  {}{estimated}",
                best, source.evaluations, source.valid, source.label
            )?;
        }
        self.write_funnel(f)?;
        self.write_asked(f)
    }
}

impl Story {
    /// What a search says at its end: the winner, and where to read more. `kernel`: its files are there, to
    /// be exported.
    pub fn brief(&self, folder: &Path, kernel: bool) -> String {
        let folder = folder.display();
        let Some(winner) = &self.winner else {
            let why = self.no_winner();
            return format!("{why}; `warptree show {folder}` says more\n");
        };
        let time = &winner.measurement.time;
        let over = self
            .config
            .baseline
            .as_ref()
            .map_or(String::new(), |baseline| {
                let ratio = baseline.time.get() / time.nanos().get();
                format!(
                    ", {ratio:.2}× the {} ({} {})",
                    baseline.name,
                    baseline.time,
                    time.label()
                )
            });
        let part = winner.measurement.score.instructions.shortfall();
        let part = part.map_or(String::new(), |part| format!("\n        its score {part}"));
        let setting = setting_line(&winner.setting);
        let source = self
            .sources
            .iter()
            .find(|source| source.node == winner.node);
        let label = source.map_or("", |source| &source.label);
        let export = if kernel {
            format!(
                "export: warptree export {folder} --to {}-kernel\n",
                self.config.task
            )
        } else {
            String::new()
        };
        format!(
            "winner: {} {}{over}{part}\n        {label}: {setting}\nstory:  warptree show {folder}\n{export}",
            time.nanos(),
            time.label(),
        )
    }

    /// Why there is no winner, where there is none.
    pub(in crate::report) fn no_winner(&self) -> &'static str {
        match self.sources.iter().any(|source| source.valid > 0) {
            true => {
                "no winner: what passed every check has a score that counts nothing, for the target instructions \
                 that the task asks for did none of the work"
            }
            false => "no kernel passed every check",
        }
    }

    fn write_winner(&self, f: &mut fmt::Formatter<'_>, winner: &Winner) -> fmt::Result {
        let measurement = &winner.measurement;
        writeln!(f, "\nWinner  {}", setting_line(&winner.setting))?;
        let time = &measurement.time;
        write!(f, "  time        {} ({})", time.nanos(), time.label())?;
        match &self.config.baseline {
            Some(baseline) => writeln!(
                f,
                ", {:.2}× {}",
                baseline.time.get() / time.nanos().get(),
                baseline.name
            )?,
            None => writeln!(f)?,
        }
        if let Some(part) = measurement.score.instructions.shortfall() {
            writeln!(f, "  score       {part}")?;
        }
        if !winner.confirmed {
            writeln!(
                f,
                "  not confirmed: a run that ends judges its winner once more, in full"
            )?;
        }
        for entry in &measurement.resources {
            writeln!(
                f,
                "  {:<11} {} registers, {} shared, {} spilled",
                entry.entry, entry.registers, entry.static_smem, entry.spill_stores
            )?;
        }
        if let Some(diagnosis) = &measurement.diagnosis {
            write_diagnosis(f, diagnosis)?;
        }
        write_list(f, "checked", &by_size(&measurement.checked))?;
        write_list(f, "not checked", &by_size(&measurement.not_checked))?;
        Ok(())
    }

    /// The winner's search time over each baseline's: what a claim measures again, side by side.
    fn write_baselines(&self, f: &mut fmt::Formatter<'_>, winner: &Winner) -> fmt::Result {
        let Some(baselines) = &self.config.baselines else {
            return Ok(());
        };
        writeln!(f, "\nBaselines, measured when the run began")?;
        f.write_str(&baselines_table(
            baselines,
            Some(winner.measurement.time.nanos()),
        ))
    }

    fn top_table(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        table.set_header([
            "  time",
            "speedup",
            "score",
            "registers",
            "source",
            "setting",
        ]);
        for ranked in &self.top {
            let registers = ranked
                .resources
                .iter()
                .map(|entry| entry.registers.to_string())
                .collect::<Vec<_>>();
            table.add_row([
                format!("  {}", ranked.time),
                ranked
                    .speedup
                    .map_or("-".to_owned(), |speedup| format!("{speedup:.2}×")),
                format!("× {}", ranked.factor),
                registers.join("/"),
                ranked.label.clone(),
                setting_line(&ranked.setting),
            ]);
        }
        let lines: Vec<_> = table
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect();
        lines.join("\n") + "\n"
    }

    fn write_asked(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.asked.is_empty() {
            return Ok(());
        }
        let mut whole = Spent::default();
        writeln!(f, "\nAsked of the model")?;
        for line in &self.asked {
            whole.add(&line.spent);
            writeln!(
                f,
                "  {:>5}  {:<18} {} usable; {}",
                line.requests,
                line.ask.name(),
                line.usable,
                line.spent
            )?;
        }
        let usage = whole.usage;
        writeln!(
            f,
            "  in all {whole}; billed: {} in ({} cached), {} out ({} reasoning)",
            usage.input, usage.cached, usage.output, usage.reasoning
        )
    }

    fn write_funnel(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nHow they ended")?;
        for ending in &self.funnel {
            let mostly = ending.mostly.as_deref().unwrap_or_default();
            writeln!(f, "  {:>5}  {:<18} {mostly}", ending.count, ending.stage)?;
        }
        if self.estimated_only > 0 {
            writeln!(
                f,
                "  {:>5}  {:<18} set aside for what the cost model expects of them",
                self.estimated_only, "estimated only"
            )?;
        }
        let untried = (self.sources.iter())
            .filter(|source| source.evaluations == 0 && source.estimated.is_some())
            .count();
        if untried > 0 {
            writeln!(
                f,
                "  {untried:>5}  {:<18} sources not tried for what the cost model expects of them",
                "estimated only"
            )?;
        }
        Ok(())
    }
}

/// The title stands once, before the first of the lines.
fn write_list(f: &mut fmt::Formatter<'_>, title: &str, lines: &[String]) -> fmt::Result {
    for (nth, line) in lines.iter().enumerate() {
        let title = if nth == 0 { title } else { "" };
        writeln!(f, "  {title:<11} {line}")?;
    }
    Ok(())
}

fn write_diagnosis(f: &mut fmt::Formatter<'_>, diagnosis: &Diagnosis) -> fmt::Result {
    writeln!(
        f,
        "  limited by  {} ({})",
        diagnosis.bottleneck, diagnosis.source
    )?;
    for evidence in &diagnosis.evidence {
        let line = evidence
            .line
            .map_or(String::new(), |line| format!(" (line {line})"));
        writeln!(f, "              {}{line}", evidence.text)?;
    }
    Ok(())
}
