//! Requirements, tabulated: a bit for every combination of the values of the knobs one looks at. Expressions
//! are evaluated here only, once a combination; derived values are tabulated first and looked up. What has
//! too many combinations stays an expression.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::expr::{Expr, Value, known_names};
use crate::source::knob::Knob;

use super::{Require, SpaceError};

/// Combinations up to which something is tabulated.
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
    cells: Cells,
    bits: Vec<u64>,
}

/// A requirement that is evaluated each time.
pub(super) struct Wide {
    formula: Formula,
    names: Arc<Scope>,
}

/// Compiles the requirements on some knobs; `lets` are derived values in the order of their definition.
pub(super) fn checks(
    knobs: &[Knob],
    lets: &[(String, Expr)],
    requires: &[Require],
) -> Result<Vec<Check>, SpaceError> {
    let conditions = || requires.iter().map(|require| &require.condition);
    let scope = Arc::new(Scope::new(knobs, lets, conditions()));
    requires
        .iter()
        .map(|require| Check::new(knobs, lets, &scope, require))
        .collect()
}

impl Check {
    fn new(
        knobs: &[Knob],
        lets: &[(String, Expr)],
        scope: &Arc<Scope>,
        require: &Require,
    ) -> Result<Self, SpaceError> {
        let fail = |message| SpaceError::Requirement {
            require: Box::new(require.clone()),
            message,
        };
        let formula = Formula::new(&require.condition, knobs, lets, &scope.lets).map_err(fail)?;
        let Some(cells) = Cells::new(formula.knobs.clone(), knobs) else {
            return Ok(Self::Wide(Wide {
                formula,
                names: Arc::clone(scope),
            }));
        };
        let mut bits = vec![0u64; cells.count.div_ceil(64)];
        let mut failure = None;
        let mut evaluated = false;
        cells.walk(knobs, |cell, point| match formula.holds(scope, point) {
            Ok(true) => {
                bits[cell / 64] |= 1 << (cell % 64);
                evaluated = true;
            }
            Ok(false) => evaluated = true,
            Err(message) => {
                failure.get_or_insert(message);
            }
        });
        match failure {
            Some(message) if !evaluated => Err(fail(message)),
            Some(_) | None => Ok(Self::Table(Table { cells, bits })),
        }
    }

    /// The knobs it looks at, ascending.
    pub(super) fn knobs(&self) -> &[usize] {
        match self {
            Self::Table(table) => table.knobs(),
            Self::Wide(wide) => &wide.formula.knobs,
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
            Self::Wide(wide) => wide.formula.holds(&wide.names, point).unwrap_or(false),
        }
    }
}

impl Table {
    /// The knobs it looks at, ascending.
    pub(super) fn knobs(&self) -> &[usize] {
        &self.cells.knobs
    }

    /// Whether the values it looks at are allowed together; others are not looked at.
    pub(super) fn allows(&self, point: &[u16]) -> bool {
        let cell = self.cells.at(point);
        self.bits[cell / 64] >> (cell % 64) & 1 == 1
    }
}

/// The combinations of some knobs' values, numbered.
struct Cells {
    /// Ascending.
    knobs: Vec<usize>,
    /// Weight of each knob's index in a combination's number.
    strides: Vec<usize>,
    count: usize,
}

impl Cells {
    /// `None` where there are too many.
    fn new(used: Vec<usize>, knobs: &[Knob]) -> Option<Self> {
        let mut strides = Vec::with_capacity(used.len());
        let mut count = 1usize;
        for &knob in &used {
            strides.push(count);
            count = count.checked_mul(knobs[knob].values.len())?;
        }
        (count <= TABLE_LIMIT).then_some(Self {
            knobs: used,
            strides,
            count,
        })
    }

    fn at(&self, point: &[u16]) -> usize {
        std::iter::zip(&self.knobs, &self.strides)
            .map(|(&knob, stride)| usize::from(point[knob]) * stride)
            .sum()
    }

    /// Visits every combination in order of its number.
    fn walk(&self, knobs: &[Knob], mut visit: impl FnMut(usize, &[u16])) {
        let mut point = vec![0u16; knobs.len()];
        for cell in 0..self.count {
            visit(cell, &point);
            for &knob in &self.knobs {
                point[knob] += 1;
                if usize::from(point[knob]) < knobs[knob].values.len() {
                    break;
                }
                point[knob] = 0;
            }
        }
    }
}

/// What names stand for, at any point.
struct Scope {
    /// The values of each knob.
    values: Vec<Vec<Value>>,
    /// By index; `None` for a derived value that no requirement needs.
    lets: Vec<Option<Derived>>,
}

/// A derived value.
struct Derived {
    formula: Formula,
    /// Its value at every combination of the knobs it looks at, where they are few enough.
    table: Option<(Cells, Vec<Result<Value, String>>)>,
}

/// An expression whose names are resolved.
struct Formula {
    expr: Expr,
    slots: Vec<Slot>,
    /// The knobs it looks at, directly or through derived values; ascending.
    knobs: Vec<usize>,
}

/// Where a name's value comes from.
#[derive(Clone, Copy)]
enum Slot {
    Knob(usize),
    Let(usize),
}

impl Scope {
    fn new<'a>(
        knobs: &[Knob],
        lets: &[(String, Expr)],
        conditions: impl Iterator<Item = &'a Expr>,
    ) -> Self {
        let mut needed: BTreeSet<usize> = BTreeSet::new();
        let mut visit: Vec<&Expr> = conditions.collect();
        while let Some(expr) = visit.pop() {
            for name in expr.names() {
                if let Some(index) = lets.iter().position(|(known, _)| known == name)
                    && needed.insert(index)
                {
                    visit.push(&lets[index].1);
                }
            }
        }
        let mut scope = Self {
            values: knobs
                .iter()
                .map(|knob| knob.values.iter().map(Value::from).collect())
                .collect(),
            lets: Vec::with_capacity(lets.len()),
        };
        for (index, (_, expr)) in lets.iter().enumerate() {
            // One that cannot be resolved is left out; who needs it says so.
            let formula = needed
                .contains(&index)
                .then(|| Formula::new(expr, knobs, &lets[..index], &scope.lets).ok())
                .flatten();
            let derived = formula.map(|formula| {
                let cells = Cells::new(formula.knobs.clone(), knobs);
                let table = cells.map(|cells| {
                    let mut values = Vec::with_capacity(cells.count);
                    cells.walk(knobs, |_, point| values.push(formula.value(&scope, point)));
                    (cells, values)
                });
                Derived { formula, table }
            });
            scope.lets.push(derived);
        }
        scope
    }
}

impl Derived {
    fn value(&self, scope: &Scope, point: &[u16]) -> Result<Value, String> {
        match &self.table {
            Some((cells, values)) => values[cells.at(point)].clone(),
            None => self.formula.value(scope, point),
        }
    }
}

impl Formula {
    /// An error names what is no knob and none of `lets`.
    fn new(
        expr: &Expr,
        knobs: &[Knob],
        lets: &[(String, Expr)],
        derived: &[Option<Derived>],
    ) -> Result<Self, String> {
        let mut used = BTreeSet::new();
        let mut slots = Vec::with_capacity(expr.names().len());
        for name in expr.names() {
            if let Some(knob) = knobs.iter().position(|knob| knob.name == name) {
                used.insert(knob);
                slots.push(Slot::Knob(knob));
                continue;
            }
            let index = lets.iter().position(|(known, _)| known == name);
            if let Some((index, Some(derived))) = index.map(|index| (index, &derived[index])) {
                used.extend(&derived.formula.knobs);
                slots.push(Slot::Let(index));
                continue;
            }
            let knobs = knobs.iter().map(|knob| &knob.name);
            let known: Vec<String> = knobs
                .chain(lets.iter().map(|(name, _)| name))
                .cloned()
                .collect();
            return Err(format!(
                "unknown name `{name}`; {}",
                known_names(name, &known)
            ));
        }
        Ok(Self {
            expr: expr.clone(),
            slots,
            knobs: used.into_iter().collect(),
        })
    }

    fn value(&self, scope: &Scope, point: &[u16]) -> Result<Value, String> {
        let values = self
            .slots
            .iter()
            .map(|slot| match *slot {
                Slot::Knob(knob) => Ok(scope.values[knob][usize::from(point[knob])].clone()),
                Slot::Let(index) => scope.lets[index]
                    .as_ref()
                    .expect("invariant: a slot names a derived value that resolved")
                    .value(scope, point),
            })
            .collect::<Result<Vec<_>, _>>()?;
        self.expr.apply(values).map_err(|error| error.to_string())
    }

    fn holds(&self, scope: &Scope, point: &[u16]) -> Result<bool, String> {
        let value = self.value(scope, point)?;
        self.expr
            .condition(value)
            .map_err(|error| error.to_string())
    }
}
