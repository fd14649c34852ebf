//! One requirement, tabulated: a bit for every combination of the values of the knobs it looks at.
//! Its expression is evaluated here only, once a combination; a requirement with too many combinations
//! stays an expression.

use crate::expr::{Expr, Value, known_names};
use crate::source::knob::Knob;

use super::{Require, SpaceError};

/// Combinations up to which a requirement is tabulated.
const TABLE_LIMIT: usize = 1 << 18;

/// A requirement, ready to be checked.
pub(super) enum Check {
    /// Tabulated.
    Table(Table),
    /// Too many combinations: evaluated each time.
    Wide(Wide),
}

/// The combinations that a requirement allows.
pub(super) struct Table {
    /// The knobs it looks at, ascending.
    knobs: Vec<usize>,
    /// Weight of each knob's index in a combination's number.
    strides: Vec<usize>,
    bits: Vec<u64>,
}

/// A requirement that is evaluated each time.
pub(super) struct Wide {
    knobs: Vec<usize>,
    formula: Formula,
}

impl Check {
    pub(super) fn new(
        knobs: &[Knob],
        lets: &[(String, Expr)],
        require: &Require,
    ) -> Result<Self, SpaceError> {
        let formula = Formula::new(knobs, lets, require)?;
        let used: Vec<usize> = formula.knobs();
        let combinations = used.iter().try_fold(1usize, |product, &knob| {
            product.checked_mul(knobs[knob].values.len())
        });
        match combinations {
            Some(count) if count <= TABLE_LIMIT => {
                Table::new(knobs, used, count, &formula, require).map(Self::Table)
            }
            Some(_) | None => Ok(Self::Wide(Wide {
                knobs: used,
                formula,
            })),
        }
    }

    /// The knobs it looks at, ascending.
    pub(super) fn knobs(&self) -> &[usize] {
        match self {
            Self::Table(table) => &table.knobs,
            Self::Wide(wide) => &wide.knobs,
        }
    }

    pub(super) fn table(&self) -> Option<&Table> {
        match self {
            Self::Table(table) => Some(table),
            Self::Wide(_) => None,
        }
    }

    /// Whether a whole point meets it.
    pub(super) fn allows(&self, point: &[u16]) -> bool {
        match self {
            Self::Table(table) => table.allows(point),
            Self::Wide(wide) => wide.formula.holds(point).unwrap_or(false),
        }
    }
}

impl Table {
    fn new(
        knobs: &[Knob],
        used: Vec<usize>,
        count: usize,
        formula: &Formula,
        require: &Require,
    ) -> Result<Self, SpaceError> {
        let mut strides = Vec::with_capacity(used.len());
        let mut stride = 1;
        for &knob in &used {
            strides.push(stride);
            stride *= knobs[knob].values.len();
        }
        let mut bits = vec![0u64; count.div_ceil(64)];
        let mut point = vec![0u16; knobs.len()];
        let mut failure = None;
        let mut evaluated = false;
        for cell in 0..count {
            match formula.holds(&point) {
                Ok(true) => {
                    bits[cell / 64] |= 1 << (cell % 64);
                    evaluated = true;
                }
                Ok(false) => evaluated = true,
                Err(message) => failure = failure.or(Some(message)),
            }
            for &knob in &used {
                point[knob] += 1;
                if usize::from(point[knob]) < knobs[knob].values.len() {
                    break;
                }
                point[knob] = 0;
            }
        }
        match failure {
            Some(message) if !evaluated => Err(SpaceError::Requirement {
                require: Box::new(require.clone()),
                message,
            }),
            Some(_) | None => Ok(Self {
                knobs: used,
                strides,
                bits,
            }),
        }
    }

    /// The knobs it looks at, ascending.
    pub(super) fn knobs(&self) -> &[usize] {
        &self.knobs
    }

    /// Whether the values it looks at are allowed together; others are not looked at.
    pub(super) fn allows(&self, point: &[u16]) -> bool {
        let cell: usize = std::iter::zip(&self.knobs, &self.strides)
            .map(|(&knob, stride)| usize::from(point[knob]) * stride)
            .sum();
        self.bits[cell / 64] >> (cell % 64) & 1 == 1
    }
}

/// A condition over knobs and derived values, ready to be evaluated at a point.
struct Formula {
    /// Derived values it needs, in the order of their definition.
    lets: Vec<(Expr, Vec<Slot>)>,
    condition: (Expr, Vec<Slot>),
    /// The values of each knob it looks at; empty for the others.
    values: Vec<Vec<Value>>,
}

/// Where a name's value comes from.
#[derive(Clone, Copy)]
enum Slot {
    Knob(usize),
    Let(usize),
}

impl Formula {
    fn new(knobs: &[Knob], lets: &[(String, Expr)], require: &Require) -> Result<Self, SpaceError> {
        let mut needed: Vec<usize> = Vec::new();
        let mut used = vec![false; knobs.len()];
        let mut visit = vec![&require.condition];
        while let Some(expr) = visit.pop() {
            for name in expr.names() {
                if let Some(knob) = knobs.iter().position(|knob| knob.name == name) {
                    used[knob] = true;
                } else if let Some(index) = lets.iter().position(|(known, _)| known == name) {
                    if !needed.contains(&index) {
                        needed.push(index);
                        visit.push(&lets[index].1);
                    }
                } else {
                    let known: Vec<String> = knobs
                        .iter()
                        .map(|knob| knob.name.clone())
                        .chain(lets.iter().map(|(name, _)| name.clone()))
                        .collect();
                    return Err(SpaceError::Requirement {
                        require: Box::new(require.clone()),
                        message: format!("unknown name `{name}`; {}", known_names(name, &known)),
                    });
                }
            }
        }
        needed.sort_unstable();
        let slots = |expr: &Expr| -> Vec<Slot> {
            expr.names()
                .filter_map(|name| {
                    let knob = knobs.iter().position(|knob| knob.name == name);
                    knob.map(Slot::Knob).or_else(|| {
                        needed
                            .iter()
                            .position(|&index| lets[index].0 == name)
                            .map(Slot::Let)
                    })
                })
                .collect()
        };
        Ok(Self {
            lets: needed
                .iter()
                .map(|&index| (lets[index].1.clone(), slots(&lets[index].1)))
                .collect(),
            condition: (require.condition.clone(), slots(&require.condition)),
            values: std::iter::zip(knobs, used)
                .map(|(knob, used)| {
                    let values = knob.values.iter().map(Value::from);
                    if used { values.collect() } else { Vec::new() }
                })
                .collect(),
        })
    }

    fn knobs(&self) -> Vec<usize> {
        (0..self.values.len())
            .filter(|&knob| !self.values[knob].is_empty())
            .collect()
    }

    fn holds(&self, point: &[u16]) -> Result<bool, String> {
        let mut derived: Vec<Value> = Vec::with_capacity(self.lets.len());
        for (expr, slots) in &self.lets {
            let values = self.gather(slots, point, &derived);
            derived.push(expr.apply(values).map_err(|error| error.to_string())?);
        }
        let (condition, slots) = &self.condition;
        condition
            .apply(self.gather(slots, point, &derived))
            .and_then(|value| condition.condition(value))
            .map_err(|error| error.to_string())
    }

    fn gather(&self, slots: &[Slot], point: &[u16], derived: &[Value]) -> Vec<Value> {
        slots
            .iter()
            .map(|slot| match *slot {
                Slot::Knob(knob) => self.values[knob][usize::from(point[knob])].clone(),
                Slot::Let(index) => derived[index].clone(),
            })
            .collect()
    }
}
