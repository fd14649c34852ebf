//! The **final claim**: the winner and what it is set against, measured again in fresh processes, taking
//! turns. What the numbers allow to be said is computed here by pure functions; nothing is averaged away:
//! an interval covers every round.

mod power;
mod turns;

use std::cell::RefCell;

use self::turns::{Contest, Pace, Round, Sides};
use super::files::{ProblemFiles, scratch};
use super::torch::{Library, Torch, asked};
use super::{Bench, Failure, Options, product};
use crate::device::cuda::protocol::Checked;
use crate::device::cuda::timing::{abba, noise_floor, split};
use crate::device::cuda::{CudaDevice, ProductJob, Subject};
use crate::device::{Buffer, Device as _, Ended, Job, RigError};
use crate::evaluate::pipeline::{Pipeline, timed_buffers};
use crate::source::{Point, Source};
use crate::task::{Operation, Problem};
use crate::verdict::{
    Baselines, Burst, Claim, Duel, Interleaving, MeasuredBaseline, Variant, Verdict,
};

/// Fresh processes, each with inputs of another seed.
const ROUNDS: u32 = 3;
/// Pairs of replays in a round.
const PAIRS: u32 = 32;
/// Error allowed for an interval.
const ALPHA: f64 = 0.0125;
/// Baselines measured again, the frontier first; and where power limits the winner, which takes seconds each.
const MOST_RIVALS: usize = 3;
const MOST_RIVALS_OF_LIMITED: usize = 2;

/// Measures a winner again, against the frontier, the library as users call it, and the best of each other
/// provider, as far as `baselines` has them.
pub fn remeasure(
    pipeline: &Pipeline,
    gpu: &CudaDevice,
    options: &Options,
    (source, point): (&Source, &Point),
    baselines: &Baselines,
    tell: &dyn Fn(&str),
) -> Result<Claim, RigError> {
    let mut claim = Claim {
        gpu: gpu.gpu().name.clone(),
        rounds: ROUNDS,
        winner: None,
        duels: Vec::new(),
        noise_floor: None,
        power: None,
        flaws: Vec::new(),
        not_checked: baselines.gaps(),
    };
    let ready = match pipeline.ready(source, point)? {
        Ok(ready) => ready,
        Err(verdict) => {
            claim.flaws.push(unready(&verdict));
            return Ok(claim);
        }
    };
    let mut rivals = rivals(baselines);
    if rivals.is_empty() {
        claim
            .not_checked
            .push("no baseline to measure it against".to_owned());
    }
    let mut taken: Vec<Taken> = rivals.iter().map(|_| Taken::default()).collect();
    let mut alone = Vec::new();
    let mut floors = Vec::new();
    for round in 0..ROUNDS {
        tell(&format!(
            "final measurement: round {} of {ROUNDS}",
            round + 1
        ));
        gpu.restart();
        let problem = reseeded(pipeline, round)?;
        let buffers = timed_buffers(&problem);
        let job = ready.job(&buffers);
        let field = Field {
            pipeline,
            gpu,
            options,
            problem: &problem,
            buffers: &buffers,
            winner: &job,
            torch: RefCell::new(None),
        };
        let itself = match field.pairs(Subject::Kernel(&job), &mut claim.flaws) {
            Ok(itself) => itself,
            Err(Failure::Rig(error)) => return Err(error),
            Err(Failure::Missing(why)) => {
                claim.flaws.push(format!("the winner beside itself: {why}"));
                None
            }
        };
        let Some((first, second)) = itself else {
            return Ok(claim);
        };
        floors.extend(noise_floor(&first, &second, ALPHA));
        alone.push((first, second));
        if round == 0 {
            tell("final measurement: burst and full load");
            let in_process = rivals
                .iter()
                .find(|rival| matches!(rival.variant, Variant::Algorithm { .. }));
            claim.power = field.power(in_process.copied(), &mut claim.not_checked)?;
            if claim.is_power_limited() {
                rivals.truncate(MOST_RIVALS_OF_LIMITED);
            }
        }
        let pace = if claim.is_power_limited() {
            Pace::Loads
        } else {
            Pace::Even
        };
        for (rival, taken) in rivals.iter().zip(&mut taken) {
            if taken.lost {
                continue;
            }
            match field.against(rival, pace, &mut claim.flaws) {
                Ok(Some(round)) => taken.rounds.push(round),
                Ok(None) => return Ok(claim),
                Err(Failure::Rig(error)) => return Err(error),
                Err(Failure::Missing(why)) => {
                    taken.lost = true;
                    claim
                        .not_checked
                        .push(format!("against {}: {why}", rival.title()));
                }
            }
        }
    }
    // the worst round's floor holds for all
    claim.noise_floor = floors.into_iter().reduce(f64::max);
    let noise = claim.noise_floor.unwrap_or(0.0);
    let all = alone.iter().flat_map(|(a, b)| [a.as_slice(), b.as_slice()]);
    claim.winner = turns::times(all.flatten().copied().collect());
    for (rival, taken) in rivals.iter().zip(&taken) {
        if !taken.lost {
            claim.duels.extend(taken.duel(rival, noise));
        }
    }
    Ok(claim)
}

/// The baselines worth measuring again: the frontier, the library untuned, then the fastest of each kind.
fn rivals(baselines: &Baselines) -> Vec<&MeasuredBaseline> {
    let mut correct: Vec<&MeasuredBaseline> = baselines
        .measured
        .iter()
        .filter(|one| one.correctness.is_verified())
        .collect();
    correct.sort_by(|a, b| a.time.get().total_cmp(&b.time.get()));
    let mut rivals: Vec<&MeasuredBaseline> = Vec::new();
    let named = baselines.frontier().into_iter().chain(baselines.library());
    let same =
        |a: &MeasuredBaseline, b: &MeasuredBaseline| a.name == b.name && a.variant == b.variant;
    for candidate in named.chain(correct.iter().copied().filter(|one| {
        // the fastest of its name
        correct
            .iter()
            .find(|other| other.name == one.name)
            .is_some_and(|fastest| same(fastest, one))
    })) {
        if rivals.len() < MOST_RIVALS && !rivals.iter().any(|one| same(one, candidate)) {
            rivals.push(candidate);
        }
    }
    rivals
}

/// Rounds of the winner and of a rival.
#[derive(Default)]
struct Taken {
    rounds: Vec<Round>,
    /// It failed in a round: what came before says too little.
    lost: bool,
}

impl Taken {
    /// What all rounds together allow to be said; `None` for too few times.
    fn duel(&self, rival: &MeasuredBaseline, noise: f64) -> Option<Duel> {
        let even: Vec<&Sides> = self.rounds.iter().map(|round| &round.times).collect();
        let contest = Contest::of(&even, noise)?;
        let bursts: Vec<&Sides> = self
            .rounds
            .iter()
            .filter_map(|round| round.bursts.as_ref())
            .collect();
        let burst = Contest::of(&bursts, noise);
        let standing = burst
            .as_ref()
            .map_or(contest.standing, |burst| contest.together(burst));
        Some(Duel {
            name: rival.name.clone(),
            variant: rival.variant,
            interleaving: if burst.is_some() {
                Interleaving::Seconds
            } else {
                interleaving(rival.variant)
            },
            winner: contest.winner,
            baseline: contest.baseline,
            ratio: contest.ratio,
            rounds: contest.rounds,
            standing,
            burst: burst.map(|burst| Burst {
                winner: burst.winner,
                baseline: burst.baseline,
                ratio: burst.ratio,
            }),
        })
    }
}

fn interleaving(variant: Variant) -> Interleaving {
    match variant {
        Variant::Eager | Variant::Compiled | Variant::Graph => Interleaving::Blocks,
        Variant::Algorithm { .. } | Variant::Kernel | Variant::Cuda => Interleaving::Pairs,
    }
}

/// One round: the winner and its inputs on a fresh worker.
struct Field<'a> {
    pipeline: &'a Pipeline,
    gpu: &'a CudaDevice,
    options: &'a Options,
    problem: &'a Problem,
    buffers: &'a [Buffer],
    winner: &'a Job<'a>,
    /// PyTorch once a round and baseline: its ways share a process.
    torch: RefCell<Option<Opened>>,
}

/// PyTorch, opened in this round for the baseline of this name.
struct Opened {
    name: String,
    torch: Torch,
    files: ProblemFiles,
    _folder: tempfile::TempDir,
}

/// `None`: the winner fell, which is a flaw.
type Samples = Option<Round>;

impl Field<'_> {
    fn bench<'b>(&'b self, name: &'b str) -> Bench<'b> {
        Bench {
            pipeline: self.pipeline,
            gpu: self.gpu,
            options: self.options,
            name,
        }
    }

    fn against(
        &self,
        rival: &MeasuredBaseline,
        pace: Pace,
        flaws: &mut Vec<String>,
    ) -> Result<Samples, Failure> {
        let task = &self.pipeline.settings().task;
        let named = task.baselines.iter().find(|one| one.name == rival.name);
        let gone = || Failure::Missing("the task no longer names it".to_owned());
        let bench = self.bench(&rival.name);
        match (&named.ok_or_else(gone)?.operation, rival.variant) {
            (Operation::Product(multiplication), Variant::Algorithm { index, .. }) => {
                let job = self.product(&bench, multiplication, index)?;
                self.in_process(Subject::Product(&job), pace, flaws)
            }
            (Operation::Torch(expression), Variant::Eager | Variant::Compiled) => self.in_python(
                &bench,
                (Library::Torch, expression),
                rival.variant,
                pace,
                flaws,
            ),
            (Operation::Cudnn(expression), Variant::Graph) => self.in_python(
                &bench,
                (Library::Cudnn, expression),
                rival.variant,
                pace,
                flaws,
            ),
            (Operation::Kernel(file), Variant::Kernel) => {
                let text = super::kernel::text(&bench, file)?;
                self.kernel(&text, pace, flaws)
            }
            (Operation::Cuda(file), Variant::Cuda) => {
                let (text, _) = super::kernel::compiled(&bench, file)?;
                self.kernel(&text, pace, flaws)
            }
            (
                Operation::Product(_)
                | Operation::Torch(_)
                | Operation::Cudnn(_)
                | Operation::Kernel(_)
                | Operation::Cuda(_),
                variant,
            ) => Err(Failure::Missing(format!(
                "the task's baseline of that name has no {variant}"
            ))),
        }
    }

    fn product<'j>(
        &'j self,
        bench: &Bench<'_>,
        multiplication: &'j crate::task::Multiplication,
        index: u32,
    ) -> Result<ProductJob<'j>, Failure> {
        let jobs = product::jobs(bench, multiplication, self.buffers)?;
        let job = jobs.into_iter().nth(index as usize);
        job.map(|(job, _)| job)
            .ok_or_else(|| Failure::Missing("cuBLASLt offers that algorithm no more".to_owned()))
    }

    fn kernel(&self, text: &str, pace: Pace, flaws: &mut Vec<String>) -> Result<Samples, Failure> {
        let missing = |error: &dyn std::fmt::Display| Failure::Missing(error.to_string());
        let source = Source::parse(text).map_err(|error| missing(&error))?;
        let point = source
            .space()
            .default_point()
            .map_err(|error| missing(&error))?;
        match self.pipeline.ready(&source, &point)? {
            Ok(ready) => self.in_process(Subject::Kernel(&ready.job(self.buffers)), pace, flaws),
            Err(verdict) => Err(Failure::Missing(unready(&verdict))),
        }
    }

    /// A B B A in the worker, replay by replay.
    fn pairs(&self, other: Subject<'_>, flaws: &mut Vec<String>) -> Result<Option<Sides>, Failure> {
        let subjects = [Subject::Kernel(self.winner), other];
        let replayed = self.gpu.replay_with(&subjects, |replays| {
            let (samples, _) = replays.block(abba(0, PAIRS))?;
            Ok(split(&samples))
        })?;
        self.conclude(replayed, flaws)
    }

    /// Both in the worker.
    fn in_process(
        &self,
        other: Subject<'_>,
        pace: Pace,
        flaws: &mut Vec<String>,
    ) -> Result<Samples, Failure> {
        if let Pace::Even = pace {
            return Ok(self.pairs(other, flaws)?.map(Round::even));
        }
        let subjects = [Subject::Kernel(self.winner), other];
        let replayed = self.gpu.replay_with(&subjects, |replays| {
            let replay_ns = [replays.rough_ns(0), replays.rough_ns(1)];
            turns::loads(replay_ns, |side, count| {
                Ok(Some(replays.block(vec![side; count])?.0))
            })
        })?;
        Ok(self.conclude(replayed, flaws)?.flatten())
    }

    /// The winner in the worker, the expression in its own process.
    fn in_python(
        &self,
        bench: &Bench<'_>,
        (library, expression): (Library, &str),
        variant: Variant,
        pace: Pace,
        flaws: &mut Vec<String>,
    ) -> Result<Samples, Failure> {
        let missing = |error: super::TorchError| Failure::Missing(error.to_string());
        let earlier = self.torch.take().filter(|one| one.name == bench.name);
        let mut opened = match earlier {
            Some(opened) => opened,
            None => self.open_torch(bench, library, expression)?,
        };
        let torch = &mut opened.torch;
        let prepared = torch
            .prepare(variant, &opened.files, self.gpu.gpu().l2)
            .map_err(missing)?;
        let rival_ns = torch.warm_up(prepared).map_err(missing)?;
        let mut lost = None;
        let subjects = [Subject::Kernel(self.winner)];
        let replayed = self.gpu.replay_with(&subjects, |replays| {
            let replay_ns = [replays.rough_ns(0), rival_ns];
            let take = |side, count: usize| {
                if side == 0 {
                    return Ok(Some(replays.block(vec![0; count])?.0));
                }
                match torch.sample(count as u32) {
                    Ok(samples) => Ok(Some(samples)),
                    Err(error) => {
                        lost = Some(error);
                        Ok(None)
                    }
                }
            };
            match pace {
                Pace::Even => turns::blocks(take),
                Pace::Loads => turns::loads(replay_ns, take),
            }
        })?;
        match lost {
            Some(error) => Err(missing(error)),
            None => {
                self.torch.replace(Some(opened));
                Ok(self.conclude(replayed, flaws)?.flatten())
            }
        }
    }

    fn open_torch(
        &self,
        bench: &Bench<'_>,
        library: Library,
        expression: &str,
    ) -> Result<Opened, Failure> {
        let folder = scratch(self.problem).map_err(Failure::Missing)?;
        let files =
            ProblemFiles::write(self.problem, folder.path(), "final").map_err(Failure::Missing)?;
        let torch = Torch::open(&asked(bench, library, expression), folder.path())
            .map_err(|error| Failure::Missing(error.to_string()))?;
        Ok(Opened {
            name: bench.name.to_owned(),
            torch,
            files,
            _folder: folder,
        })
    }

    /// Files what the checks found; a winner that fell is a flaw, a rival that fell is missing.
    fn conclude<T>(
        &self,
        replayed: Result<(T, Vec<Checked>), (u8, Ended)>,
        flaws: &mut Vec<String>,
    ) -> Result<Option<T>, Failure> {
        match replayed {
            Ok((value, checked)) => {
                let allowed = &self.pipeline.settings().task.nondeterministic;
                if let Some(winner) = checked.first() {
                    for flaw in found(winner, allowed) {
                        if !flaws.contains(&flaw) {
                            flaws.push(flaw);
                        }
                    }
                }
                Ok(Some(value))
            }
            Err((0, ended)) => {
                flaws.push(format!("the winner {}", words(&ended)));
                Ok(None)
            }
            Err((_, ended)) => Err(Failure::Missing(format!("it {}", words(&ended)))),
        }
    }
}

/// What the checks of timed calls found, less what the task allows.
fn found(checked: &Checked, allowed: &[String]) -> Vec<String> {
    let unsteady = checked
        .unsteady
        .iter()
        .filter(|name| !allowed.contains(name))
        .map(|name| format!("timed calls left another `{name}` than untimed ones"));
    unsteady.chain(checked.violations.iter().cloned()).collect()
}

/// The timed problem with inputs of another seed.
fn reseeded(pipeline: &Pipeline, round: u32) -> Result<Problem, RigError> {
    let timed = pipeline.timed_problem();
    let seed = timed.seed.wrapping_add(u64::from(round));
    Problem::new(&timed.task, &timed.size, timed.case, seed).map_err(|error| RigError::Reference {
        task: timed.task.name.clone(),
        message: error.to_string(),
    })
}

fn unready(verdict: &Verdict) -> String {
    let reason = verdict.reason().unwrap_or_default();
    format!("{}: {reason}", verdict.stage())
}

fn words(ended: &Ended) -> String {
    let first = |diagnostics: &[crate::verdict::Diagnostic]| {
        diagnostics
            .first()
            .map_or_else(String::new, |one| format!(": {}", one.message))
    };
    match ended {
        Ended::Completed => "completed".to_owned(),
        Ended::Faulted(diagnostics) => format!("faulted{}", first(diagnostics)),
        Ended::Hung(diagnostics) => format!("hung{}", first(diagnostics)),
        Ended::Refused(message) => format!("was refused: {message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Nanos;
    use crate::verdict::{Correctness, MissingBaseline, Standing};

    fn baseline(name: &str, variant: Variant, ns: f64, right: bool) -> MeasuredBaseline {
        let time = Nanos::new(ns).expect("positive");
        MeasuredBaseline {
            name: name.to_owned(),
            variant,
            time,
            quartiles: (time, time),
            samples: vec![ns],
            correctness: if right {
                Correctness::Verified {
                    on: "smoke".to_owned(),
                }
            } else {
                Correctness::Wrong {
                    why: "half of it".to_owned(),
                }
            },
            notes: Vec::new(),
        }
    }

    /// Three rounds of pairs in which the baseline takes `ratio` times as long, each round with a bias of
    /// its own.
    fn taken(ratio: f64, bias: [f64; 3]) -> Taken {
        Taken {
            rounds: bias.map(|bias| Round::even(sides(32, ratio * bias))).into(),
            lost: false,
        }
    }

    fn sides(pairs: u32, ratio: f64) -> Sides {
        (0..pairs)
            .map(|pair| {
                let drift = 1000.0 + f64::from(pair);
                let jitter = 1.0 + f64::from(pair * 7 % 5) * 1e-4;
                (drift, drift * ratio * jitter)
            })
            .unzip()
    }

    #[test]
    fn where_power_limits_full_load_and_bursts_both_count() {
        let rival = baseline("lib", Variant::Algorithm { index: 1, of: 3 }, 1000.0, true);
        let duel = |full, burst| {
            let round = || Round {
                times: sides(3, full),
                bursts: Some(sides(12, burst)),
            };
            let rounds = vec![round(), round(), round()];
            let taken = Taken {
                rounds,
                lost: false,
            };
            taken
                .duel(&rival, 0.002)
                .expect("nine seconds and 36 bursts")
        };
        let both = duel(1.02, 1.01);
        assert_eq!(both.standing, Standing::Faster);
        assert_eq!(both.interleaving, Interleaving::Seconds);
        assert!((both.ratio.median - 1.02).abs() < 2e-3, "{:?}", both.ratio);
        let burst = both.burst.expect("measured").ratio.median;
        assert!((burst - 1.01).abs() < 2e-3, "{burst}");
        assert_eq!(duel(1.02, 0.9999).standing, Standing::Faster);
        assert_eq!(
            duel(1.02, 0.98).standing,
            Standing::Tie,
            "it depends on the load"
        );
        assert_eq!(
            duel(0.9985, 1.02).standing,
            Standing::Tie,
            "within noise, but in every round"
        );
        assert_eq!(duel(1.0, 0.98).standing, Standing::Slower);
    }

    #[test]
    fn rivals_are_the_frontier_the_library_and_the_best_of_each_name() {
        let algorithm = |index| Variant::Algorithm { index, of: 3 };
        let baselines = Baselines {
            measured: vec![
                baseline("lib", algorithm(0), 100.0, true),
                baseline("lib", algorithm(1), 90.0, true),
                baseline("lib", algorithm(2), 10.0, false),
                baseline("torch", Variant::Eager, 101.0, true),
                baseline("torch", Variant::Compiled, 99.0, true),
            ],
            missing: vec![MissingBaseline {
                name: "mine".to_owned(),
                reason: "gone".to_owned(),
            }],
        };
        let titles: Vec<String> = rivals(&baselines).iter().map(|one| one.title()).collect();
        assert_eq!(
            titles,
            [
                "lib (algorithm 2 of 3)",
                "lib (default algorithm)",
                "torch (torch.compile)"
            ]
        );
        assert!(rivals(&Baselines::default()).is_empty());
    }

    #[test]
    fn a_win_is_claimed_only_beyond_noise_and_in_every_round() {
        let rival = baseline("lib", Variant::Eager, 1000.0, true);
        let duel = |ratio, bias, noise| {
            taken(ratio, bias)
                .duel(&rival, noise)
                .expect("enough pairs")
        };
        let clear = duel(1.05, [1.0, 1.001, 0.999], 0.002);
        assert_eq!(clear.standing, Standing::Faster);
        assert_eq!(clear.interleaving, Interleaving::Blocks);
        assert!(
            (clear.ratio.median - 1.05).abs() < 2e-3,
            "{:?}",
            clear.ratio
        );
        assert!(clear.ratio.low <= clear.rounds[2] && clear.ratio.high >= clear.rounds[1]);
        assert_eq!(duel(0.95, [1.0; 3], 0.002).standing, Standing::Slower);
        assert_eq!(duel(1.05, [1.0; 3], 0.06).standing, Standing::Tie, "noise");
        let split = duel(1.002, [1.0, 1.0, 0.99], 0.0);
        assert_eq!(split.standing, Standing::Tie, "a round says otherwise");
        assert!(split.ratio.low < 1.0);
        let few = Taken {
            rounds: vec![Round::even((vec![1.0; 3], vec![2.0; 3]))],
            lost: false,
        };
        assert!(
            few.duel(&rival, 0.0).is_none(),
            "three pairs allow no interval"
        );
    }

    #[test]
    fn what_timed_calls_left_is_a_flaw_unless_the_task_allows_it() {
        let checked = Checked {
            unsteady: vec!["out".to_owned(), "lse".to_owned()],
            violations: vec!["`x` is read only and was modified".to_owned()],
            ..Checked::default()
        };
        let flaws = found(&checked, &["out".to_owned()]);
        assert_eq!(flaws.len(), 2);
        assert!(flaws[0].contains("`lse`") && flaws[1].contains("`x`"));
        assert!(found(&Checked::default(), &[]).is_empty());
    }
}
