//! A scripted HTTP server on a local port: it plays its turns in order, one a connection, and keeps what
//! it was asked.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// One thing the server does.
pub enum Turn {
    /// Status, extra header lines, body.
    Answer(u16, &'static str, String),
    /// Says nothing for a while, then closes.
    Silence(Duration),
    /// Sends the head and half of a body, then closes.
    Break,
    /// Closes at once.
    HangUp,
}

/// A request as it came in.
#[derive(Clone, Debug)]
pub struct Asked {
    pub path: String,
    pub head: String,
    pub body: serde_json::Value,
}

pub struct Server {
    pub base: String,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl Server {
    pub fn start(turns: Vec<Turn>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let base = format!("http://{}", listener.local_addr().expect("bound"));
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        std::thread::spawn(move || {
            for turn in turns {
                let Ok((stream, _)) = listener.accept() else {
                    return;
                };
                play(stream, turn, &log);
            }
        });
        Self { base, asked }
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("not poisoned").clone()
    }
}

fn play(mut stream: TcpStream, turn: Turn, log: &Mutex<Vec<Asked>>) {
    let mut reader = BufReader::new(stream.try_clone().expect("clones"));
    let mut head = String::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).unwrap_or(0) == 0 || line == "\r\n" {
            break;
        }
        head.push_str(&line);
    }
    let length = head
        .lines()
        .find_map(|line| {
            line.to_lowercase()
                .strip_prefix("content-length:")
                .map(str::to_owned)
        })
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).expect("the announced body");
    log.lock().expect("not poisoned").push(Asked {
        path: head.split_whitespace().nth(1).unwrap_or("").to_owned(),
        body: serde_json::from_slice(&body).expect("requests are JSON"),
        head,
    });
    let sent = match turn {
        Turn::Answer(status, headers, body) => stream.write_all(
            format!(
                "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n{body}",
                body.len()
            )
            .as_bytes(),
        ),
        Turn::Silence(time) => {
            std::thread::sleep(time);
            Ok(())
        }
        Turn::Break => stream.write_all(
            b"HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n{\"choices\": [{\"message\": {\"content\": \"ha",
        ),
        Turn::HangUp => Ok(()),
    };
    // The client may have given up on us by now.
    drop(sent);
}

/// A chat completion as the server sends it.
pub fn completion(text: &str) -> String {
    serde_json::json!({
        "id": "x",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
        "usage": {
            "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120,
            "prompt_tokens_details": {"cached_tokens": 64},
            "completion_tokens_details": {"reasoning_tokens": 5}
        }
    })
    .to_string()
}

/// An error body as the server sends it.
pub fn refusal(code: &str, message: &str) -> String {
    serde_json::json!({"error": {"message": message, "type": "x", "code": code}}).to_string()
}
