//! Drives Chromium over `WebDriver` with plain HTTP.

use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use throughline_testkit::Folder;

/// Maximum time in milliseconds to wait for an expected state.
const PATIENCE: u64 = 30_000;

/// Number of attempts to start the driver. The driver exits if its port is in use on either IP
/// version.
const DRIVER_STARTS: u32 = 5;

/// Starts chromedriver and returns its process, output and port; `None` if it is not installed.
fn start_driver(temporary: &Path) -> Option<(Child, Lines<BufReader<ChildStdout>>, String)> {
    for _ in 0..DRIVER_STARTS {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .env("TMPDIR", temporary)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let mut output = BufReader::new(driver.stdout.take().unwrap()).lines();
        let port = output.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, port) = line.split_once("started successfully on port ")?;
            Some(port.trim_end_matches('.').to_owned())
        });
        if let Some(port) = port {
            return Some((driver, output, port));
        }
        driver.wait().unwrap();
    }
    panic!("chromedriver exited {DRIVER_STARTS} times before it printed its port");
}

/// A browser with one window.
pub(crate) struct Browser {
    driver: Child,
    /// Kept open, because the driver fails to print if its standard output is closed.
    _output: Lines<BufReader<ChildStdout>>,
    address: String,
    session: String,
    /// Directory for the browser's temporary files, deleted on drop.
    _folder: Folder,
}

impl Browser {
    /// Starts a browser; `None` if chromedriver is not installed.
    pub(crate) fn start() -> Option<Self> {
        let folder = Folder::new("chromium");
        let (driver, output, port) = start_driver(&folder)?;
        let address = format!("127.0.0.1:{port}");
        let mut browser =
            Self { driver, _output: output, address, session: String::new(), _folder: folder };
        let arguments = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
            "--lang=en",
        ];
        let capabilities = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:chromeOptions": {"args": arguments},
            "goog:loggingPrefs": {"browser": "ALL"},
            "timeouts": {"script": 2 * PATIENCE, "pageLoad": PATIENCE},
        }}});
        let session = browser.request("POST", "/session", &capabilities);
        session["sessionId"].as_str().unwrap().clone_into(&mut browser.session);
        browser.resize(1280, 900);
        Some(browser)
    }

    fn request(&self, method: &str, path: &str, body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let response = exchange(&self.address, method, path, &body).unwrap();
        let response: Value = serde_json::from_slice(&response).unwrap();
        let value = response["value"].clone();
        assert!(value["error"].is_null(), "{method} {path}: {value:#}");
        value
    }

    fn command(&self, method: &str, path: &str, body: &Value) -> Value {
        self.request(method, &format!("/session/{}{path}", self.session), body)
    }

    pub(crate) fn resize(&self, width: u32, height: u32) {
        let screen =
            json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.cdp("Emulation.setDeviceMetricsOverride", &screen);
    }

    /// Sets the colour scheme that pages without a theme of their own follow; none if empty.
    pub(crate) fn prefer_scheme(&self, scheme: &str) {
        let features = json!([{"name": "prefers-color-scheme", "value": scheme}]);
        self.cdp("Emulation.setEmulatedMedia", &json!({ "features": features }));
    }

    fn cdp(&self, command: &str, parameters: &Value) {
        let body = json!({"cmd": command, "params": parameters});
        self.command("POST", "/goog/cdp/execute", &body);
    }

    /// Registers a script that runs in every page opened from now on, before the page's own
    /// scripts.
    pub(crate) fn prepare(&self, script: &str) {
        self.cdp("Page.addScriptToEvaluateOnNewDocument", &json!({ "source": script }));
    }

    pub(crate) fn open(&self, url: &str) {
        self.command("POST", "/url", &json!({ "url": url }));
    }

    /// Runs a script in the page and returns its result.
    pub(crate) fn run(&self, script: &str) -> Value {
        self.command("POST", "/execute/sync", &json!({"script": script, "args": []}))
    }

    /// Waits until a JavaScript expression is truthy, and returns its value.
    pub(crate) fn wait(&self, expression: &str) -> Value {
        let script = format!(
            "const done = arguments[arguments.length - 1];
            const end = Date.now() + {PATIENCE};
            const look = async () => {{
                let value = null;
                try {{ value = await ({expression}); }} catch (error) {{ value = null; }}
                if (value) done(value);
                else if (Date.now() > end) done(null);
                else setTimeout(look, 20);
            }};
            look();"
        );
        let value = self.command("POST", "/execute/async", &json!({"script": script, "args": []}));
        if value.is_null() {
            let text = self.run("return document.body.innerText");
            let page = text.as_str().unwrap_or_default();
            panic!("timed out waiting for: {expression}\non this page:\n{page}");
        }
        value
    }

    /// Waits until the page contains a text.
    pub(crate) fn wait_for_text(&self, text: &str) {
        self.wait(&format!("document.body.textContent.includes({})", json!(text)));
    }

    /// Waits for a button, link or option with that accessible name, and clicks it.
    pub(crate) fn click(&self, name: &str) {
        let element = self.wait(&element_by_name(name));
        self.act_on(&element, "click", &json!({}));
    }

    /// Replaces the text of the input field that a JavaScript expression returns.
    pub(crate) fn fill(&self, field: &str, text: &str) {
        // WebDriver's own command to clear a field sends no event, so the page can restore the
        // text when it renders the field again.
        const CONTROL: char = '\u{e009}';
        const RELEASE: char = '\u{e000}';
        const BACKSPACE: char = '\u{e003}';
        let element = self.wait(field);
        let keys = format!("{CONTROL}a{RELEASE}{BACKSPACE}{text}");
        self.act_on(&element, "value", &json!({ "text": keys }));
    }

    /// Selects a file in the upload field that a JavaScript expression returns.
    pub(crate) fn upload(&self, field: &str, file: &Path) {
        let element = self.wait(field);
        self.act_on(&element, "value", &json!({ "text": file.display().to_string() }));
    }

    fn act_on(&self, element: &Value, action: &str, body: &Value) {
        let id = element.as_object().and_then(|element| element.values().next());
        let id = id.and_then(Value::as_str).expect("an element");
        self.command("POST", &format!("/element/{id}/{action}"), body);
    }

    /// Sends key presses to the focused element, one after another.
    pub(crate) fn press(&self, keys: &[&str]) {
        let actions = keys.iter().flat_map(|key| {
            [json!({"type": "keyDown", "value": key}), json!({"type": "keyUp", "value": key})]
        });
        let actions: Vec<Value> = actions.collect();
        let body = json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]});
        self.command("POST", "/actions", &body);
    }

    /// Presses a key while a modifier is held.
    pub(crate) fn press_with(&self, modifier: &str, key: &str) {
        let actions = json!([
            {"type": "keyDown", "value": modifier}, {"type": "keyDown", "value": key},
            {"type": "keyUp", "value": key}, {"type": "keyUp", "value": modifier},
        ]);
        let body = json!({"actions": [{"type": "key", "id": "keyboard", "actions": actions}]});
        self.command("POST", "/actions", &body);
    }

    /// Returns the browser's log messages since the last call.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let log = self.command("POST", "/se/log", &json!({"type": "browser"}));
        let lines = log.as_array().unwrap().iter();
        let lines = lines.filter(|line| line["level"] == "SEVERE");
        lines.map(|line| line["message"].as_str().unwrap().to_owned()).collect()
    }

    /// Returns a screenshot of the window as base64.
    pub(crate) fn screenshot(&self) -> String {
        self.command("GET", "/screenshot", &json!(null)).as_str().unwrap().to_owned()
    }
}

/// Sends a request and returns the response body. The driver keeps connections open, so the content
/// length marks the end.
fn exchange(address: &str, method: &str, path: &str, body: &str) -> std::io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(address)?;
    // Without a timeout, a hanging driver would block the test.
    stream.set_read_timeout(Some(Duration::from_millis(3 * PATIENCE)))?;
    let length = body.len();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    )?;
    let mut reader = BufReader::new(stream);
    let (mut line, mut length) = (String::new(), 0);
    while reader.read_line(&mut line)? > 2 {
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        line.clear();
    }
    let mut response = vec![0; length];
    reader.read_exact(&mut response)?;
    Ok(response)
}

/// Returns a JavaScript expression that finds an element by its accessible name.
fn element_by_name(name: &str) -> String {
    format!(
        "[...document.querySelectorAll('button, a, label, summary')].find((one) => \
         !one.disabled && (one.getAttribute('aria-label') ?? one.innerText).trim() === {})",
        json!(name)
    )
}

impl Drop for Browser {
    fn drop(&mut self) {
        // End the browser session even after a failed test; errors are ignored.
        drop(exchange(&self.address, "DELETE", &format!("/session/{}", self.session), ""));
        drop(self.driver.kill());
        drop(self.driver.wait());
    }
}
