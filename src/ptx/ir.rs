//! The syntax tree of a PTX module: instructions as the manual writes them, `opcode.mod.mod operands;`,
//! with the place of each in the text. It is generic on purpose: what an opcode means is known to
//! `check`, to the simulator and to ptxas, never here. What the parser does not know is kept verbatim.

use std::ops::Range;

/// A byte range in the module's text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// One past the last byte.
    pub end: u32,
}

impl Span {
    /// As a range, to slice the text.
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }
}

/// A parsed module. `text` is what was parsed; every span points into it.
#[derive(Clone, Debug)]
pub struct Module {
    /// The text, unchanged.
    pub text: String,
    /// What stands at module level, in order.
    pub items: Vec<Item>,
}

/// Something at module level.
#[derive(Clone, Debug)]
pub enum Item {
    /// `.version 8.0`, `.target sm_90a`, `.address_size 64`, `.file …`, `.section …`, aliases: kept as written.
    Directive(Directive),
    /// A module-scope variable: `.global`, `.const`, `.shared`.
    Variable(Variable),
    /// `.entry` or `.func`, declared or defined.
    Function(Function),
}

/// A directive that is kept as text.
#[derive(Clone, Debug)]
pub struct Directive {
    /// With its dot: `.version`.
    pub name: String,
    /// What follows, trimmed: `8.0`.
    pub arguments: String,
    /// Where.
    pub span: Span,
}

/// A declared variable, register or parameter.
#[derive(Clone, Debug)]
pub struct Variable {
    /// `.reg`, `.global`, `.shared`, `.const`, `.local`, `.param`.
    pub space: String,
    /// Linkage before it: `.visible`, `.extern`, `.weak`, `.common`.
    pub linkage: Option<String>,
    /// `.align N`.
    pub align: Option<u32>,
    /// `.v2` or `.v4`.
    pub vector: Option<u8>,
    /// With its dot: `.f32`, `.b64`, `.pred`.
    pub ty: String,
    /// Other modifiers, as written (`.ptr .global .align 16`).
    pub attributes: Vec<String>,
    /// Names declared together.
    pub names: Vec<DeclaredName>,
    /// Where the whole declaration stands, `;` included.
    pub span: Span,
}

/// One name of a declaration.
#[derive(Clone, Debug)]
pub struct DeclaredName {
    /// `%r` of `%r<12>`, or a plain name.
    pub name: String,
    /// 12 of `%r<12>`: declares `%r0` … `%r11`.
    pub count: Option<u32>,
    /// Array dimensions; `None` is an open `[]`.
    pub dimensions: Vec<Option<u64>>,
    /// Text after `=`, verbatim.
    pub initializer: Option<String>,
    /// Where the name stands.
    pub span: Span,
}

/// `.entry` (a kernel) or `.func`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FunctionKind {
    /// A kernel.
    Entry,
    /// A device function.
    Func,
}

/// A function.
#[derive(Clone, Debug)]
pub struct Function {
    /// Kernel or device function.
    pub kind: FunctionKind,
    /// `.visible`, `.extern`, `.weak`.
    pub linkage: Option<String>,
    /// Its name.
    pub name: String,
    /// Where the name stands.
    pub name_span: Span,
    /// Return parameters of a `.func`.
    pub returns: Vec<Variable>,
    /// Parameters.
    pub params: Vec<Variable>,
    /// `.maxntid 256, 1, 1`, `.maxnreg 64`, … between the parameters and the body.
    pub directives: Vec<Directive>,
    /// Byte just after the parameter list: where a performance directive may be inserted.
    pub directives_at: u32,
    /// `None` for a declaration.
    pub body: Option<Block>,
    /// Where.
    pub span: Span,
}

/// `{ … }`: a scope of registers and labels.
#[derive(Clone, Debug)]
pub struct Block {
    /// In order.
    pub statements: Vec<Statement>,
    /// Braces included.
    pub span: Span,
}

/// A statement in a body.
#[derive(Clone, Debug)]
pub enum Statement {
    /// `$L__BB0_1:`
    Label(Label),
    /// `.reg`, `.shared`, `.local`, `.param` inside the body.
    Variable(Variable),
    /// An instruction.
    Instruction(Instruction),
    /// A nested scope.
    Block(Block),
    /// `.loc`, `.pragma`, `.callprototype`, `.branchtargets`, anything unknown: as written.
    Directive(Directive),
}

/// A label's definition.
#[derive(Clone, Debug)]
pub struct Label {
    /// Without the colon.
    pub name: String,
    /// The name and its colon.
    pub span: Span,
}

/// `@p opcode.mod.mod operands;`
#[derive(Clone, Debug)]
pub struct Instruction {
    /// `@p` or `@!p`.
    pub guard: Option<Guard>,
    /// Without modifiers: `ld`, `mma`, `cp`.
    pub opcode: String,
    /// In order, without dots: `["global", "L1::no_allocate", "v4", "f32"]`.
    pub modifiers: Vec<String>,
    /// In order.
    pub operands: Vec<Operand>,
    /// Where each operand stands.
    pub operand_spans: Vec<Span>,
    /// `opcode.mod.mod`, without guard and operands.
    pub mnemonic_span: Span,
    /// From the guard to the `;`.
    pub span: Span,
}

impl Instruction {
    /// Whether a modifier is present, written without its dot.
    pub fn has(&self, modifier: &str) -> bool {
        self.modifiers.iter().any(|m| m == modifier)
    }

    /// `opcode.mod.mod`, as written.
    pub fn mnemonic(&self) -> String {
        let mut out = self.opcode.clone();
        for modifier in &self.modifiers {
            out.push('.');
            out.push_str(modifier);
        }
        out
    }
}

/// The predicate in front of an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The predicate register.
    pub register: String,
    /// `@!p`.
    pub negated: bool,
}

/// An operand.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A register, symbol, label, special register (`%tid.x`) or vector member (`v.x`): what it is, its
    /// declaration says.
    Name(String),
    /// `!p`.
    Not(Box<Operand>),
    /// `-x`, where an instruction allows it on a name.
    Negated(Box<Operand>),
    /// A literal.
    Immediate(Immediate),
    /// `{a, b, c, d}`; may nest.
    Vector(Vec<Operand>),
    /// `[base+offset]`, `[base]`, `[64]`.
    Address(Address),
    /// `sym+8` outside brackets.
    Offset {
        /// The symbol.
        base: String,
        /// Bytes.
        offset: i64,
    },
    /// `sym[2]`: the address of an array's element.
    Element {
        /// The symbol.
        base: String,
        /// Elements of the symbol's type.
        index: i64,
    },
    /// `a|b`, as in `setp … p|q` and `shfl … d|p`.
    Pair(Box<Operand>, Box<Operand>),
    /// `(a, b)`: arguments of a call, coordinates in prototypes.
    Tuple(Vec<Operand>),
    /// `_`: the result is dropped.
    Sink,
    /// Anything else, as written (`%p & %q`, …).
    Verbatim(String),
}

impl Operand {
    /// Calls `visit` with every name in the operand, in order: registers, symbols, labels, special
    /// registers. Names within verbatim text are not seen.
    pub fn for_each_name<'a>(&'a self, visit: &mut impl FnMut(&'a str)) {
        match self {
            Self::Name(name)
            | Self::Offset { base: name, .. }
            | Self::Element { base: name, .. } => {
                visit(name);
            }
            Self::Not(inner) | Self::Negated(inner) => inner.for_each_name(visit),
            Self::Vector(members) | Self::Tuple(members) => {
                for member in members {
                    member.for_each_name(visit);
                }
            }
            Self::Address(address) => {
                if let Some(base) = &address.base {
                    visit(base);
                }
                for member in &address.rest {
                    member.for_each_name(visit);
                }
            }
            Self::Pair(first, second) => {
                first.for_each_name(visit);
                second.for_each_name(visit);
            }
            Self::Immediate(_) | Self::Sink | Self::Verbatim(_) => {}
        }
    }
}

/// What stands in brackets.
#[derive(Clone, Debug, PartialEq)]
pub struct Address {
    /// A register or symbol; `None` for a plain number.
    pub base: Option<String>,
    /// Bytes; 0 where none is written.
    pub offset: i64,
    /// Further members, as in `[map, {x, y}]` or `[a, %r1]`.
    pub rest: Vec<Operand>,
}

/// A literal, bit-exact.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Immediate {
    /// `42`, `-1`, `0x7f`, `0b1`, `077`, `4*8`; a `U` suffix is dropped.
    Int(i128),
    /// `0f3F800000`: the bits.
    F32(u32),
    /// `0d3FF0000000000000` or `1.0`: the bits.
    F64(u64),
}
