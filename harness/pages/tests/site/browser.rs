//! A headless Chromium, driven through its debugging pipe.
//!
//! Inputs: a program of that name on the path, or the one that `CHROMIUM` names. The protocol is JSON with a zero byte behind
//! each message, on two descriptors: no port, no socket, no driver beside it. A crate for it would generate and compile the
//! whole protocol for the nine methods used here.

use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

pub(crate) struct Browser {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    session: Option<String>,
    next: u64,
    /// What pages complained of: exceptions, files that are not there.
    pub(crate) complaints: Vec<String>,
    loaded: bool,
}

impl Browser {
    /// Starts it with one empty page. Without the program, this fails.
    pub(crate) fn start(profile: &Path) -> Self {
        let program = std::env::var("CHROMIUM").unwrap_or_else(|_| "chromium".into());
        // The pipe is at descriptors 3 and 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$0\" \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null"])
            .arg(&program)
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"])
            .args(["--no-first-run", "--allow-file-access-from-files", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let (to, from) = (child.stdin.take().expect("piped"), BufReader::new(child.stdout.take().expect("piped")));
        let mut browser = Self { child, to, from, session: None, next: 0, complaints: Vec::new(), loaded: false };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }))["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", json!({ "targetId": target, "flatten": true }));
        browser.session = attached["sessionId"].as_str().map(String::from);
        for domain in ["Page", "Runtime", "Log"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    /// Calls a method, and gives its result.
    pub(crate) fn call(&mut self, method: &str, params: Value) -> Value {
        self.try_call(method, params).unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Calls a method, and gives its result or what the browser says against it.
    fn try_call(&mut self, method: &str, params: Value) -> Result<Value, Value> {
        self.next += 1;
        let mut message = json!({ "id": self.next, "method": method, "params": params });
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(0);
        self.to.write_all(&bytes).expect("Chromium runs: install it, or name it in CHROMIUM");
        loop {
            let answer = self.message();
            if answer["id"] == self.next {
                return if answer["error"].is_null() {
                    Ok(answer["result"].clone())
                } else {
                    Err(answer["error"].clone())
                };
            }
        }
    }

    /// The next message; events are noted.
    fn message(&mut self) -> Value {
        let mut bytes = Vec::new();
        let read = self.from.read_until(0, &mut bytes).expect("a pipe");
        assert!(read > 0, "Chromium is not there or has died: install it, or name it in CHROMIUM");
        bytes.pop();
        let message: Value = serde_json::from_slice(&bytes).expect("JSON");
        match message["method"].as_str() {
            Some("Page.loadEventFired") => self.loaded = true,
            Some("Runtime.exceptionThrown") => self.complaints.push(message["params"]["exceptionDetails"].to_string()),
            Some("Log.entryAdded") if message["params"]["entry"]["level"] == "error" => {
                self.complaints.push(message["params"]["entry"].to_string());
            }
            _ => {}
        }
        message
    }

    /// Goes to a file, and waits until it is loaded and drawn. Gives the milliseconds.
    pub(crate) fn open(&mut self, file: &Path, query: &str) -> f64 {
        let started = Instant::now();
        self.loaded = false;
        self.call("Page.navigate", json!({ "url": format!("file://{}{query}", file.display()) }));
        while !self.loaded {
            self.message();
        }
        self.eval("new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))");
        started.elapsed().as_secs_f64() * 1e3
    }

    /// What an expression of the page comes to; a promise is waited for.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        self.eval_unless_left(expression).unwrap_or_else(|| panic!("{expression}: the page was left"))
    }

    /// What an expression of the page comes to; nothing where the page is left before it is answered.
    fn eval_unless_left(&mut self, expression: &str) -> Option<Value> {
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let result = match self.try_call("Runtime.evaluate", params) {
            Ok(result) => result,
            // The protocol has one number for all that it cannot do: only the words tell.
            Err(error) if ["navigated", "context"].iter().any(|word| error.to_string().contains(word)) => return None,
            Err(error) => panic!("{expression}: {error}"),
        };
        assert!(result["exceptionDetails"].is_null(), "{expression}: {}", result["exceptionDetails"]);
        Some(result["result"]["value"].clone())
    }

    /// Clicks what a selector finds first, which may lead to another page.
    pub(crate) fn click(&mut self, selector: &str) {
        self.eval_unless_left(&format!("document.querySelector({}).click()", json!(selector)));
    }

    /// Waits until a page is loaded whose path has a part.
    #[track_caller]
    pub(crate) fn until_at(&mut self, part: &str) {
        self.until(&format!("location.pathname.includes('{part}') && document.readyState === 'complete'"));
    }

    /// Waits until an expression holds, ten seconds at most; a page may be left for another in that time.
    #[track_caller]
    pub(crate) fn until(&mut self, expression: &str) {
        let started = Instant::now();
        while self.eval_unless_left(expression) != Some(json!(true)) {
            assert!(started.elapsed().as_secs() < 10, "{expression} does not come to hold");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }

    /// A screen of a width, in light or dark.
    pub(crate) fn screen(&mut self, width: u32, height: u32, dark: bool) {
        self.call(
            "Emulation.setDeviceMetricsOverride",
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600 }),
        );
        let scheme = if dark { "dark" } else { "light" };
        self.call(
            "Emulation.setEmulatedMedia",
            json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] }),
        );
    }

    /// A key, as a person presses it.
    pub(crate) fn key(&mut self, key: &str) {
        let (code, text) = match key {
            "ArrowDown" => (40, ""),
            "ArrowLeft" => (37, ""),
            "Enter" => (13, "\r"),
            other => (other.bytes().next().map_or(0, u32::from), other),
        };
        for kind in ["keyDown", "keyUp"] {
            let mut params = json!({ "type": kind, "key": key, "windowsVirtualKeyCode": code });
            if kind == "keyDown" && !text.is_empty() {
                params["text"] = json!(text);
            }
            self.call("Input.dispatchKeyEvent", params);
        }
    }

    /// The whole page as PNG, in base 64.
    pub(crate) fn picture(&mut self, whole: bool) -> String {
        let params = json!({ "format": "png", "captureBeyondViewport": whole });
        self.call("Page.captureScreenshot", params)["data"].as_str().unwrap_or_default().to_string()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
