//! Tasks as their authors and users meet them: loading, pointing errors, inputs, references, proofs.

use warptree::task::{Catalogue, Origin};

#[test]
fn every_embedded_task_loads() {
    let catalogue = Catalogue::embedded();
    let names = catalogue.names().unwrap();
    assert!(names.len() >= 2, "{names:?}");
    for name in names {
        let task = catalogue.task(&name).unwrap();
        assert_eq!(task.origin, Origin::Embedded);
    }
}

#[test]
fn an_unknown_task_names_the_nearest() {
    let error = Catalogue::embedded().task("reduce_sun").unwrap_err();
    let text = error.to_string();
    assert!(text.contains("did you mean `reduce_sum`"), "{text}");
}
