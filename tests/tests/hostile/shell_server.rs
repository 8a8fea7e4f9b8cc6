//! Servers written as shell scripts, so that each fault is next to its expected outcome.

use std::time::{Duration, Instant};

use mcpvisor::{
    CallError, Config, Known, Runtime, ServerConfig, ServerHandle, ServerSettings, StdioCommand,
    Transport,
};
use serde_json::json;

/// Upper bound for every step. Only a hang takes longer.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// Extra time that a busy machine may need.
pub(crate) const BUSY: Duration = Duration::from_secs(2);

/// The call deadline for servers that never answer.
pub(crate) const PATIENCE: Duration = Duration::from_millis(1_000);

/// A shell server. It runs `on_call` for each tool call, with the id in `$id`, and `at_end` at the
/// end of stdin.
pub(crate) fn script(on_call: &str, at_end: &str) -> String {
    const TEMPLATE: &str = r#"
        say() { printf '%s\n' "$1"; }
        answer() { say '{"jsonrpc":"2.0","id":'"$1"',"result":'"$2"'}'; }
        mib() { head -c $(($1 * 1024 * 1024)) /dev/zero | tr '\0' "$2"; }
        echo "pid $$" >&2
        while IFS= read -r line; do
            id=${line#*\"id\":}; id=${id%%[,\}]*}
            case $line in
            *'"method":"initialize"'*) answer "$id" '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"sh","version":"1"}}';;
            *'"method":"tools/list"'*) answer "$id" '{"tools":[{"name":"'"tool-$((lists += 1))"'","inputSchema":{"type":"object"}}]}';;
            *'"method":"ping"'*) answer "$id" '{}';;
            *'"name":"fine"'*) answer "$id" '{"content":[]}';;
            *'"method":"tools/call"'*) ON_CALL;;
            esac
        done
        AT_END"#;
    TEMPLATE
        .replace("ON_CALL", on_call)
        .replace("AT_END", at_end)
}

pub(crate) fn sh(script: &str) -> StdioCommand {
    Transport::stdio("sh").arg("-c").arg(script)
}

pub(crate) fn server(name: &str, command: StdioCommand) -> ServerConfig {
    let mut settings = ServerSettings::default();
    settings.close.drain = Duration::from_millis(100);
    settings.close.stdin = Duration::from_millis(200);
    settings.close.terminate = Duration::from_millis(200);
    ServerConfig::new(name, command).unwrap().settings(settings)
}

/// A fleet of the server under test and a good one.
pub(crate) struct Fleet {
    pub(crate) runtime: Runtime,
    pub(crate) hostile: ServerHandle,
    pub(crate) decent: ServerHandle,
}

impl Fleet {
    pub(crate) async fn start(on_call: &str) -> Self {
        Self::of(script(on_call, "")).await
    }

    pub(crate) async fn of(script: String) -> Self {
        let decent = self::script(r#"answer "$id" '{"content":[]}'"#, "");
        let config = Config::new()
            .server(server("hostile", sh(&script)))
            .server(server("decent", sh(&decent)));
        let runtime = Runtime::builder().config(config).start().await.unwrap();
        runtime.ready(DEADLINE).await.unwrap();
        Self {
            hostile: runtime.server("hostile").unwrap(),
            decent: runtime.server("decent").unwrap(),
            runtime,
        }
    }

    /// Calls the faulty tool. Returns the error and how long the call took.
    pub(crate) async fn fails(&self) -> (CallError, Duration) {
        let called = Instant::now();
        let call = self
            .hostile
            .call_tool("worst", json!({}))
            .deadline(PATIENCE);
        let error = call.await.unwrap_err();
        let took = called.elapsed();
        self.decent.call_tool("fine", json!({})).await.unwrap();
        (error, took)
    }

    /// Shuts down within the time limits of a close, and checks that no process is left.
    pub(crate) async fn end(self) {
        let group = group_of(&self.hostile);
        let begun = Instant::now();
        self.runtime.shutdown(Duration::from_secs(2)).await;
        assert!(begun.elapsed() < Duration::from_secs(2) + BUSY);
        until_gone("the group", || members(group).is_empty()).await;
    }
}

/// The process group of a server, from the pid that it prints.
pub(crate) fn group_of(server: &ServerHandle) -> u32 {
    let said = server.stderr_tail();
    let pid = said.lines().find_map(|line| line.strip_prefix("pid "));
    pid.unwrap_or_else(|| panic!("no pid in {said:?}"))
        .parse()
        .unwrap()
}

/// The live members of a process group.
pub(crate) fn members(group: u32) -> Vec<String> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let stats =
        processes.filter_map(|process| std::fs::read_to_string(process.path().join("stat")).ok());
    stats
        .filter(|stat| {
            let mut fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
            fields.next() != Some("Z") && fields.nth(1) == Some(&group.to_string())
        })
        .collect()
}

pub(crate) async fn until_gone(what: &str, mut is_gone: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_gone() {
        assert!(begun.elapsed() < DEADLINE, "{what} is still there");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[track_caller]
pub(crate) fn assert_lost((error, took): (CallError, Duration), cause: &str) {
    assert_eq!(error.known(), Known::Unknown, "{error:?}");
    assert!(error.to_string().contains(cause), "{error}");
    assert!(took < PATIENCE, "{took:?}");
}

pub(crate) fn is_zombie(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.contains(") Z ")
}
