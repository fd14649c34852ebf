//! Reads what ncu writes with `--csv --page raw`: messages, a header, a row of units, one row for each
//! launch. A number that is missing, `n/a` or not finite is no number; whether that matters is the caller's
//! to say. It runs nothing.

use std::collections::BTreeMap;

/// How often ncu starts the launches anew to collect all counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replay {
    /// Each kernel by itself, its memory put back in between.
    Kernel,
    /// The whole program.
    Application,
}

/// One launch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    /// The entry's name.
    pub kernel: String,
    /// Blocks in x, y, z.
    pub grid: Option<[u32; 3]>,
    /// Threads in x, y, z.
    pub block: Option<[u32; 3]>,
    values: BTreeMap<String, Cell>,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct Cell {
    total: Option<f64>,
    instances: Vec<(String, f64)>,
}

impl Row {
    /// A metric's value in its base unit (ns, bytes, %).
    pub fn value(&self, metric: &str) -> Option<f64> {
        self.values.get(metric)?.total
    }

    /// A metric's parts by key (opcode, address); empty where ncu gave none.
    pub fn instances(&self, metric: &str) -> &[(String, f64)] {
        self.values
            .get(metric)
            .map_or(&[], |cell| cell.instances.as_slice())
    }
}

/// Why there are no numbers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NcuError {
    /// The driver keeps the counters for administrators.
    #[error(
        "the driver does not permit performance counters to this user (ERR_NVGPUCTRPERM): run as root, or load \
         the driver with NVreg_RestrictProfilingToAdminUsers=0 (a line `options nvidia \
         NVreg_RestrictProfilingToAdminUsers=0` in /etc/modprobe.d, then reboot); a container also needs \
         --cap-add=SYS_ADMIN"
    )]
    NotPermitted,
    /// This ncu does not know a metric.
    #[error("this ncu does not know the metric {0}")]
    UnknownMetric(String),
    /// A kernel broke while ncu replayed it, though it ran by itself.
    #[error("the kernel failed when ncu replayed it: {0}")]
    ReplayFailed(String),
    /// Everything else, in ncu's words.
    #[error("ncu: {0}")]
    Failed(String),
}

/// Reads the log. A message of failure counts only where there are no rows: rows of launches before it
/// stand.
pub fn parse(log: &str) -> Result<Vec<Row>, NcuError> {
    let rows = rows(log)?;
    match (rows.is_empty(), failure(log)) {
        (true, Some(failure)) => Err(failure),
        (true, None) => Err(NcuError::Failed(said(log))),
        (false, _) => Ok(rows),
    }
}

/// The failure that a log tells of, if any.
pub fn failure(log: &str) -> Option<NcuError> {
    let mut other = None;
    for line in log.lines().filter(|line| line.starts_with("==ERROR==")) {
        let text = line.trim_start_matches("==ERROR==").trim();
        if text.contains("ERR_NVGPUCTRPERM") {
            return Some(NcuError::NotPermitted);
        }
        if let Some(name) = unknown_metric(text) {
            return Some(NcuError::UnknownMetric(name));
        }
        let broken = [
            "CUDA_ERROR_",
            "(700)",
            "illegal memory access",
            "LaunchFailed",
            "launch failure",
        ];
        if broken.iter().any(|sign| text.contains(sign)) {
            return Some(NcuError::ReplayFailed(text.to_owned()));
        }
        other.get_or_insert_with(|| NcuError::Failed(text.to_owned()));
    }
    other
}

/// `Failed to find metric X`, `Failed to find metric regex:^X`, or a list of them.
fn unknown_metric(text: &str) -> Option<String> {
    let rest = text.split("Failed to find metric").nth(1)?;
    let name = rest
        .trim_start_matches(['s', ':', ' ', '\'', '"'])
        .split(|c: char| c.is_whitespace() || matches!(c, '\'' | '"' | ','))
        .next()?;
    (!name.is_empty()).then(|| name.trim_end_matches('.').to_owned())
}

fn rows(log: &str) -> Result<Vec<Row>, NcuError> {
    let table: String = log
        .lines()
        .filter(|line| line.starts_with('"'))
        .flat_map(|line| [line, "\n"])
        .collect();
    let mut reader = csv::ReaderBuilder::new()
        .flexible(true)
        .from_reader(table.as_bytes());
    let broken = |error: csv::Error| NcuError::Failed(format!("its table does not read: {error}"));
    let header = reader.headers().map_err(broken)?.clone();
    let at = |name: &str| header.iter().position(|column| column == name);
    let Some(id) = at("ID") else {
        return Ok(Vec::new());
    };
    let mut units: Option<csv::StringRecord> = None;
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(broken)?;
        if record.len() != header.len() {
            return Err(NcuError::Failed(format!(
                "a row of its table has {} fields, its header {}",
                record.len(),
                header.len()
            )));
        }
        if record.get(id) == Some("") {
            units = Some(record);
            continue;
        }
        let text = |name: &str| at(name).and_then(|column| record.get(column));
        let mut row = Row {
            kernel: text("Kernel Name").unwrap_or_default().to_owned(),
            grid: text("Grid Size").and_then(dimensions),
            block: text("Block Size").and_then(dimensions),
            values: BTreeMap::new(),
        };
        for (column, name) in header.iter().enumerate() {
            let unit = units
                .as_ref()
                .and_then(|units| units.get(column))
                .unwrap_or_default();
            if let Some(text) = record.get(column) {
                row.values.insert(name.to_owned(), cell(text, scale(unit)));
            }
        }
        rows.push(row);
    }
    Ok(rows)
}

/// `12`, `1,234.5`, `n/a`, `12 (3; 9)`, `12 (FADD: 3; FFMA: 9)`.
fn cell(text: &str, scale: f64) -> Cell {
    let (total, parts) = match text.trim().split_once(" (") {
        Some((total, parts)) if parts.ends_with(')') => (total, &parts[..parts.len() - 1]),
        Some(_) | None => (text.trim(), ""),
    };
    let instances = parts
        .split(';')
        .filter_map(|part| {
            let (key, value) = part.rsplit_once(':')?;
            Some((key.trim().to_owned(), number(value.trim())? * scale))
        })
        .collect();
    Cell {
        total: number(total).map(|value| value * scale),
        instances,
    }
}

/// Thousands separators go; what is not finite is no number.
fn number(text: &str) -> Option<f64> {
    let value: f64 = text.replace(',', "").parse().ok()?;
    value.is_finite().then_some(value)
}

/// What brings a unit to ns, bytes and plain counts, should `--print-units base` not be obeyed.
fn scale(unit: &str) -> f64 {
    match unit {
        "us" | "usecond" => 1e3,
        "ms" | "msecond" => 1e6,
        "s" | "second" => 1e9,
        "Kbyte" => 1e3,
        "Mbyte" => 1e6,
        "Gbyte" => 1e9,
        "Tbyte" => 1e12,
        _ => 1.0,
    }
}

/// `(8192, 1, 1)` or `8192, 1, 1`.
fn dimensions(text: &str) -> Option<[u32; 3]> {
    let mut parts = text
        .trim_matches(['(', ')', ' '])
        .split(',')
        .map(|part| part.trim().parse().ok());
    let all = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(all)
}

/// The last words of a log without rows and errors.
fn said(log: &str) -> String {
    const CHARACTERS: usize = 300;
    let lines: Vec<&str> = log
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("==PROF== Connected"))
        .collect();
    let tail = lines[lines.len().saturating_sub(3)..].join(" / ");
    if tail.is_empty() {
        "it wrote nothing".to_owned()
    } else {
        tail.chars().take(CHARACTERS).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = r#""ID","Process ID","Kernel Name","Block Size","Grid Size","gpu__time_duration.sum","dram__bytes_read.sum","sass__inst_executed_per_opcode""#;
    const UNITS: &str = r#""","","","","","ns","byte","inst""#;

    fn log(rows: &[&str]) -> String {
        let mut text =
            format!("==PROF== Connected to process 7 (/tmp/warptree)\n{HEADER}\n{UNITS}\n");
        for row in rows {
            text.push_str(row);
            text.push('\n');
        }
        text + "==PROF== Disconnected from process 7\n"
    }

    #[test]
    fn numbers_come_with_separators_instances_and_holes() {
        let row = r#""0","7","k","(256, 1, 1)","(8192, 2, 1)","1,234.50","n/a","3,000 (FADD: 1,000; FFMA: 2,000)""#;
        let rows = parse(&log(&[row])).unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!(
            (rows[0].grid, rows[0].block),
            (Some([8192, 2, 1]), Some([256, 1, 1]))
        );
        assert_eq!(rows[0].value("gpu__time_duration.sum"), Some(1234.5));
        assert_eq!(rows[0].value("dram__bytes_read.sum"), None);
        assert_eq!(rows[0].value("no such"), None);
        let opcodes = [("FADD".to_owned(), 1000.0), ("FFMA".to_owned(), 2000.0)];
        assert_eq!(rows[0].instances("sass__inst_executed_per_opcode"), opcodes);
    }

    #[test]
    fn units_that_were_scaled_are_brought_back() {
        let text = log(&[r#""0","7","k","(1, 1, 1)","(1, 1, 1)","1.5","2","0""#])
            .replace("\"ns\",\"byte\"", "\"us\",\"Mbyte\"");
        let rows = parse(&text).unwrap();
        assert_eq!(rows[0].value("gpu__time_duration.sum"), Some(1500.0));
        assert_eq!(rows[0].value("dram__bytes_read.sum"), Some(2e6));
    }

    #[test]
    fn each_failure_is_told_apart() {
        let perm = "==PROF== Connected to process 7\n==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the target device 0.\n";
        assert_eq!(parse(perm), Err(NcuError::NotPermitted));
        let metric = "==ERROR== Failed to find metric foo__bar.sum\n";
        assert_eq!(
            parse(metric),
            Err(NcuError::UnknownMetric("foo__bar.sum".into()))
        );
        let replay = "==ERROR== Failed to profile \"k\" in process 7\n==ERROR== An error was reported by the driver: CUDA_ERROR_ILLEGAL_ADDRESS (700)\n";
        assert!(matches!(failure(replay), Some(NcuError::ReplayFailed(_))));
        assert!(
            matches!(parse("==WARNING== No kernels were profiled.\n"), Err(NcuError::Failed(text)) if text.contains("No kernels"))
        );
        assert!(matches!(parse(""), Err(NcuError::Failed(text)) if text.contains("nothing")));
        let short = log(&[r#""0","7","k""#]);
        assert!(matches!(parse(&short), Err(NcuError::Failed(text)) if text.contains("3 fields")));
    }

    #[test]
    fn rows_before_a_failure_stand() {
        let mut text = log(&[r#""0","7","k","(1, 1, 1)","(1, 1, 1)","1","2","0""#]);
        text.push_str("==ERROR== An error was reported by the driver: CUDA_ERROR_LAUNCH_FAILED\n");
        assert_eq!(parse(&text).unwrap().len(), 1);
        assert!(failure(&text).is_some());
    }
}
