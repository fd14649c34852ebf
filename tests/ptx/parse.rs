//! Texts go through the parser and printer unharmed.

use std::fs;
use std::path::{Path, PathBuf};

use warptree::ptx::ir::{Block, Directive, Instruction, Item, Module, Statement, Variable};
use warptree::ptx::{parse, print};

pub fn data(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/ptx")
        .join(folder)
}

/// All files of a folder under tests/data/ptx, by name.
pub fn files(folder: &str, extension: &str) -> Vec<(String, String)> {
    let mut found: Vec<(String, String)> = fs::read_dir(data(folder))
        .expect("the folder exists")
        .map(|entry| entry.expect("readable").path())
        .filter(|path| path.extension().is_some_and(|e| e == extension))
        .map(|path| {
            let name = path
                .file_name()
                .expect("a file")
                .to_string_lossy()
                .into_owned();
            (name, fs::read_to_string(&path).expect("readable"))
        })
        .collect();
    found.sort();
    assert!(!found.is_empty(), "no .{extension} files in {folder}");
    found
}

pub fn instructions(module: &Module) -> Vec<&Instruction> {
    fn of<'a>(block: &'a Block, found: &mut Vec<&'a Instruction>) {
        for statement in &block.statements {
            match statement {
                Statement::Instruction(instruction) => found.push(instruction),
                Statement::Block(block) => of(block, found),
                Statement::Label(_) | Statement::Variable(_) | Statement::Directive(_) => {}
            }
        }
    }
    let mut found = Vec::new();
    for item in &module.items {
        if let Item::Function(function) = item
            && let Some(body) = &function.body
        {
            of(body, &mut found);
        }
    }
    found
}

/// What every accepted text must satisfy.
pub fn round_trips(name: &str, text: &str) -> Module {
    let squeeze = |text: &str| text.split_whitespace().collect::<String>();
    let module = parse(text).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(module.text, text);
    let printed = print(&module);
    assert_eq!(
        squeeze(&printed),
        squeeze(text),
        "{name}: printing lost text"
    );
    let again =
        parse(&printed).unwrap_or_else(|error| panic!("{name}, printed: {error}\n{printed}"));
    let (before, after) = (instructions(&module), instructions(&again));
    assert_eq!(
        before.len(),
        after.len(),
        "{name}: printing changed the tree"
    );
    for (before, after) in before.iter().zip(after) {
        assert_eq!(before.to_string(), after.to_string(), "{name}");
        let own = &module.text[before.span.range()];
        assert!(own.ends_with(';'), "{name}: span of `{own}`");
    }
    assert_eq!(print(&again), printed, "{name}: printing twice differs");
    module
}

#[test]
fn every_construct_round_trips() {
    for (name, text) in files("constructs", "ptx") {
        round_trips(&name, &text);
    }
}

#[test]
fn the_tree_of_every_construct() {
    for (name, text) in files("constructs", "ptx") {
        let mut tree = String::new();
        for item in &parse(&text).expect("parses").items {
            dump_item(&mut tree, item);
        }
        insta::with_settings!({snapshot_path => data("constructs"), prepend_module_to_snapshot => false, omit_expression => true}, {
            insta::assert_snapshot!(name, tree);
        });
    }
}

fn dump_item(out: &mut String, item: &Item) {
    match item {
        Item::Directive(directive) => dump_directive(out, directive),
        Item::Variable(variable) => dump_variable(out, variable),
        Item::Function(f) => {
            let linkage = f.linkage.as_deref().unwrap_or("-");
            *out += &format!("{:?} {} {linkage}\n", f.kind, f.name);
            for variable in &f.returns {
                *out += "returns ";
                dump_variable(out, variable);
            }
            f.params.iter().for_each(|p| dump_variable(out, p));
            f.directives.iter().for_each(|d| dump_directive(out, d));
            if let Some(body) = &f.body {
                dump_block(out, body);
            }
        }
    }
}

fn dump_block(out: &mut String, block: &Block) {
    *out += "{\n";
    for statement in &block.statements {
        match statement {
            Statement::Label(label) => *out += &format!("label {}\n", label.name),
            Statement::Variable(variable) => dump_variable(out, variable),
            Statement::Directive(directive) => dump_directive(out, directive),
            Statement::Block(block) => dump_block(out, block),
            Statement::Instruction(i) => {
                let guard = i.guard.as_ref().map_or(String::new(), |g| {
                    format!("@{}{} ", if g.negated { "!" } else { "" }, g.register)
                });
                *out += &format!("{guard}{} {:?} {:?}\n", i.opcode, i.modifiers, i.operands);
            }
        }
    }
    *out += "}\n";
}

fn dump_directive(out: &mut String, directive: &Directive) {
    *out += &format!("directive {} {:?}\n", directive.name, directive.arguments);
}

fn dump_variable(out: &mut String, v: &Variable) {
    let names: Vec<String> = (v.names.iter())
        .map(|n| {
            format!(
                "{} {:?} {:?} {:?}",
                n.name, n.count, n.dimensions, n.initializer
            )
        })
        .collect();
    *out += &format!(
        "variable {:?} {} align {:?} vector {:?} {} {:?} {names:?}\n",
        v.linkage, v.space, v.align, v.vector, v.ty, v.attributes
    );
}
