//! Rebuilds the crate when a task, a space or a planted kernel is added: they are embedded in the binary.

fn main() {
    println!("cargo::rerun-if-changed=tasks");
    println!("cargo::rerun-if-changed=search_spaces");
    println!("cargo::rerun-if-changed=tests/adversarial");
}
