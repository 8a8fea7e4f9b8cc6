//! Reading a line takes at most three times the maximum line length in memory, whatever the line
//! contains.
//!
//! Each kind of line is read in its own process, so that measurements do not mix.

use std::process::Command;
use std::time::Duration;

use mcpvisor::rmcp::model::ReadResourceResult;
use mcpvisor::{CallError, Runtime, ServerConfig, Transport};
use serde_json::json;

const MIB: usize = 1024 * 1024;

/// The maximum line length: the default, and the configured one for names with "small".
const LONGEST: usize = 16 * MIB;
const SMALL: usize = 4 * MIB;

/// Allowance for an extra thread and the allocator's own pages.
const SLACK: usize = 4 * MIB;

fn longest(name: &str) -> usize {
    match name.starts_with("small-") {
        true => SMALL,
        false => LONGEST,
    }
}

const DEADLINE: Duration = Duration::from_secs(60);

/// Tells the second process which line to read.
const LINE: &str = "MCPVISOR_TEST_LINE";

/// The lines: name, whether it can be read, and the shell command that prints the result of a call
/// (or of a resource read, according to the prefix of the name).
fn lines() -> Vec<(&'static str, bool, String)> {
    let many = |count: usize, text: &str| format!("yes '{text}' | head -n {count} | tr -d '\\n'");
    let fill = |bytes: usize, byte: &str| format!("head -c {bytes} /dev/zero | tr '\\0' '{byte}'");
    let structured =
        |inside: String| format!(r#"printf '{{"structuredContent":['; {inside}; printf '0]}}'"#);
    let text = |inside: String| {
        format!(r#"printf '{{"content":[{{"type":"text","text":"'; {inside}; printf '"}}]}}'"#)
    };
    let escaped = |mib: usize| format!(r"printf '\\n'; {}", fill(mib * MIB, "x"));
    vec![
        ("too-long", false, structured(fill(17 * MIB, "1"))),
        ("values", false, structured(many(7_900_000, "1,"))),
        ("most-values", true, structured(many(262_130, "1,"))),
        ("most-texts", true, structured(many(170_000, r#""a","#))),
        ("objects", false, structured(many(1_900_000, r#"{"a":0},"#))),
        (
            "most-objects",
            true,
            structured(many(46_000, r#"{"a":0},"#)),
        ),
        ("lists", false, structured(many(4_000_000, "[0],"))),
        ("most-lists", true, structured(many(131_000, "[0],"))),
        ("nested", false, structured(fill(15 * MIB, "["))),
        ("no-utf8", false, text(fill(15 * MIB, r"\377"))),
        ("longest-text", true, text(fill(16 * MIB - 200, "x"))),
        ("longest-escaped-text", true, text(escaped(11))),
        ("escaped-text", false, text(escaped(15))),
        (
            "texts",
            true,
            format!(
                r#"printf '{{"content":['; {}; printf '{{"type":"text","text":""}}]}}'"#,
                many(33_000, r#"{"type":"text","text":""},"#)
            ),
        ),
        (
            "resource",
            true,
            format!(
                r#"printf '{{"contents":[{{"uri":"x:1","text":"'; {}; printf '"}}]}}'"#,
                escaped(11)
            ),
        ),
        (
            "resources",
            true,
            format!(
                r#"printf '{{"contents":['; {}; printf '{{"uri":"","text":""}}]}}'"#,
                many(33_000, r#"{"uri":"","text":""},"#)
            ),
        ),
        ("small-too-long", false, structured(fill(5 * MIB, "1"))),
        ("small-text", true, text(fill(SMALL - 200, "x"))),
        ("small-escaped-text", true, text(escaped(2))),
        ("small-values", false, structured(many(100_000, "1,"))),
        ("small-most-values", true, structured(many(80_000, "1,"))),
        (
            "small-objects",
            false,
            structured(many(15_000, r#"{"a":0},"#)),
        ),
        (
            "small-most-objects",
            true,
            structured(many(11_000, r#"{"a":0},"#)),
        ),
        // An accepted notification before the reply.
        (
            "notification",
            true,
            format!(
                r#"printf '0}}\n{{"jsonrpc":"2.0","method":"x","params":{{"a":['; {}; printf '0]}}}}\n'; begin "$id"; printf '{{"content":[]}}'"#,
                many(32_000, r#"{"a":0},"#)
            ),
        ),
    ]
}

#[test]
fn no_line_takes_more_than_three_times_the_longest_one() {
    let mut beyond = Vec::new();
    for (name, readable, _) in lines() {
        let output = Command::new(std::env::current_exe().unwrap())
            .args([
                "line_memory::a_host_that_reads_one_line",
                "--exact",
                "--nocapture",
            ])
            .env(LINE, name)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        let found = said.lines().find_map(|line| {
            let (_, found) = line.split_once("read: ")?;
            let (outcome, grown) = found.split_once(' ')?;
            Some((outcome == "true", grown.parse::<usize>().ok()?))
        });
        let Some((was_readable, grown)) = found else {
            panic!("{name}: {said}{}", String::from_utf8_lossy(&output.stderr));
        };
        println!("{name}: {:.1} MiB", grown as f64 / MIB as f64);
        assert_eq!(was_readable, readable, "{name}: {said}");
        if grown > 3 * longest(name) + SLACK {
            beyond.push(name);
        }
    }
    assert!(beyond.is_empty(), "{beyond:?} take too much");
}

/// Not a test: the process started by the test above.
#[test]
fn a_host_that_reads_one_line() {
    let Ok(wanted) = std::env::var(LINE) else {
        return;
    };
    let (name, _, result) = lines().into_iter().find(|line| line.0 == wanted).unwrap();
    let script = format!(
        r#"name={name}
        begin() {{ printf '{{"jsonrpc":"2.0","id":%s,"result":' "$1"; }}
        while IFS= read -r line; do
            case $line in *'"id":'*) ;; *) continue;; esac
            id=${{line#*\"id\":}}; id=${{id%%[,\}}]*}}
            case $name-$line in
            notification-*tools/call*) printf '{{"jsonrpc":"2.0","id":0,"result":';;
            *) begin "$id";;
            esac
            case $line in
            *'"method":"initialize"'*) printf '{{"protocolVersion":"2025-11-25","capabilities":{{}},"serverInfo":{{"name":"sh","version":"1"}}}}';;
            *'"method":"ping"'*) printf '{{}}';;
            *) {result};;
            esac
            printf '}}\n'
        done"#
    );
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    tokio.block_on(async {
        let command = Transport::stdio("sh").arg("-c").arg(script);
        let mut config = ServerConfig::new("large", command).unwrap();
        config.settings.messages.max_bytes = longest(name);
        let runtime = Runtime::builder().server(config).start().await.unwrap();
        runtime.ready(DEADLINE).await.unwrap();
        let server = runtime.server("large").unwrap();
        server.ping().await.unwrap();
        let before = begin_to_measure();
        let readable = if name.starts_with("resource") {
            let read = server.read_resource("x:1").deadline(DEADLINE).await;
            outcome(&read.map(|_: ReadResourceResult| ()))
        } else {
            let call = server.call_tool("x", json!({})).deadline(DEADLINE).await;
            outcome(&call.map(drop))
        };
        println!("\nread: {readable} {}", peak() - before);
        runtime.shutdown(Duration::from_secs(1)).await;
    });
}

fn outcome(read: &Result<(), CallError>) -> bool {
    match read {
        Ok(()) => true,
        Err(CallError::Unreadable { problem, .. }) => {
            eprintln!("{problem}");
            false
        }
        Err(other) => panic!("{other:?}"),
    }
}

/// Resets the peak; returns the memory that is resident now.
fn begin_to_measure() -> usize {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    resident("VmRSS:")
}

fn peak() -> usize {
    resident("VmHWM:")
}

fn resident(field: &str) -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.unwrap().trim().trim_end_matches(" kB");
    kib.parse::<usize>().unwrap() * 1024
}
