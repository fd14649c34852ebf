//! What servers do to a call: `tests/data/llm/NAME.toml` holds the bytes that a raw TCP server answers with,
//! one `[[turn]]` a connection, and what must come of it. Each is played as it stands and in small pieces.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::Deserialize;
use warptree::llm::{
    Api, ChatError, ChatReply, ChatRequest, Finish, OpenOptions, Schema, Tally, open,
};

use crate::client::{KEY, options, request};

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    /// What is special about it, for readers.
    about: String,
    api: Api,
    /// The request asks for a schema.
    #[serde(default)]
    schema: bool,
    turn: Vec<Turn>,
    expect: Expected,
}

/// One connection.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Turn {
    #[serde(default = "ok")]
    status: u16,
    #[serde(default)]
    headers: Vec<String>,
    #[serde(default)]
    body: String,
    /// So many bytes are cut off the body's end.
    #[serde(default)]
    drop: usize,
    /// Instead of an answer.
    raw: Option<String>,
    #[serde(default)]
    length: Length,
    #[serde(default)]
    then: Then,
}

/// What the head says of the body's length.
#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Length {
    #[default]
    Said,
    None,
    /// More than comes.
    More,
}

#[derive(Clone, Copy, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Then {
    #[default]
    Close,
    /// Nothing more, for longer than anybody waits.
    Hang,
    /// The body again and again.
    Repeat,
    Reset,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    text: Option<String>,
    finish: Option<Finish>,
    usage: Option<toml::Table>,
    /// The error's kind, as recordings name it.
    error: Option<String>,
    #[serde(default)]
    words: Vec<String>,
    /// Of the last request's body: what it says, or an empty text for what it must not say.
    #[serde(default)]
    asked: toml::Table,
}

fn ok() -> u16 {
    200
}

const PATIENCE: Duration = Duration::from_millis(250);

/// What a server was sent.
#[derive(Default)]
struct Seen {
    connections: AtomicUsize,
    last: Mutex<serde_json::Value>,
}

/// Plays the turns, the bytes in pieces of `piece`.
fn serve(turns: Vec<Turn>, piece: usize) -> (String, Arc<Seen>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let base = format!("http://{}", listener.local_addr().expect("bound"));
    let seen = Arc::<Seen>::default();
    let told = Arc::clone(&seen);
    std::thread::spawn(move || {
        for turn in turns {
            let Ok((stream, _)) = listener.accept() else {
                return;
            };
            told.connections.fetch_add(1, Ordering::SeqCst);
            let told = Arc::clone(&told);
            std::thread::spawn(move || play(stream, &turn, piece, &told));
        }
    });
    (base, seen)
}

fn play(mut stream: TcpStream, turn: &Turn, piece: usize, seen: &Seen) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length:")?.trim().parse().ok())
        .unwrap_or(0);
    let unread = usize::from(turn.then == Then::Reset);
    let mut asked = vec![0; length - unread];
    let _ = stream.read_exact(&mut asked);
    *seen.last.lock().expect("not poisoned") = serde_json::from_slice(&asked).unwrap_or_default();
    let mut body = turn.body.clone().into_bytes();
    body.truncate(body.len() - turn.drop);
    let answer = match &turn.raw {
        Some(raw) => raw.clone().into_bytes(),
        None => {
            let mut head = format!("HTTP/1.1 {} X\r\nconnection: close\r\n", turn.status);
            for line in &turn.headers {
                head.push_str(line);
                head.push_str("\r\n");
            }
            match turn.length {
                Length::Said => head.push_str(&format!("content-length: {}\r\n", body.len())),
                Length::More => head.push_str(&format!("content-length: {}\r\n", body.len() + 99)),
                Length::None => {}
            }
            head.push_str("\r\n");
            [head.into_bytes(), body.clone()].concat()
        }
    };
    let _ = stream.set_nodelay(true);
    for (nth, part) in answer.chunks(piece).enumerate() {
        if stream.write_all(part).is_err() {
            return;
        }
        if piece < 100 && nth % 8 == 0 {
            std::thread::sleep(Duration::from_micros(300));
        }
    }
    match turn.then {
        Then::Close => {
            let _ = stream.shutdown(Shutdown::Write);
        }
        Then::Hang => std::thread::sleep(8 * PATIENCE),
        Then::Repeat => {
            while stream.write_all(&body).is_ok() {
                std::thread::sleep(PATIENCE / 10);
            }
        }
        // A connection that closes with unread data is reset.
        Then::Reset => {}
    }
}

fn ask(case: &Case, piece: usize) -> (Result<ChatReply, ChatError>, Arc<Seen>) {
    let (base, seen) = serve(case.turn.clone(), piece);
    // Who is to run out of time does so soon; the others have as much of it as a busy machine may need.
    let waits = |turn: &Turn| matches!(turn.then, Then::Hang | Then::Repeat);
    let patience = match case.turn.iter().any(waits) {
        true => PATIENCE,
        false => 40 * PATIENCE,
    };
    let options = OpenOptions {
        api: Some(case.api),
        idle_timeout: patience,
        total_timeout: Some(3 * patience),
        ..options()
    };
    let schema = case.schema.then(|| Schema {
        name: "settings".to_owned(),
        schema: serde_json::json!({"type": "object"}),
    });
    let chat = open("m-1", Some(&base), &options).expect("a good configuration");
    let request = ChatRequest {
        schema,
        max_output_tokens: Some(32_768),
        ..request("Go.")
    };
    let reply = chat.complete(&request, &mut Tally::default());
    (reply, seen)
}

fn fault(case: &Case, piece: usize) -> Option<String> {
    let (reply, seen) = ask(case, piece);
    let connections = seen.connections.load(Ordering::SeqCst);
    let last = seen.last.lock().expect("not poisoned").clone();
    let expect = &case.expect;
    if let Some((name, wanted)) = expect.asked.iter().find(|(name, wanted)| {
        let sent = last
            .get(name.as_str())
            .map_or("\"\"".to_owned(), ToString::to_string);
        sent != wanted.to_string()
    }) {
        return Some(format!("asked for {name} = {wanted}, not in {last}"));
    }
    let told = format!("{reply:?} after {connections} connections");
    let right = match (&reply, &expect.text, &expect.error) {
        (Ok(reply), Some(text), _) => {
            let usage = serde_json::to_value(reply.usage).expect("writes");
            let counts = expect.usage.iter().flatten().all(|(name, count)| {
                let count = count.to_string().replace('"', "");
                let got = usage.get(name).map_or("0".to_owned(), ToString::to_string);
                got == count
            });
            reply.text == *text && Some(&reply.finish) == expect.finish.as_ref() && counts
        }
        (Err(error), None, Some(kind)) => {
            let value = serde_json::to_value(error).expect("writes");
            let message = error.to_string();
            value["kind"] == kind.as_str()
                && expect.words.iter().all(|word| message.contains(word))
                && !message.contains(KEY)
        }
        (Ok(_) | Err(_), _, _) => false,
    };
    // A reply that came before a turn leaves that turn unplayed; otherwise each turn is one connection.
    let whole = connections == case.turn.len() || (reply.is_ok() && connections == 1);
    (!right || !whole).then_some(told)
}

#[test]
fn every_transport_comes_to_what_stands_in_its_file() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/llm");
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .expect("is there")
        .map(|entry| entry.expect("readable").path())
        .collect();
    names.sort();
    assert!(names.len() >= 60, "{} cases", names.len());
    // Most of the time is waiting.
    let faults = std::sync::Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while let Some(path) = names.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let text = std::fs::read_to_string(path).expect("readable");
                    let case: Case = toml::from_str(&text)
                        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
                    assert!(!case.about.is_empty());
                    for piece in [usize::MAX, 7] {
                        if let Some(fault) = fault(&case, piece) {
                            let fault = format!("{} in pieces of {piece}: {fault}", path.display());
                            faults.lock().expect("not poisoned").push(fault);
                        }
                    }
                }
            });
        }
    });
    let faults = faults.into_inner().expect("not poisoned");
    assert!(faults.is_empty(), "{}", faults.join("\n\n"));
}
