//! A report as JUnit XML: one test case a check.

use quick_junit::{NonSuccessKind, SerializeError, TestCase, TestCaseStatus, TestSuite};

use super::{Check, Outcome, Report};

/// The report; what decides nothing is never a failure, and what was not done is skipped unless it had to be.
pub fn junit(report: &Report) -> Result<String, SerializeError> {
    let mut suite = TestSuite::new(report.folder.display().to_string());
    suite.add_test_cases(report.checks.iter().map(case));
    let mut all = quick_junit::Report::new("warptree check");
    all.add_test_suite(suite);
    all.to_string()
}

fn case(check: &Check) -> TestCase {
    let status = match (check.outcome, check.required) {
        (Outcome::Pass, true | false) => TestCaseStatus::success(),
        (Outcome::Fail | Outcome::NotDone, true) => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_message(check.detail.as_str());
            status
        }
        (Outcome::Fail | Outcome::NotDone, false) => {
            let mut status = TestCaseStatus::skipped();
            status.set_message(check.detail.as_str());
            status
        }
    };
    let mut case = TestCase::new(check.name.as_str(), status);
    case.set_classname("warptree.check");
    if check.outcome == Outcome::Pass {
        case.set_system_out(check.detail.as_str());
    }
    case
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_had_to_pass_is_a_failure() {
        let mut report = Report::new("kernel".into());
        report.checks = vec![
            Check::required("kernel.ptx", Outcome::Pass, "as certified"),
            Check::required("kernel.cubin", Outcome::Fail, "it hashes to <another>"),
            Check::required("verification", Outcome::NotDone, "not run"),
            Check::told("sm_120", Outcome::NotDone, "not written for it"),
        ];
        let xml = junit(&report).expect("writes");
        let head = r#"<testsuite name="kernel" tests="4" skipped="1" errors="0" failures="2">"#;
        assert!(xml.contains(head), "{xml}");
        assert!(
            xml.contains(r#"<failure message="it hashes to &lt;another&gt;"/>"#),
            "{xml}"
        );
        assert!(
            xml.contains(r#"<skipped message="not written for it"/>"#),
            "{xml}"
        );
        assert!(!report.passed());
    }
}
