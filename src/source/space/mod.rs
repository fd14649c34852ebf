//! A **space**: the valid settings of a source's knobs. Requirements are tabulated once, and the valid
//! points are held as a decision diagram, so counting, sampling and enumerating never materialise them
//! and checking a point never evaluates an expression (but for requirements too wide to tabulate).

mod diagram;
mod table;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use rand::{Rng, RngExt};

use self::diagram::{Diagram, Points};
use self::table::Check;
use super::knob::{Knob, KnobValue, Point, Setting};
use crate::expr::{Expr, Value, known_names};

/// A requirement on the knobs. A setting for which it has no value (a division by zero) does not meet it.
#[derive(Clone, Debug, PartialEq)]
pub struct Require {
    /// The condition, over knobs and derived values.
    pub condition: Expr,
    /// Why, as the author says.
    pub why: Option<String>,
    /// 1-based line in the source; `None` for a space that comes from elsewhere.
    pub line: Option<u32>,
}

impl std::fmt::Display for Require {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}`", self.condition)?;
        if let Some(line) = self.line {
            write!(f, " (line {line})")?;
        }
        if let Some(why) = &self.why {
            write!(f, ": {why}")?;
        }
        Ok(())
    }
}

/// Why there is no such space, or no such point in it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SpaceError {
    /// No setting meets the requirements.
    #[error(
        "no setting meets all requirements; these conflict: {}",
        list(conflict)
    )]
    Empty {
        /// A minimal set: without any one of them there would be a valid setting.
        conflict: Vec<Require>,
    },
    /// A requirement has no value for any setting, or uses a name that is no knob.
    #[error("requirement {require}: {message}")]
    Requirement {
        /// Which.
        require: Box<Require>,
        /// What is wrong with it.
        message: String,
    },
    /// A knob without values, with a value twice, or with a default that is none of its values.
    #[error("knob `{knob}`: {message}")]
    Knob {
        /// Which.
        knob: String,
        /// What is wrong with it.
        message: String,
    },
    /// More points than can be counted.
    #[error("the space holds more than 2^63 settings; take values or knobs away")]
    TooLarge,
    /// The point breaks requirements.
    #[error("{what} breaks {}", list(violated))]
    Invalid {
        /// `the default`, or the setting.
        what: String,
        /// Each broken requirement.
        violated: Vec<Require>,
    },
    /// A setting names a knob that does not exist.
    #[error("there is no knob `{knob}`; {help}")]
    UnknownKnob {
        /// As written.
        knob: String,
        /// The knobs there are.
        help: String,
    },
    /// A setting gives a knob a value that it cannot take.
    #[error("knob {knob} cannot be {value}; allowed: {}", values(allowed))]
    UnknownValue {
        /// Which knob.
        knob: String,
        /// As written.
        value: KnobValue,
        /// What it can be.
        allowed: Vec<KnobValue>,
    },
}

/// The valid settings of some knobs. Cheap to clone.
#[derive(Clone)]
pub struct Space(Arc<Inner>);

struct Inner {
    knobs: Vec<Knob>,
    requires: Vec<Require>,
    /// One for each requirement, in order.
    checks: Vec<Check>,
    /// Indices of the checks that look at a knob, by knob.
    by_knob: Vec<Vec<usize>>,
    /// The points that every check in it allows.
    diagram: Diagram,
    /// Checks that the diagram does not hold.
    beside: Vec<usize>,
    len: OnceLock<u64>,
}

/// Rejected draws after which sampling enumerates instead.
const REJECTIONS: usize = 1000;

impl Space {
    /// The space of `knobs` under `requires`, conditions over the knobs' names.
    pub fn new(knobs: Vec<Knob>, requires: Vec<Expr>) -> Result<Self, SpaceError> {
        let requires = requires
            .into_iter()
            .map(|condition| Require {
                condition,
                why: None,
                line: None,
            })
            .collect();
        Self::with_lets(knobs, &[], requires)
    }

    /// The same where conditions may use derived values: `lets` in the order of their definition.
    pub fn with_lets(
        knobs: Vec<Knob>,
        lets: &[(String, Expr)],
        requires: Vec<Require>,
    ) -> Result<Self, SpaceError> {
        check_knobs(&knobs)?;
        let checks = table::checks(&knobs, lets, &requires)?;
        let by_knob = (0..knobs.len())
            .map(|knob| {
                (0..checks.len())
                    .filter(|&check| checks[check].knobs().contains(&knob))
                    .collect()
            })
            .collect();
        let all: Vec<usize> = (0..checks.len()).collect();
        let (diagram, beside) = solve(&knobs, &checks, &all)?;
        let space = Self(Arc::new(Inner {
            knobs,
            requires,
            checks,
            by_knob,
            diagram,
            beside,
            len: OnceLock::new(),
        }));
        if space.iter().next().is_none() {
            return Err(space.conflict(all));
        }
        Ok(space)
    }

    /// In the order declared, which is that of a point's indices.
    pub fn knobs(&self) -> &[Knob] {
        &self.0.knobs
    }

    /// In the order declared.
    pub fn requires(&self) -> &[Require] {
        &self.0.requires
    }

    /// The number of valid points; at least 1.
    #[expect(clippy::len_without_is_empty, reason = "an empty space is an error")]
    pub fn len(&self) -> u64 {
        *self.0.len.get_or_init(|| {
            if self.0.beside.is_empty() {
                self.0.diagram.len()
            } else {
                self.iter().count() as u64
            }
        })
    }

    /// Every knob at its default; an error that names what it breaks if that is not valid.
    pub fn default_point(&self) -> Result<Point, SpaceError> {
        let point = self.defaults();
        self.require(&point, "the default")?;
        Ok(point)
    }

    /// Whether the point belongs to this space and meets every requirement.
    pub fn is_valid(&self, point: &Point) -> bool {
        self.fits(point) && self.0.checks.iter().all(|check| check.allows(&point.0))
    }

    /// The requirements that a point breaks.
    pub fn violated(&self, point: &Point) -> Vec<&Require> {
        std::iter::zip(&self.0.requires, &self.0.checks)
            .filter(|(_, check)| !check.allows(&point.0))
            .map(|(require, _)| require)
            .collect()
    }

    /// A valid point, each as likely as any other.
    pub fn sample(&self, rng: &mut (impl Rng + ?Sized)) -> Point {
        let draws = if self.0.beside.is_empty() {
            1
        } else {
            REJECTIONS
        };
        for _ in 0..draws {
            let point = self
                .0
                .diagram
                .point(rng.random_range(0..self.0.diagram.len()));
            if self.passes_beside(&point) {
                return point;
            }
        }
        let at = rng.random_range(0..self.len());
        self.iter()
            .nth(usize::try_from(at).expect("invariant: an enumerated count fits"))
            .expect("invariant: the space holds len() points")
    }

    /// The valid points that differ from `point` in exactly one knob.
    pub fn neighbours(&self, point: &Point) -> Vec<Point> {
        let broken: BTreeSet<usize> = (0..self.0.checks.len())
            .filter(|&check| !self.0.checks[check].allows(&point.0))
            .collect();
        let mut found = Vec::new();
        let mut trial = point.clone();
        for (knob, checks) in self.0.by_knob.iter().enumerate() {
            if !broken.iter().all(|check| checks.contains(check)) {
                continue;
            }
            let own = point.0[knob];
            for value in 0..self.0.knobs[knob].values.len() as u16 {
                trial.0[knob] = value;
                let allowed = || {
                    checks
                        .iter()
                        .all(|&check| self.0.checks[check].allows(&trial.0))
                };
                if value != own && allowed() {
                    found.push(trial.clone());
                }
            }
            trial.0[knob] = own;
        }
        found
    }

    /// Every valid point once, always in the same order.
    pub fn iter(&self) -> impl Iterator<Item = Point> + '_ {
        Points::new(&self.0.diagram).filter(|point| self.passes_beside(point))
    }

    /// The point by name.
    pub fn setting(&self, point: &Point) -> Setting {
        std::iter::zip(&self.0.knobs, &point.0)
            .map(|(knob, &index)| (knob.name.clone(), knob.values[usize::from(index)].clone()))
            .collect()
    }

    /// The point of a setting; knobs it leaves out take their defaults. It may break requirements.
    pub fn point(&self, setting: &Setting) -> Result<Point, SpaceError> {
        let mut point = self.defaults();
        for (name, value) in setting {
            let index = self
                .0
                .knobs
                .iter()
                .position(|knob| knob.name == *name)
                .ok_or_else(|| SpaceError::UnknownKnob {
                    knob: name.clone(),
                    help: self.known_knobs(name),
                })?;
            let knob = &self.0.knobs[index];
            let written = value.to_string();
            let choice = knob
                .values
                .iter()
                .position(|allowed| allowed == value || allowed.to_string() == written)
                .ok_or_else(|| SpaceError::UnknownValue {
                    knob: name.clone(),
                    value: value.clone(),
                    allowed: knob.values.clone(),
                })?;
            point.0[index] = choice as u16;
        }
        Ok(point)
    }

    /// The valid point that takes over what it can of a setting made elsewhere: knobs of the same name and
    /// value, defaults for the others.
    pub fn adopt(&self, setting: &Setting) -> Option<Point> {
        let adopted = self.0.knobs.iter().map(|knob| {
            let value = setting.get(&knob.name);
            let index = knob.values.iter().position(|own| Some(own) == value);
            index.map_or(knob.default, |index| index as u16)
        });
        let adopted = Point(adopted.collect());
        self.is_valid(&adopted).then_some(adopted)
    }

    /// Where a setting made elsewhere stands here: knobs that it lacks at their defaults, those that only it
    /// has left out. `None` where it has a value that is not listed here, or no knob of this space. It may
    /// break requirements.
    pub fn project(&self, setting: &Setting) -> Option<Point> {
        let mut shared = false;
        let place = |knob: &Knob| match setting.get(&knob.name) {
            Some(value) => {
                shared = true;
                let place = knob.values.iter().position(|own| own == value);
                place.map(|place| place as u16)
            }
            None => Some(knob.default),
        };
        let point: Option<Box<[u16]>> = self.0.knobs.iter().map(place).collect();
        point.filter(|_| shared).map(Point)
    }

    /// An error that names the requirements a point breaks, where it breaks any. `what` begins the message.
    pub fn require(&self, point: &Point, what: &str) -> Result<(), SpaceError> {
        if !self.fits(point) {
            return Err(SpaceError::Invalid {
                what: format!("{what} (a point of another space)"),
                violated: Vec::new(),
            });
        }
        let violated: Vec<Require> = self.violated(point).into_iter().cloned().collect();
        if violated.is_empty() {
            return Ok(());
        }
        Err(SpaceError::Invalid {
            what: what.to_owned(),
            violated,
        })
    }

    fn defaults(&self) -> Point {
        Point(self.0.knobs.iter().map(|knob| knob.default).collect())
    }

    fn known_knobs(&self, name: &str) -> String {
        let known: Vec<String> = self.0.knobs.iter().map(|knob| knob.name.clone()).collect();
        known_names(name, &known)
    }

    fn fits(&self, point: &Point) -> bool {
        point.0.len() == self.0.knobs.len()
            && std::iter::zip(&self.0.knobs, &point.0)
                .all(|(knob, &index)| usize::from(index) < knob.values.len())
    }

    fn passes_beside(&self, point: &Point) -> bool {
        self.0
            .beside
            .iter()
            .all(|&check| self.0.checks[check].allows(&point.0))
    }

    /// A minimal set of requirements that leave nothing: each is tried without.
    fn conflict(&self, mut kept: Vec<usize>) -> SpaceError {
        let mut at = 0;
        while at < kept.len() {
            let mut fewer = kept.clone();
            fewer.remove(at);
            match self.is_empty_under(&fewer) {
                Ok(true) => kept = fewer,
                Ok(false) => at += 1,
                Err(error) => return error,
            }
        }
        SpaceError::Empty {
            conflict: kept
                .into_iter()
                .map(|index| self.0.requires[index].clone())
                .collect(),
        }
    }

    fn is_empty_under(&self, kept: &[usize]) -> Result<bool, SpaceError> {
        let (diagram, beside) = solve(&self.0.knobs, &self.0.checks, kept)?;
        let any = Points::new(&diagram).any(|point| {
            beside
                .iter()
                .all(|&check| self.0.checks[check].allows(&point.0))
        });
        Ok(!any)
    }
}

impl std::fmt::Debug for Space {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Space")
            .field("knobs", &self.0.knobs)
            .field("requires", &self.0.requires)
            .finish_non_exhaustive()
    }
}

impl From<&KnobValue> for Value {
    fn from(value: &KnobValue) -> Self {
        match value {
            KnobValue::Int(value) => Self::Int(*value),
            KnobValue::Text(text) => Self::Text(text.as_str().into()),
        }
    }
}

/// The diagram of the checks listed, and those of them that it could not hold.
fn solve(
    knobs: &[Knob],
    checks: &[Check],
    which: &[usize],
) -> Result<(Diagram, Vec<usize>), SpaceError> {
    let radices: Vec<usize> = knobs.iter().map(|knob| knob.values.len()).collect();
    let mut inside: Vec<usize> = Vec::new();
    let mut beside: Vec<usize> = Vec::new();
    for &index in which {
        match &checks[index] {
            Check::Table(_) => inside.push(index),
            Check::Wide(_) => beside.push(index),
        }
    }
    loop {
        let tables: Vec<_> = inside
            .iter()
            .filter_map(|&index| checks[index].table())
            .collect();
        match Diagram::build(&radices, &tables)? {
            Ok(diagram) => return Ok((diagram, beside)),
            Err(diagram::TooWide { table }) => beside.push(inside.remove(table)),
        }
    }
}

fn check_knobs(knobs: &[Knob]) -> Result<(), SpaceError> {
    let mut names = BTreeSet::new();
    for knob in knobs {
        let bad = |message: String| {
            Err(SpaceError::Knob {
                knob: knob.name.clone(),
                message,
            })
        };
        if !names.insert(&knob.name) {
            return bad("is declared twice".into());
        }
        if knob.values.is_empty() {
            return bad("has no values".into());
        }
        if knob.values.len() > usize::from(u16::MAX) {
            return bad(format!(
                "has {} values; 65,535 are the most",
                knob.values.len()
            ));
        }
        if usize::from(knob.default) >= knob.values.len() {
            return bad("its default is none of its values".into());
        }
        let mut seen = BTreeSet::new();
        for value in &knob.values {
            if !seen.insert(value) {
                return bad(format!("lists {value} twice"));
            }
        }
    }
    Ok(())
}

fn list(requires: &[Require]) -> String {
    let texts: Vec<String> = requires.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

fn values(values: &[KnobValue]) -> String {
    let texts: Vec<String> = values.iter().map(ToString::to_string).collect();
    texts.join(", ")
}
