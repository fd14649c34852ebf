//! Sources, their spaces and their renderings, driven by the files in `tests/data/source`.
#![expect(
    clippy::unwrap_used,
    reason = "a test that cannot set itself up has failed"
)]

mod source {
    mod render;
    mod spaces;
}
