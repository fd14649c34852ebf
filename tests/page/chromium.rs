//! A headless Chromium, driven over its debugging protocol: one page, real keys and clicks, everything that
//! it complains about.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tungstenite::stream::MaybeTlsStream;
use tungstenite::{Message, WebSocket, connect};

/// Longest wait for an answer of the browser.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Page {
    socket: WebSocket<MaybeTlsStream<TcpStream>>,
    session: Option<String>,
    next: u64,
    /// Exceptions, errors and warnings of the console, requests beyond the page itself.
    pub complaints: Vec<String>,
    loaded: bool,
    browser: Child,
    _profile: tempfile::TempDir,
}

impl Drop for Page {
    fn drop(&mut self) {
        let _gone_already = self.browser.kill();
        let _status = self.browser.wait();
    }
}

impl Page {
    /// Starts `program` with an empty page.
    pub fn start(program: &Path) -> Self {
        let profile = tempfile::tempdir().expect("a folder");
        let mut browser = Command::new(program)
            .args([
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--remote-debugging-port=0",
            ])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .arg("about:blank")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("Chromium starts");
        let stderr = browser.stderr.take().expect("piped");
        let address = BufReader::new(stderr)
            .lines()
            .map_while(Result::ok)
            .find_map(|line| {
                let (_, address) = line.split_once("DevTools listening on ")?;
                Some(address.trim().to_owned())
            })
            .expect("Chromium tells where it listens");
        let (socket, _) = connect(&address).expect("it answers");
        if let MaybeTlsStream::Plain(stream) = socket.get_ref() {
            stream
                .set_read_timeout(Some(PATIENCE))
                .expect("a time-out is set");
        }
        let mut page = Self {
            socket,
            session: None,
            next: 0,
            complaints: Vec::new(),
            loaded: false,
            browser,
            _profile: profile,
        };
        let made = page.call("Target.createTarget", json!({"url": "about:blank"}));
        let attached = page.call(
            "Target.attachToTarget",
            json!({"targetId": made["targetId"], "flatten": true}),
        );
        page.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network", "Accessibility"] {
            page.call(&format!("{domain}.enable"), json!({}));
        }
        page
    }

    /// Sends a command and waits for its result.
    pub fn call(&mut self, method: &str, params: Value) -> Value {
        self.next += 1;
        let id = self.next;
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        self.socket
            .send(Message::text(message.to_string()))
            .expect("the browser listens");
        loop {
            let Message::Text(text) = self.socket.read().expect("the browser answers") else {
                continue;
            };
            let mut answer: Value = serde_json::from_str(&text).expect("JSON");
            if answer["id"] == json!(id) {
                assert!(answer["error"].is_null(), "{method}: {}", answer["error"]);
                return answer["result"].take();
            }
            self.hear(&answer);
        }
    }

    fn hear(&mut self, event: &Value) {
        let params = &event["params"];
        match event["method"].as_str().unwrap_or_default() {
            "Page.loadEventFired" => self.loaded = true,
            "Runtime.exceptionThrown" => self.complaints.push(params.to_string()),
            "Runtime.consoleAPICalled"
                if ["error", "warning", "assert"]
                    .contains(&params["type"].as_str().unwrap_or_default()) =>
            {
                self.complaints.push(params.to_string());
            }
            "Log.entryAdded" => self.complaints.push(params.to_string()),
            "Network.requestWillBeSent" => {
                let url = params["request"]["url"].as_str().unwrap_or_default();
                if !url.starts_with("file:") && !url.starts_with("data:") {
                    self.complaints.push(format!("request of {url}"));
                }
            }
            _ => {}
        }
    }

    /// Loads a file and waits until it stands.
    pub fn open(&mut self, file: &Path) {
        self.loaded = false;
        let url = format!("file://{}", file.display());
        self.call("Page.navigate", json!({"url": url}));
        let started = Instant::now();
        while !self.loaded {
            assert!(started.elapsed() < PATIENCE, "{url} does not load");
            self.evaluate("1");
        }
    }

    /// The value of an expression in the page; a promise is waited for.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let mut answer = self.call(
            "Runtime.evaluate",
            json!({"expression": expression, "returnByValue": true, "awaitPromise": true}),
        );
        assert!(
            answer["exceptionDetails"].is_null(),
            "{expression}: {}",
            answer["exceptionDetails"]
        );
        answer["result"]["value"].take()
    }

    /// Presses and lets go of a key.
    pub fn press(&mut self, key: &str) {
        let code = match key {
            "ArrowDown" => 40,
            "ArrowUp" => 38,
            "ArrowLeft" => 37,
            "ArrowRight" => 39,
            "Enter" => 13,
            "Escape" => 27,
            "Home" => 36,
            "Tab" => 9,
            other => u32::from(other.as_bytes()[0]),
        };
        let text = if key.len() == 1 { key } else { "" };
        for kind in ["keyDown", "keyUp"] {
            let text = if kind == "keyDown" { text } else { "" };
            self.call(
                "Input.dispatchKeyEvent",
                json!({"type": kind, "key": key, "windowsVirtualKeyCode": code, "text": text}),
            );
        }
    }

    /// Moves the mouse, with the left button held where `held`.
    pub fn mouse(&mut self, kind: &str, x: f64, y: f64, held: bool) {
        let button = if held || kind != "mouseMoved" {
            "left"
        } else {
            "none"
        };
        self.call(
            "Input.dispatchMouseEvent",
            json!({"type": kind, "x": x, "y": y, "button": button, "buttons": u8::from(held), "clickCount": 1}),
        );
    }

    /// Gives the page a size, as a phone's where it is narrow.
    pub fn size(&mut self, width: u32, height: u32) {
        self.call(
            "Emulation.setDeviceMetricsOverride",
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}),
        );
    }

    /// The page as it stands, as PNG.
    pub fn screenshot(&mut self) -> Vec<u8> {
        let shot = self.call("Page.captureScreenshot", json!({"format": "png"}));
        let data = shot["data"].as_str().expect("a picture");
        STANDARD.decode(data).expect("base 64")
    }
}
