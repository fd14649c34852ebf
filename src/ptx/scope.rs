//! Says what a name in a function's body refers to: nested braces open scopes, `%r<12>` declares a family,
//! an inner declaration hides an outer one. It judges nothing; an undeclared name simply has no meaning.

use std::collections::HashMap;

use super::ir::{Block, Directive, Function, Instruction, Statement, Variable};

/// A function's body without its nesting: every statement in order, with the scope it stands in.
pub(super) struct Body<'m> {
    pub(super) statements: Vec<(ScopeId, Flat<'m>)>,
    /// Everything declared, in order: parameters first, then as written.
    pub(super) declarations: Vec<Declaration<'m>>,
    scopes: Vec<Scope<'m>>,
    /// How many of the declarations are parameters.
    parameters: u32,
}

/// A pair of braces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScopeId(u32);

/// An index into [`Body::declarations`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct DeclarationId(pub(super) u32);

/// A statement that is no block.
#[derive(Clone, Copy)]
pub(super) enum Flat<'m> {
    Label(DeclarationId),
    /// The ids of its names are consecutive from the one given.
    Variable(&'m Variable, DeclarationId),
    Instruction(&'m Instruction),
    Directive(&'m Directive),
}

/// What a name may refer to.
#[derive(Clone, Copy)]
pub(super) enum Declaration<'m> {
    Label,
    /// A register (or family), a variable or a parameter: the declaration, and which of its names.
    Variable(&'m Variable, usize),
}

/// A name's meaning: a declaration, and for `%r5` of `%r<12>` the 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Symbol {
    pub(super) declaration: DeclarationId,
    pub(super) index: Option<u32>,
}

#[derive(Default)]
struct Scope<'m> {
    parent: Option<ScopeId>,
    names: HashMap<&'m str, DeclarationId>,
}

impl<'m> Body<'m> {
    /// The body of `function`; its parameters are declared even where it has none.
    pub(super) fn new(function: &'m Function) -> Self {
        let mut body = Self {
            statements: Vec::new(),
            declarations: Vec::new(),
            scopes: vec![Scope::default()],
            parameters: 0,
        };
        let outermost = ScopeId(0);
        for variable in function.returns.iter().chain(&function.params) {
            body.declare_variable(outermost, variable);
        }
        body.parameters = body.declarations.len() as u32;
        if let Some(block) = &function.body {
            body.flatten(outermost, block);
        }
        body
    }

    /// What `name` means in `scope`; a vector member `v.x` means `v`. `None`: special registers,
    /// module-scope names and what is not declared.
    pub(super) fn resolve(&self, scope: ScopeId, name: &str) -> Option<Symbol> {
        let name = match name.split_once('.') {
            Some((base, _)) if !base.is_empty() => base,
            Some(_) | None => name,
        };
        let family = family(name);
        let mut at = Some(scope);
        while let Some(id) = at {
            let scope = &self.scopes[id.0 as usize];
            if let Some(&declaration) = scope.names.get(name)
                && self.count(declaration).is_none()
            {
                return Some(Symbol {
                    declaration,
                    index: None,
                });
            }
            if let Some((base, index)) = family
                && let Some(&declaration) = scope.names.get(base)
                && self.count(declaration).is_some_and(|count| index < count)
            {
                return Some(Symbol {
                    declaration,
                    index: Some(index),
                });
            }
            at = scope.parent;
        }
        None
    }

    /// The symbol's declaration if it is a register.
    pub(super) fn register(&self, symbol: Symbol) -> Option<&'m Variable> {
        self.variable(symbol)
            .filter(|variable| variable.space == ".reg")
    }

    /// The declaration of a symbol that is no label.
    pub(super) fn variable(&self, symbol: Symbol) -> Option<&'m Variable> {
        match self.declarations[symbol.declaration.0 as usize] {
            Declaration::Variable(variable, _) => Some(variable),
            Declaration::Label => None,
        }
    }

    /// Whether the symbol is one of the function's parameters or return values.
    pub(super) fn is_parameter(&self, symbol: Symbol) -> bool {
        symbol.declaration.0 < self.parameters
    }

    fn count(&self, declaration: DeclarationId) -> Option<u32> {
        match self.declarations[declaration.0 as usize] {
            Declaration::Variable(variable, name) => variable.names[name].count,
            Declaration::Label => None,
        }
    }

    fn flatten(&mut self, scope: ScopeId, block: &'m Block) {
        for statement in &block.statements {
            let flat = match statement {
                Statement::Label(label) => {
                    let id = self.declare(scope, &label.name, Declaration::Label);
                    Flat::Label(id)
                }
                Statement::Variable(variable) => {
                    Flat::Variable(variable, self.declare_variable(scope, variable))
                }
                Statement::Instruction(instruction) => Flat::Instruction(instruction),
                Statement::Directive(directive) => Flat::Directive(directive),
                Statement::Block(inner) => {
                    let id = ScopeId(self.scopes.len() as u32);
                    self.scopes.push(Scope {
                        parent: Some(scope),
                        names: HashMap::new(),
                    });
                    self.flatten(id, inner);
                    continue;
                }
            };
            self.statements.push((scope, flat));
        }
    }

    fn declare_variable(&mut self, scope: ScopeId, variable: &'m Variable) -> DeclarationId {
        let first = DeclarationId(self.declarations.len() as u32);
        for (index, name) in variable.names.iter().enumerate() {
            self.declare(scope, &name.name, Declaration::Variable(variable, index));
        }
        first
    }

    fn declare(
        &mut self,
        scope: ScopeId,
        name: &'m str,
        declaration: Declaration<'m>,
    ) -> DeclarationId {
        let id = DeclarationId(self.declarations.len() as u32);
        self.declarations.push(declaration);
        self.scopes[scope.0 as usize].names.insert(name, id);
        id
    }
}

/// `%r12` as `%r` and 12.
fn family(name: &str) -> Option<(&str, u32)> {
    let base = name.trim_end_matches(|c: char| c.is_ascii_digit());
    let digits = &name[base.len()..];
    let canonical = !base.is_empty() && (digits == "0" || !digits.starts_with('0'));
    canonical
        .then(|| digits.parse().ok())
        .flatten()
        .map(|index| (base, index))
}
