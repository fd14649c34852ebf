//! A suite's report as text for people and as CSV.

use std::fmt;

use super::{Best, Overs, State, SuiteReport, TaskResult, Total, Totals};
use crate::report::csv::csv;
use crate::units::counted;
use crate::verdict::{Denominator, InstructionScore, SPILL_ALLOWANCE};

impl SuiteReport {
    /// One line a task.
    pub fn tasks_csv(&self) -> String {
        let header = [
            "task",
            "level",
            "state",
            "correct",
            "instructions",
            "speedup",
            "low",
            "high",
            "over",
            "time_ns",
            "times",
            "judged",
            "search_ms",
        ];
        let mut lines = Vec::new();
        for task in &self.tasks {
            let best = task.winner.as_ref();
            let speedup = best.and_then(|best| best.speedup.as_ref());
            let interval = best.and_then(|best| best.interval);
            let number =
                |value: Option<f64>| value.map_or(String::new(), |one| format!("{one:.4}"));
            lines.push([
                task.task.clone(),
                format!("{:?}", task.level),
                state(task).to_owned(),
                task.correct().map_or(String::new(), |one| one.to_string()),
                number(best.map(|best| best.instructions.factor())),
                number(speedup.map(|speedup| speedup.ratio)),
                number(interval.map(|(low, _)| low)),
                number(interval.map(|(_, high)| high)),
                best.map_or(String::new(), over),
                best.map_or(String::new(), |best| format!("{:.1}", best.time.get())),
                best.map_or(String::new(), |best| best.times.clone()),
                task.evaluations.to_string(),
                task.elapsed_ms.to_string(),
            ]);
        }
        csv(header, lines)
    }

    /// One line a task and ending: `task,ending,count`.
    pub fn endings_csv(&self) -> String {
        let lines = self.tasks.iter().flat_map(|task| {
            task.endings
                .iter()
                .map(|(ending, count)| [task.task.clone(), ending.clone(), count.to_string()])
        });
        csv(["task", "ending", "count"], lines)
    }

    fn task_table(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(comfy_table::presets::NOTHING);
        table.set_header([
            "task",
            "level",
            "correct",
            "target instructions",
            "speedup",
            "over",
            "time",
            "judged",
        ]);
        for task in &self.tasks {
            let best = task.winner.as_ref();
            let cell = |shown: Option<String>| shown.unwrap_or_else(|| "-".to_owned());
            table.add_row([
                task.task.clone(),
                format!("{:?}", task.level),
                match task.correct() {
                    Some(true) => "yes".to_owned(),
                    Some(false) => "no".to_owned(),
                    None => state(task).to_owned(),
                },
                cell(best.map(|best| instructions(best.instructions))),
                cell(best.and_then(speedup)),
                cell(best.map(over)),
                cell(best.map(|best| format!("{} {}", best.time, best.times))),
                task.evaluations.to_string(),
            ]);
        }
        let lines: Vec<_> = table
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect();
        lines.join("\n")
    }

    /// Where it was judged: one line, or several where the runs differ.
    fn rigs(&self) -> Vec<String> {
        let mut rigs: Vec<String> = Vec::new();
        for rig in self.tasks.iter().filter_map(|task| task.rig.as_ref()) {
            let assembler = rig.assembler.as_deref().unwrap_or("no ptxas");
            let rig = format!("{}, {assembler}", rig.gpu);
            if !rigs.contains(&rig) {
                rigs.push(rig);
            }
        }
        rigs
    }
}

impl fmt::Display for SuiteReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tasks = self.tasks.len();
        write!(f, "suite {}", self.suite)?;
        if !self.left_out.is_empty() {
            let all = tasks + self.left_out.len();
            write!(f, ", {tasks} of its {all} tasks")?;
        }
        match &self.rigs()[..] {
            [] => {}
            rigs => write!(f, ", on {}", rigs.join("; and on "))?,
        }
        writeln!(f, "\n\n{}\n", self.task_table())?;
        for task in &self.tasks {
            if let Some(why) = trouble(task) {
                writeln!(f, "{}: {why}", task.task)?;
            }
        }
        write!(f, "{}", self.totals)
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.total {
            Total::Counts { value } => writeln!(f, "total   {value:.3} {}", overs(self.overs))?,
            Total::Void { failed } => writeln!(
                f,
                "total   void: L1 is a veto, and no kernel of {} passed every check",
                failed.join(", ")
            )?,
            Total::Open { missing } => {
                let missing: Vec<String> = missing
                    .iter()
                    .map(|one| format!("{} ({})", one.task, one.why))
                    .collect();
                writeln!(f, "total   none yet: {}", missing.join(", "))?;
            }
        }
        for level in &self.levels {
            let points = level
                .points
                .map_or("-".to_owned(), |points| format!("{points:.3}"));
            writeln!(
                f,
                "  {:?} {points:>6}  weight {:.0} %, {} of {} correct",
                level.level,
                level.weight * 100.0,
                level.correct,
                level.tasks
            )?;
        }
        writeln!(
            f,
            "        weighted mean of correct · target instructions · speedup; L1 failing anything voids it"
        )?;
        if self.levels.iter().map(|level| level.weight).sum::<f64>() < 0.999 {
            writeln!(
                f,
                "        a level is absent: the others' weights are scaled to 100 %"
            )?;
        }
        if let Some(mean) = self.geometric_mean {
            writeln!(
                f,
                "mean    {mean:.3} geometric, of the correct tasks' speedups"
            )?;
        }
        let fast: Vec<String> = self
            .fast
            .iter()
            .map(|fast| format!("{:.0} % > {}×", fast.share * 100.0, fast.p))
            .collect();
        writeln!(f, "fast_p  {} (share of all tasks)", fast.join(", "))?;
        let endings: Vec<String> = self
            .endings
            .iter()
            .map(|one| format!("{:.1} % {}", one.share * 100.0, one.ending))
            .collect();
        if !endings.is_empty() {
            let judged = self.evaluations;
            writeln!(f, "endings {} of {judged} judged", endings.join(", "))?;
        }
        if self.unusable > 0 {
            writeln!(
                f,
                "        and {} that could not be used",
                counted(self.unusable, "proposal")
            )?;
        }
        Ok(())
    }
}

fn state(task: &TaskResult) -> &'static str {
    match task.state {
        State::Finished => "finished",
        State::Unfinished { .. } => "unfinished",
        State::NotRun { .. } => "not run",
    }
}

/// What a reader must know of a task that is not done or found nothing.
fn trouble(task: &TaskResult) -> Option<String> {
    match (&task.state, &task.winner) {
        (State::Finished, Some(_)) => None,
        (State::Finished, None) => Some(format!(
            "no kernel passed every check; mostly {}",
            task.mostly.as_deref().unwrap_or("nothing was judged")
        )),
        (State::Unfinished { why: Some(why) } | State::NotRun { why: Some(why) }, _) => {
            Some(format!("{}: {why}", state(task)))
        }
        (State::Unfinished { why: None } | State::NotRun { why: None }, _) => None,
    }
}

fn instructions(score: InstructionScore) -> String {
    let spills = |value: f64| match value < 1.0 {
        true => format!(", × {value} for spills over {}", SPILL_ALLOWANCE),
        false => String::new(),
    };
    match score {
        InstructionScore::NotRequired { value } => format!("none asked{}", spills(value)),
        InstructionScore::Counted { value } => format!("{:.0} %", value * 100.0),
        InstructionScore::NotProfiled { value } => format!("not profiled{}", spills(value)),
    }
}

fn speedup(best: &Best) -> Option<String> {
    let ratio = best.speedup.as_ref()?.ratio;
    Some(match best.interval {
        Some((low, high)) => format!("{ratio:.2}× [{low:.2}, {high:.2}]"),
        None => format!("{ratio:.2}×"),
    })
}

fn over(best: &Best) -> String {
    match best.speedup.as_ref().map(|speedup| &speedup.over) {
        Some(Denominator::Frontier(name)) => name.clone(),
        Some(Denominator::Seed) => "the seed (frontier: not measured)".to_owned(),
        None => "nothing".to_owned(),
    }
}

fn overs(overs: Overs) -> String {
    let Overs {
        frontier,
        seed,
        nothing: _,
    } = overs;
    match (frontier, seed) {
        (0, 0) => "(nothing is correct)".to_owned(),
        (_, 0) => "over the frontier".to_owned(),
        (0, _) => "over the seeds (frontier: not measured)".to_owned(),
        (frontier, seed) => format!(
            "over the frontier in {frontier} tasks, over the seed in {seed} (frontier: not measured)"
        ),
    }
}
