//! Reads the files of auto-tuners: Kernel Tuner's cache and the T4 results format, plain or gzip.
//! A file cut off in the middle keeps what came before the cut, and says what is lost.

use std::collections::BTreeMap;
use std::io::Read;

use flate2::read::MultiGzDecoder;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Map, Value as Json};

use super::table::{Row, Table};
use crate::source::KnobValue;
use crate::units::Nanos;

/// Times from here on, in milliseconds, are what tuners write for "none".
const SENTINEL_MS: f64 = 1e20;

/// Why a file is no table.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// Neither format's top-level key is there.
    #[error(
        "this is neither a Kernel Tuner cache (it has no \"cache\") nor a T4 results file (it has no \"results\")"
    )]
    UnknownFormat,
    /// It is cut off before its first complete record.
    #[error(
        "the file ends at byte {at} before the first complete record: nothing can be read from it"
    )]
    CutTooEarly {
        /// Where it ends.
        at: usize,
    },
    /// Not JSON, or a field is missing or of the wrong type.
    #[error("line {line}, column {column}: {message}")]
    Syntax {
        /// 1-based.
        line: usize,
        /// 1-based.
        column: usize,
        /// What is wrong.
        message: String,
    },
    /// A record does not fit the table.
    #[error("record {record}: {message}")]
    Record {
        /// Its configuration, or its number.
        record: String,
        /// What is wrong.
        message: String,
    },
    /// Compressed, and no byte of it can be read.
    #[error("the gzip data cannot be read: {0}")]
    Gzip(std::io::Error),
    /// Nothing was recorded.
    #[error("the table holds no record")]
    Empty,
}

/// Reads a table from a file's bytes.
pub fn read(bytes: &[u8]) -> Result<Table, TableError> {
    let (text, damage) = text(bytes)?;
    let (mut table, cut) = if let Some(start) = value_of(&text, "cache", '{') {
        let (records, end) = records(&text, start, '}', cache_record)?;
        let (head, end) = head(&text, "cache", end)?;
        (cache_table(&head, records)?, end)
    } else if let Some(start) = value_of(&text, "results", '[') {
        let (records, end) = records(&text, start, ']', json)?;
        let (head, end) = head(&text, "results", end)?;
        (t4_table(&head, records)?, end)
    } else if serde_json::from_str::<IgnoredAny>(&text).is_err_and(|error| error.is_eof()) {
        return Err(TableError::CutTooEarly { at: text.len() });
    } else {
        return Err(TableError::UnknownFormat);
    };
    if table.is_empty() {
        return Err(match cut {
            End::Closed { .. } => TableError::Empty,
            End::Unclosed | End::Inside { .. } => TableError::CutTooEarly { at: text.len() },
        });
    }
    let kept = table.len();
    match cut {
        End::Closed { .. } => {}
        End::Unclosed => table.warn(format!(
            "the file was not closed: whoever wrote it did not finish; all {kept} settings in it were read"
        )),
        End::Inside { line } => table.warn(format!(
            "the file is cut off in the middle of a record on line {line}: that record and whatever \
             followed are lost; the {kept} settings before it were read"
        )),
    }
    damage.into_iter().for_each(|damage| table.warn(damage));
    Ok(table)
}

/// How a list of records ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// With its bracket, at this byte.
    Closed { at: usize },
    /// After a complete record.
    Unclosed,
    /// In the middle of one.
    Inside { line: usize },
}

type Record = Map<String, Json>;

/// The file's text, decompressed where it is gzip, and what is wrong with the compressed data.
fn text(bytes: &[u8]) -> Result<(String, Option<String>), TableError> {
    let mut damage = None;
    let mut plain = Vec::new();
    if bytes.starts_with(&[0x1f, 0x8b]) {
        if let Err(error) = MultiGzDecoder::new(bytes).read_to_end(&mut plain) {
            if plain.is_empty() {
                return Err(TableError::Gzip(error));
            }
            damage = Some(format!(
                "the gzip data is damaged or cut off ({error}); what could be decompressed was read"
            ));
        }
    } else {
        plain.extend_from_slice(bytes);
    }
    match String::from_utf8(plain) {
        Ok(text) => Ok((text, damage)),
        // A character cut in half ends the text; anything else is no text at all.
        Err(error) if error.utf8_error().error_len().is_none() => {
            let valid = error.utf8_error().valid_up_to();
            let text = String::from_utf8_lossy(&error.as_bytes()[..valid]).into_owned();
            Ok((text, damage))
        }
        Err(error) => {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            Err(TableError::Syntax {
                line: before.iter().filter(|&&byte| byte == b'\n').count() + 1,
                column: before
                    .iter()
                    .rev()
                    .take_while(|&&byte| byte != b'\n')
                    .count()
                    + 1,
                message: "this is not UTF-8 text".into(),
            })
        }
    }
}

/// The byte after the bracket that opens the value of the first key of this name.
fn value_of(text: &str, key: &str, open: char) -> Option<usize> {
    let quoted = format!("\"{key}\"");
    text.match_indices(&quoted).find_map(|(at, _)| {
        let rest = text[at + quoted.len()..].trim_start().strip_prefix(':')?;
        let rest = rest.trim_start().strip_prefix(open)?;
        Some(text.len() - rest.len())
    })
}

/// All that stands beside the records, as one object, and how the file ends.
fn head(text: &str, key: &str, end: End) -> Result<(Record, End), TableError> {
    let key_at = text.find(&format!("\"{key}\"")).unwrap_or(text.len());
    let before = text[..key_at].trim_end().trim_end_matches(',');
    let mut fields: Record = parse(&format!("{before}}}"), 0, text)?;
    let End::Closed { at } = end else {
        return Ok((fields, end));
    };
    let after = text[at + 1..].trim_start().trim_start_matches(',');
    match serde_json::from_str::<Record>(&format!("{{{after}")) {
        Ok(more) => {
            fields.extend(more);
            Ok((fields, end))
        }
        Err(error) if error.is_eof() => Ok((fields, End::Unclosed)),
        Err(error) => Err(syntax(&error, at, text)),
    }
}

/// Records up to the closing bracket or the cut.
fn records<R>(
    text: &str,
    mut at: usize,
    close: char,
    one: impl Fn(&str, &mut usize) -> Result<Option<R>, TableError>,
) -> Result<(Vec<R>, End), TableError> {
    let mut records = Vec::new();
    loop {
        let rest = text[at..].trim_start_matches(|c: char| c.is_whitespace() || c == ',');
        at = text.len() - rest.len();
        if rest.is_empty() {
            return Ok((records, End::Unclosed));
        }
        if rest.starts_with(close) {
            return Ok((records, End::Closed { at }));
        }
        let start = at;
        match one(text, &mut at)? {
            Some(record) => records.push(record),
            None => {
                let line = place(text, start).0;
                return Ok((records, End::Inside { line }));
            }
        }
    }
}

/// `"16,1,2": {…}`; `None` where the text ends inside it.
fn cache_record(text: &str, at: &mut usize) -> Result<Option<(String, Record)>, TableError> {
    let Some(key) = json::<String>(text, at)? else {
        return Ok(None);
    };
    let rest = text[*at..].trim_start();
    *at = text.len() - rest.len();
    if rest.is_empty() {
        return Ok(None);
    }
    if !rest.starts_with(':') {
        let (line, column) = place(text, *at);
        let message = "`:` and the record must follow its configuration".into();
        return Err(TableError::Syntax {
            line,
            column,
            message,
        });
    }
    *at += 1;
    Ok(json(text, at)?.map(|record| (key, record)))
}

/// The next JSON value; `None` where the text ends inside it.
fn json<T: DeserializeOwned>(text: &str, at: &mut usize) -> Result<Option<T>, TableError> {
    let mut values = serde_json::Deserializer::from_str(&text[*at..]).into_iter::<T>();
    match values.next() {
        Some(Ok(value)) => {
            *at += values.byte_offset();
            Ok(Some(value))
        }
        Some(Err(error)) if !error.is_eof() => Err(syntax(&error, *at, text)),
        Some(Err(_)) | None => Ok(None),
    }
}

fn parse<T: DeserializeOwned>(part: &str, at: usize, text: &str) -> Result<T, TableError> {
    serde_json::from_str(part).map_err(|error| syntax(&error, at, text))
}

/// An error in the part of `text` that begins at byte `at`, placed in the whole.
fn syntax(error: &serde_json::Error, at: usize, text: &str) -> TableError {
    let (line, column) = place(text, at);
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or(&message);
    TableError::Syntax {
        line: line + error.line().saturating_sub(1),
        column: if error.line() > 1 {
            error.column()
        } else {
            column + error.column().saturating_sub(1)
        },
        message: message.to_owned(),
    }
}

/// 1-based line and column.
fn place(text: &str, at: usize) -> (usize, usize) {
    let before = &text[..at];
    let line = before.matches('\n').count() + 1;
    let column = before.len() - before.rfind('\n').map_or(0, |newline| newline + 1) + 1;
    (line, column)
}

fn cache_table(head: &Record, records: Vec<(String, Record)>) -> Result<Table, TableError> {
    let names: Vec<String> = field(head, "tune_params_keys")?;
    let listed: Option<BTreeMap<String, Vec<Json>>> = match head.get("tune_params") {
        Some(_) => Some(field(head, "tune_params")?),
        None => None,
    };
    let mut knobs = Vec::new();
    for name in &names {
        let values = listed.as_ref().and_then(|listed| listed.get(name));
        knobs.push((
            name.clone(),
            values.into_iter().flatten().map(knob_value).collect(),
        ));
    }
    let mut rows = Vec::with_capacity(records.len());
    for (key, record) in records {
        let bad = |message: String| TableError::Record {
            record: format!("\"{key}\""),
            message,
        };
        let setting = setting(&names, &record).map_err(bad)?;
        let error = record.get("__error__").and_then(Json::as_str);
        let samples = numbers(record.get("times"));
        let row = match (error, record.get("time")) {
            (Some(reason), _) => Row::Failed {
                reason: reason.to_owned(),
            },
            (None, Some(time)) => row(time, &samples, MILLISECOND).map_err(bad)?,
            (None, None) => return Err(bad("it has no \"time\"".into())),
        };
        rows.push((setting, row));
    }
    Ok(Table::new(knobs, rows))
}

fn t4_table(head: &Record, records: Vec<Record>) -> Result<Table, TableError> {
    let declared = head
        .get("metadata")
        .and_then(|metadata| metadata.get("timeunit"));
    let mut names: Vec<String> = Vec::new();
    let mut values: Vec<Vec<KnobValue>> = Vec::new();
    let mut rows = Vec::with_capacity(records.len());
    for (number, record) in records.into_iter().enumerate() {
        let bad = |message: String| TableError::Record {
            record: format!("{} (counted from 0)", number),
            message,
        };
        let configuration = record.get("configuration").and_then(Json::as_object);
        let configuration =
            configuration.ok_or_else(|| bad("it has no \"configuration\"".into()))?;
        if names.is_empty() {
            names = configuration.keys().cloned().collect();
            values = vec![Vec::new(); names.len()];
        }
        let setting = setting(&names, configuration).map_err(bad)?;
        for (known, value) in values.iter_mut().zip(&setting) {
            if !known.contains(value) {
                known.push(value.clone());
            }
        }
        let row = t4_row(&record, declared).map_err(bad)?;
        rows.push((setting, row));
    }
    // The format does not list a knob's values: numbers in their order are the best guess there is.
    values.iter_mut().for_each(|known| known.sort_unstable());
    Ok(Table::new(names.into_iter().zip(values).collect(), rows))
}

fn t4_row(record: &Record, declared: Option<&Json>) -> Result<Row, String> {
    let invalidity = record.get("invalidity").and_then(Json::as_str);
    if let Some(reason) = invalidity.filter(|&reason| reason != "correct") {
        return Ok(Row::Failed {
            reason: reason.to_owned(),
        });
    }
    let measurements = record.get("measurements").and_then(Json::as_array);
    let named =
        |measurement: &&Json| measurement.get("name").and_then(Json::as_str) == Some("time");
    let measurement = measurements.and_then(|all| all.iter().find(named));
    let measurement = measurement.ok_or("it has no measurement named \"time\"")?;
    let own = measurement
        .get("unit")
        .and_then(Json::as_str)
        .filter(|unit| !unit.is_empty());
    let unit = own.or(declared.and_then(Json::as_str)).ok_or(
        "neither the measurement nor the file's metadata (timeunit) names the time's unit",
    )?;
    let samples = numbers(record.get("times").and_then(|times| times.get("runtimes")));
    let value = measurement
        .get("value")
        .ok_or("its time has no \"value\"")?;
    row(value, &samples, nanoseconds_per(unit)?)
}

/// Nanoseconds in Kernel Tuner's unit.
const MILLISECOND: f64 = 1e6;

/// The format's own example writes "miliseconds".
fn nanoseconds_per(unit: &str) -> Result<f64, String> {
    match unit {
        "s" | "seconds" => Ok(1e9),
        "ms" | "miliseconds" | "milliseconds" => Ok(MILLISECOND),
        "us" | "µs" | "microseconds" => Ok(1e3),
        "ns" | "nanoseconds" => Ok(1.0),
        other => Err(format!(
            "\"{other}\" is no known unit of time (seconds, milliseconds, microseconds, nanoseconds)"
        )),
    }
}

/// A number is a time unless it stands for none; text names a failure.
fn row(time: &Json, samples: &[f64], unit: f64) -> Result<Row, String> {
    if let Some(reason) = time.as_str() {
        return Ok(Row::Failed {
            reason: reason.to_owned(),
        });
    }
    let Some(value) = time.as_f64() else {
        return Err(format!(
            "its time is {time}: neither a number nor a failure's name"
        ));
    };
    let time = Nanos::new(value * unit).filter(|_| value < SENTINEL_MS);
    Ok(match time {
        Some(time) => Row::Time {
            time,
            samples: samples
                .iter()
                .filter_map(|sample| Nanos::new(sample * unit))
                .collect(),
        },
        None => Row::Failed {
            reason: format!("the recorded time {value} is no time"),
        },
    })
}

fn setting(names: &[String], record: &Record) -> Result<Vec<KnobValue>, String> {
    let value = |name: &String| {
        let value = record.get(name).map(knob_value);
        value.ok_or_else(|| format!("it has no value for \"{name}\""))
    };
    names.iter().map(value).collect()
}

/// Whole numbers and switches are numbers; anything else is kept as it is written.
fn knob_value(value: &Json) -> KnobValue {
    match value {
        Json::Bool(on) => KnobValue::Int(i64::from(*on)),
        Json::String(text) => KnobValue::Text(text.clone()),
        Json::Number(number) => {
            let whole = number
                .as_f64()
                .filter(|x| x.fract() == 0.0 && x.abs() < 2f64.powi(53));
            match number.as_i64().or(whole.map(|x| x as i64)) {
                Some(number) => KnobValue::Int(number),
                None => KnobValue::Text(number.to_string()),
            }
        }
        Json::Null | Json::Array(_) | Json::Object(_) => KnobValue::Text(value.to_string()),
    }
}

fn numbers(list: Option<&Json>) -> Vec<f64> {
    let list = list.and_then(Json::as_array);
    list.into_iter()
        .flatten()
        .filter_map(Json::as_f64)
        .collect()
}

fn field<T: DeserializeOwned>(head: &Record, key: &str) -> Result<T, TableError> {
    let value = head.get(key).cloned().unwrap_or(Json::Null);
    serde_json::from_value(value).map_err(|error| TableError::Record {
        record: format!("\"{key}\""),
        message: error.to_string(),
    })
}
