//! Tables for spreadsheets and scripts, as CSV.

/// A header and lines of as many fields.
pub(super) fn csv<const FIELDS: usize>(
    header: [&str; FIELDS],
    lines: impl IntoIterator<Item = [String; FIELDS]>,
) -> String {
    const WRITES: &str = "invariant: memory takes every line of equal length";
    let mut rows = csv::Writer::from_writer(Vec::new());
    rows.write_record(header).expect(WRITES);
    for line in lines {
        rows.write_record(line).expect(WRITES);
    }
    let bytes = rows.into_inner().expect(WRITES);
    String::from_utf8_lossy(&bytes).into_owned()
}
