//! Runs the real binary on configs whose servers are the same binary or shell scripts.

#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    reason = "shared by several tests, each of which uses a part"
)]

pub mod pty;
pub mod world;

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::Value;

pub const BINARY: &str = env!("CARGO_BIN_EXE_mcpvisor");

/// Time limit of a command in a test, also on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(60);

/// Environment variables of the caller that change the binary's output or behaviour.
pub const OF_THE_CALLER: &[&str] = &[
    "RUST_LOG",
    "CI",
    "TERM",
    "NO_COLOR",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLORTERM",
    "BROWSER",
    "HTTP_PROXY",
    "http_proxy",
    "HTTPS_PROXY",
    "https_proxy",
    "ALL_PROXY",
    "all_proxy",
    "NO_PROXY",
    "no_proxy",
];

/// A test's temporary folder with its config, removed on drop.
pub struct Folder(PathBuf);

impl Folder {
    /// Creates a folder whose `mcp.json` has these servers.
    pub fn with(servers: &Value) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("mcpvisor-cli-test-{}-{number}", std::process::id());
        let folder = Self(std::env::temp_dir().join(name));
        // A killed process with the same id may have left one behind.
        let _ = std::fs::remove_dir_all(&folder.0);
        std::fs::create_dir(&folder.0).unwrap();
        let config = serde_json::json!({ "mcpServers": servers });
        std::fs::write(folder.path("mcp.json"), config.to_string()).unwrap();
        folder
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// A command in this folder. It uses the folder's config unless the arguments name another.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = mcpvisor(&self.0);
        if !args.contains(&"--config") {
            command.args(["--config", "mcp.json"]);
        }
        command.args(args);
        command
    }

    /// Runs a command until it exits.
    pub fn run(&self, args: &[&str]) -> Ran {
        run(self.command(args))
    }

    /// The folder's journal, written by its built-in servers.
    pub fn journal(&self) -> String {
        std::fs::read_to_string(self.path("journal")).unwrap_or_default()
    }

    /// Process ids of the servers in the journal, in start order.
    pub fn started(&self) -> Vec<u32> {
        let journal = self.journal();
        let pids = journal
            .lines()
            .filter_map(|line| line.strip_prefix("started "));
        pids.map(|pid| pid.parse().unwrap()).collect()
    }

    /// Fails if no server was started, or if one is still running.
    #[track_caller]
    pub fn assert_nothing_left(&self) {
        let started = self.started();
        assert!(!started.is_empty(), "no server was started");
        for pid in started {
            let left = mcpvisor_testkit::processes::Process::read(pid);
            assert_eq!(left, None, "a server was left behind");
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The config entry of a built-in server that writes a journal.
pub fn builtin(name: &str) -> Value {
    serde_json::json!({ "command": BINARY, "args": ["builtin-server", name, "--journal", "journal"] })
}

/// Makes a file executable for all users.
pub fn make_executable(file: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// The config entry of a shell script.
pub fn script(script: &str) -> Value {
    serde_json::json!({ "command": "sh", "args": ["-c", script] })
}

/// A server in shell whose replies are files of the folder, by method. For `tools/call`:
///
/// - `tools_call.json` is the result.
/// - `tools_call.before` holds lines to send first; `TOKEN` is the request's progress token.
/// - `tools_call.step1`, `.step2` and so on are like it, but wait for a file `step1`, `step2`.
/// - `tools_call.ask` holds a request to send; its answer replaces `ANSWER` in the result.
/// - `tools_call.silent` suppresses the reply.
/// - `tools_call.wait` delays the reply by this many seconds.
/// - `tools_call.until` delays the reply until the file that it names exists.
const SERVER: &str = r#"
while read -r line; do
    id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
    method=$(printf '%s' "$line" | sed -n 's/.*"method":"\([a-z/]*\)".*/\1/p' | tr / _)
    token=$(printf '%s' "$line" | sed -n 's/.*"progressToken":\("[^"]*"\|[0-9]*\).*/\1/p')
    printf '%s\n' "$line" >>requests
    [ -n "$id" ] && [ -n "$method" ] && [ ! -f "$method.silent" ] || continue
    [ -f "$method.before" ] && sed "s/\"TOKEN\"/$token/" "$method.before"
    step=1
    while [ -f "$method.step$step" ]; do
        until [ -f "step$step" ]; do sleep 0.02; done
        sed "s/\"TOKEN\"/$token/" "$method.step$step"
        step=$((step + 1))
    done
    answer=
    if [ -f "$method.ask" ]; then
        cat "$method.ask"
        read -r answer
        printf '%s\n' "$answer" >>answers
        answer=$(printf '%s' "$answer" | sed 's/["\\]/\\\\&/g')
    fi
    [ -f "$method.until" ] && until [ -f "$(cat "$method.until")" ]; do sleep 0.02; done
    [ -f "$method.wait" ] && sleep "$(cat "$method.wait")"
    if [ -f "$method.json" ]; then
        printf '{"jsonrpc":"2.0","id":%s,%s}\n' "$id" "$(sed "s|ANSWER|$answer|" "$method.json")"
    else
        printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"no such method"}}\n' "$id"
    fi
done
"#;

/// The config entry of a server whose replies are files of the folder: [`Folder::answers`].
pub fn scripted() -> Value {
    script(SERVER)
}

impl Folder {
    /// Sets the scripted server's result for a method.
    pub fn answers(&self, method: &str, result: &Value) -> &Self {
        let file = format!("{}.json", method.replace('/', "_"));
        std::fs::write(self.path(&file), format!("\"result\":{result}")).unwrap();
        self
    }

    /// Makes the scripted server answer a method with an error.
    pub fn refuses(&self, method: &str, message: &str) -> &Self {
        let file = format!("{}.json", method.replace('/', "_"));
        let error = format!("\"error\":{{\"code\":-32603,\"message\":{message:?}}}");
        std::fs::write(self.path(&file), error).unwrap();
        self
    }

    /// Edits the config entry of the server `shop`.
    pub fn edits(&self, edit: impl FnOnce(&mut Value)) -> &Self {
        let config = std::fs::read_to_string(self.path("mcp.json")).unwrap();
        let mut config: Value = serde_json::from_str(&config).unwrap();
        edit(&mut config["mcpServers"]["shop"]);
        std::fs::write(self.path("mcp.json"), config.to_string()).unwrap();
        self
    }

    /// The requests that the scripted server received.
    pub fn requests(&self) -> String {
        std::fs::read_to_string(self.path("requests")).unwrap_or_default()
    }

    /// Messages that the scripted server sends before its reply, one per line.
    pub fn says_before(&self, method: &str, lines: &[Value]) -> &Self {
        let lines: Vec<String> = lines.iter().map(|line| format!("{line}\n")).collect();
        let file = format!("{}.before", method.replace('/', "_"));
        std::fs::write(self.path(&file), lines.concat()).unwrap();
        self
    }

    /// Messages that it sends after those; each step waits for [`Folder::goes_on`].
    pub fn says_at_step(&self, method: &str, step: u32, lines: &[Value]) -> &Self {
        let lines: Vec<String> = lines.iter().map(|line| format!("{line}\n")).collect();
        let file = format!("{}.step{step}", method.replace('/', "_"));
        std::fs::write(self.path(&file), lines.concat()).unwrap();
        self
    }

    /// Releases a step of the scripted server.
    pub fn goes_on(&self, step: u32) {
        std::fs::write(self.path(&format!("step{step}")), "").unwrap();
    }

    /// Waits until a file of the folder contains a text.
    #[track_caller]
    pub fn awaits(&self, file: &str, text: &str) {
        let until = Instant::now() + LIMIT;
        while !std::fs::read_to_string(self.path(file)).is_ok_and(|all| all.contains(text)) {
            assert!(Instant::now() < until, "{file} never contained {text:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// A folder with a server `shop` that has tools, prompts, resources and templates.
    pub fn with_shop() -> Self {
        use serde_json::json;
        let folder = Self::with(&json!({ "shop": scripted() }));
        folder
            .answers(
                "initialize",
                &json!({
                    "protocolVersion": "2025-11-25",
                    "capabilities": { "tools": {}, "prompts": {}, "resources": {}, "logging": {} },
                    "serverInfo": { "name": "shop", "version": "2.1" },
                }),
            )
            .answers("ping", &json!({}))
            .answers(
                "tools/list",
                &json!({ "tools": [
                    {
                        "name": "order",
                        "description": "Orders cheese.\n\nIt is brought the same day.",
                        "inputSchema": {
                            "type": "object",
                            "properties": {
                                "cheese": { "type": "string" },
                                "grams": { "type": "integer" },
                                "cut": { "enum": ["slices", "piece"] },
                            },
                            "required": ["cheese"],
                            "additionalProperties": false,
                        },
                    },
                    { "name": "photo", "description": "Shows 乳酪.", "inputSchema": { "type": "object" } },
                ] }),
            )
            .answers(
                "prompts/list",
                &json!({ "prompts": [{
                    "name": "recipe",
                    "description": "A dish with cheese.",
                    "arguments": [
                        { "name": "cheese", "required": true },
                        { "name": "guests" },
                    ],
                }] }),
            )
            .answers(
                "resources/list",
                &json!({ "resources": [{
                    "uri": "shop://prices",
                    "name": "prices",
                    "mimeType": "text/plain",
                    "description": "What everything costs.",
                }] }),
            )
            .answers(
                "resources/templates/list",
                &json!({ "resourceTemplates": [{
                    "uriTemplate": "shop://cheese/{name}",
                    "name": "cheese",
                    "description": "One cheese.",
                }] }),
            )
            .answers(
                "prompts/get",
                &json!({ "messages": [
                    { "role": "user", "content": { "type": "text", "text": "Cook something.\nWith cheese." } },
                    { "role": "assistant", "content": { "type": "text", "text": "Gladly." } },
                ] }),
            )
            .answers(
                "resources/read",
                &json!({ "contents": [
                    { "uri": "shop://prices", "mimeType": "text/plain", "text": "Brie 12\nGouda 9" },
                    { "uri": "shop://photo/brie.png", "mimeType": "image/png", "blob": "AAEC/w==" },
                ] }),
            )
            .answers(
                "tools/call",
                &json!({ "content": [
                    { "type": "text", "text": "done" },
                    { "type": "image", "mimeType": "image/png", "data": "AAEC/w==" },
                ] }),
            );
        folder
    }
}

/// The binary in a folder, without the variables of [`OF_THE_CALLER`].
pub fn mcpvisor(folder: &Path) -> Command {
    let mut command = Command::new(BINARY);
    command
        .current_dir(folder)
        .env("MCPVISOR_STATE_DIR", folder.join("state"))
        .env("XDG_CONFIG_HOME", folder.join("config"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    for name in OF_THE_CALLER {
        command.env_remove(name);
    }
    command
}

/// The result of a command.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
}

impl Ran {
    /// The one JSON document on stdout.
    #[track_caller]
    pub fn document(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The JSON error on stderr. Fails unless stdout is empty.
    #[track_caller]
    pub fn error(&self) -> Value {
        assert_eq!(self.stdout, "", "nothing but the error: {self:?}");
        let error: Value =
            serde_json::from_str(&self.stderr).unwrap_or_else(|error| panic!("{error}: {self:?}"));
        error["error"].clone()
    }

    /// The code and the server of each JSON error on stderr, sorted.
    #[track_caller]
    pub fn errors(&self) -> Vec<(String, String)> {
        let error = |line: &str| {
            let line: Value =
                serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self:?}"));
            let text = |key: &str| line["error"][key].as_str().unwrap_or_default().to_owned();
            assert!(!text("message").is_empty(), "{self:?}");
            (text("code"), text("server"))
        };
        let mut errors: Vec<_> = self.stderr.lines().map(error).collect();
        errors.sort();
        errors
    }

    #[track_caller]
    pub fn exits(&self, code: i32) -> &Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    #[track_caller]
    pub fn says(&self, text: &str) -> &Self {
        assert!(self.stderr.contains(text), "{text:?} expected: {self:?}");
        self
    }
}

/// Runs a command until it exits, for at most [`LIMIT`].
#[track_caller]
pub fn run(mut command: Command) -> Ran {
    finish(command.spawn().unwrap())
}

/// Reads the next line of a pipe. Returns the line and the pipe.
#[track_caller]
pub fn next_line(mut pipe: BufReader<ChildStdout>) -> (String, BufReader<ChildStdout>) {
    let (give, take) = mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = pipe.read_line(&mut line);
        let _ = give.send(read.map(|_| (line, pipe)));
    });
    match take.recv_timeout(LIMIT) {
        Ok(read) => read.unwrap(),
        Err(_) => panic!("no line came within {LIMIT:?}"),
    }
}

/// Waits until a running command exits.
#[track_caller]
pub fn finish(mut child: Child) -> Ran {
    let begun = Instant::now();
    let reader = |pipe: Option<Box<dyn Read + Send>>| {
        std::thread::spawn(move || {
            let mut text = String::new();
            if let Some(mut pipe) = pipe {
                pipe.read_to_string(&mut text).unwrap();
            }
            text
        })
    };
    let stdout = reader(child.stdout.take().map(|pipe| Box::new(pipe) as _));
    let stderr = reader(child.stderr.take().map(|pipe| Box::new(pipe) as _));
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > LIMIT {
            child.kill().unwrap();
            panic!("the command did not end within {LIMIT:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Ran {
        code: status.code(),
        stdout: stdout.join().unwrap(),
        stderr: stderr.join().unwrap(),
        took: begun.elapsed(),
    }
}
