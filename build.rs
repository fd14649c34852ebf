//! Rebuilds the crate when a task or a space is added: they are embedded in the binary.

fn main() {
    println!("cargo::rerun-if-changed=tasks");
    println!("cargo::rerun-if-changed=search_spaces");
}
