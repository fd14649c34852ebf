//! SIGKILL while a model is being asked: at most the calls in flight are lost, no recorded reply is paid for
//! again, and a budget of calls holds over all sessions together.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64;
use warptree::llm::{Outcome, exchanges};
use warptree::store::{Event, StoredRun};

const THINKING: Duration = Duration::from_millis(120);
const MOST_CALLS: usize = 30;

/// Answers every question with a setting of the first knob it names; counts questions.
fn serve() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let base = format!("http://{}", listener.local_addr().expect("bound"));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let log = Arc::clone(&log);
            std::thread::spawn(move || answer(stream, &log));
        }
    });
    (base, asked)
}

fn answer(mut stream: TcpStream, log: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().expect("clones"));
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
            break;
        }
        if let Some(said) = line.to_lowercase().strip_prefix("content-length:") {
            length = said.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    if reader.read_exact(&mut body).is_err() {
        return;
    }
    let body: serde_json::Value = serde_json::from_slice(&body).expect("requests are JSON");
    let prompt = body["messages"].to_string();
    let turn = {
        let mut log = log.lock().expect("not poisoned");
        log.push(prompt);
        log.len()
    };
    std::thread::sleep(THINKING);
    let question = body["messages"][1]["content"].as_str().unwrap_or("");
    let setting = question.lines().find_map(|line| {
        let (name, values) = line.strip_prefix("- ")?.split_once(": ")?;
        let (values, _) = values.split_once(" (default ")?;
        let values: Vec<&str> = values.split(", ").collect();
        Some(format!("{{\"{name}\": {}}}", values[turn % values.len()]))
    });
    let reply = format!(
        "Plan: turn {turn}\n```json\n{{\"settings\": [{}]}}\n```",
        setting.unwrap_or_default()
    );
    let chunk =
        serde_json::json!({"choices": [{"delta": {"content": reply}, "finish_reason": "stop"}]});
    let events = format!("data: {chunk}\n\ndata: [DONE]\n\n");
    // Whoever was killed does not listen any more.
    let _ = write!(
        stream,
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{events}",
        events.len()
    );
}

/// How often each question stands in the recording as answered.
fn answered(run: &Path) -> HashMap<String, usize> {
    let mut counts = HashMap::new();
    for exchange in exchanges(&run.join("exchanges.jsonl")).expect("a recording") {
        if let Outcome::Reply(_) = exchange.outcome {
            *counts.entry(exchange.hash.to_string()).or_default() += 1;
        }
    }
    counts
}

/// What is left of a command that was killed again and again before it was let be.
struct Left {
    scratch: tempfile::TempDir,
    /// How often the model was asked.
    calls: usize,
    kills: usize,
}

/// Starts a command, and the same or, where a run has begun, `again`, until it ends by itself; kills the first six.
fn killed(begin: &str, again: Option<&str>) -> Left {
    let scratch = tempfile::tempdir().expect("scratch");
    let (base, asked) = serve();
    let begin = format!("{begin} --model m-1 --base-url {base} --max-calls {MOST_CALLS}");
    let run = scratch.path().join("run/run.toml");
    let mut rng = Pcg64::seed_from_u64(7);
    let mut kills = 0;
    loop {
        let words = again.filter(|_| run.exists()).unwrap_or(&begin);
        let mut child = super::warptree(scratch.path())
            .args(words.split(' '))
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("starts");
        if kills < 6 {
            let after = THINKING.mul_f64(0.5 + 3.0 * rng.random::<f64>());
            std::thread::sleep(after);
            if child.try_wait().expect("waits").is_none() {
                child.kill().expect("kills");
                child.wait().expect("reaps");
                kills += 1;
                continue;
            }
        }
        let output = child.wait_with_output().expect("ends");
        assert!(
            matches!(output.status.code(), Some(0 | 1)),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(kills >= 3, "{kills} kills are too few to tell");
        let calls = asked.lock().expect("not poisoned").len();
        assert!(calls <= MOST_CALLS, "{calls} calls of {MOST_CALLS}");
        return Left {
            scratch,
            calls,
            kills,
        };
    }
}

/// Replies in all recordings in and below a folder; none is there twice.
fn all_answered(folder: &Path) -> usize {
    if folder.join("exchanges.jsonl").exists() {
        let answered = answered(folder);
        let path = folder.display();
        assert!(
            answered.values().all(|count| *count == 1),
            "{path}: a reply was paid for twice: {answered:?}"
        );
        return answered.len();
    }
    let entries = std::fs::read_dir(folder).expect("a folder");
    let below = entries.map(|entry| entry.expect("readable").path());
    let folders = below.filter(|path| path.is_dir());
    folders.map(|path| all_answered(&path)).sum()
}

impl Left {
    /// All replies; of the calls at most `in_flight` a kill were lost.
    fn answered(&self, in_flight: usize) -> usize {
        let (calls, kills) = (self.calls, self.kills);
        let answered = all_answered(self.scratch.path());
        assert!(
            calls - answered <= in_flight * kills,
            "{calls} calls, {answered} answers, {kills} kills"
        );
        answered
    }
}

#[test]
fn killed_in_mid_call_a_run_loses_at_most_that_call_and_pays_for_nothing_twice() {
    // A table would answer so fast that the run is over before it can be killed.
    let begin = "search transpose --device sim --budget 60 --jobs 2 --out run";
    let left = killed(begin, Some("resume run --jobs 2"));
    left.answered(2);

    // What the log says was spent is what the recording holds.
    let run = left.scratch.path().join("run");
    let answered = answered(&run);
    let stored = StoredRun::open(&run).expect("opens");
    let told: Vec<String> = stored
        .lines
        .iter()
        .filter_map(|line| line.event.asked())
        .flat_map(|asked| asked.exchanges.iter().map(ToString::to_string))
        .collect();
    let mut once = told.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), told.len(), "an exchange is told twice");
    assert!(told.len() >= 3, "{} exchanges", told.len());
    assert!(told.iter().all(|hash| answered.contains_key(hash)));
    let finished = stored.lines.last().map(|line| &line.event);
    assert!(
        matches!(finished, Some(Event::Finished { .. })),
        "{finished:?}"
    );
}

#[test]
fn killed_in_mid_call_a_comparison_loses_at_most_that_call_and_pays_for_nothing_twice() {
    let compare = "compare transpose --device sim --space tiled --methods best-of-n,refine,search --seeds 1 \
                   --budget 4 --jobs 1 --out cmp";
    let answered = killed(compare, None).answered(1);
    assert!(answered >= 8, "{answered} answers");
}

#[test]
fn killed_in_mid_call_a_benchmark_loses_at_most_that_call_and_pays_for_nothing_twice() {
    let traces = concat!(env!("CARGO_MANIFEST_DIR"), "/traces");
    let bench = format!(
        "bench --suite l1l2l3 --tasks-only transpose --device recorded:{traces}/{{task}}-h200.jsonl.gz --turns 3 \
         --trajectories 4 --jobs 1 --out b"
    );
    let answered = killed(&bench, None).answered(1);
    assert!(answered >= 12, "{answered} answers");
}
