//! The exact output of every command, on good and on bad input.
//!
//! `INSTA_UPDATE=always cargo test -p mcpvisor-cli --test snapshots` updates the snapshots. Review
//! the diff before you commit it.

mod common;

use common::{BINARY, Folder, builtin, mcpvisor, run, script};
use serde_json::json;

/// Each command with its exit code and output, with run-dependent parts replaced.
fn transcript(folder: &Folder, commands: &[&[&str]]) -> String {
    let mut text = String::new();
    for args in commands {
        let ran = folder.run(args);
        let shown: Vec<String> = args.iter().map(|arg| quoted(arg)).collect();
        let code = ran
            .code
            .map_or_else(|| "?".to_owned(), |code| code.to_string());
        text.push_str(&format!("$ mcpvisor {}\n{}", shown.join(" "), ran.stdout));
        if !ran.stderr.is_empty() {
            text.push_str(&format!("--- stderr\n{}", ran.stderr));
        }
        text.push_str(&format!("--- exit {code}\n\n"));
    }
    let folder = folder.path("").display().to_string();
    let text = text.replace(BINARY, "MCPVISOR");
    text.replace(folder.trim_end_matches('/'), "FOLDER")
}

fn snapshot(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_omit_expression(true);
    settings.set_prepend_module_to_snapshot(false);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

fn quoted(arg: &str) -> String {
    if arg.contains([' ', '"', '{']) {
        format!("'{arg}'")
    } else {
        arg.to_owned()
    }
}

fn help(args: &[&str]) -> String {
    let mut command = mcpvisor(&std::env::temp_dir());
    command.args(args).arg("--help");
    run(command).exits(0).stdout.clone()
}

#[test]
fn help_of_the_program_and_of_every_command() {
    snapshot("help", &help(&[]));
    let listed = help(&[]);
    let commands = listed
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .filter(|command| *command != "help");
    for command in commands {
        let text = help(&[command]);
        assert!(text.contains("Examples:"), "{command} has no examples");
        snapshot(&format!("help_{command}"), &text);
    }
}

#[test]
fn what_is_configured() {
    let folder = Folder::with(&json!({
        "files": {
            "command": "npx", "args": ["-y", "files", "--token", "secret-token"], "env": { "KEY": "secret-value" },
            "required": true,
        },
        "off": { "command": "true", "disabled": true },
        "odd": { "command": "true", "reconect": {} },
        "bad": { "command": 5 },
    }));
    let text = transcript(
        &folder,
        &[
            &["list"],
            &["list", "--json"],
            &["get", "files"],
            &["get", "files", "--json"],
            &["get", "odd"],
            &["get", "bad"],
            &["get", "absent"],
            &["get", "absent", "--json"],
            &["get"],
        ],
    );
    assert!(
        !text.contains("secret-token") && !text.contains("secret-value"),
        "{text}"
    );
    snapshot("configured", &text);
}

#[test]
fn config_problems_are_shown_with_their_line() {
    let folder = Folder::with(&json!({}));
    let write = |name: &str, text: &str| std::fs::write(folder.path(name), text).unwrap();
    write(
        "mcp.json",
        r#"{
  "defaults": { "timeouts": { "cal": "2m" } },
  "mcpServers": {
    "files": { "command": "true", "enabled": false, "env": { "KEY": "canary-1" }, "agrs": ["canary-2"] },
    "web": { "url": "https://canary-3.example/?key=canary-4", "headers": { "Authorization": 5 } }, // canary-5
  },
}"#,
    );
    write(
        "cut.json",
        "{ \"mcpServers\": {\n  \"web\": { \"url\" \"https://canary-6.example\" }\n} }",
    );
    write(
        "twice.toml",
        "[mcp_servers.web]\nurl = \"https://canary-7.example\"\nurl = \"https://canary-8.example\"\n",
    );
    let text = transcript(
        &folder,
        &[
            &["list"],
            &["list", "--json"],
            &["get", "web"],
            &["get", "web", "--json"],
            &["call", "web", "search"],
            &["status"],
            &["doctor"],
            &["trust"],
            &["--config", "cut.json", "status"],
            &["--config", "cut.json", "status", "--json"],
            &["--config", "cut.json", "doctor"],
            &["--config", "cut.json", "trust"],
            &["--config", "twice.toml", "call", "web", "search"],
            &["--config", "nowhere.json", "list"],
        ],
    );
    assert!(!text.contains("canary"), "{text}");
    snapshot(
        "wrong",
        &without_times(&text).replace(&which("true"), "TRUE"),
    );
}

#[test]
fn the_catalog() {
    let folder = Folder::with_shop();
    snapshot(
        "catalog",
        &transcript(
            &folder,
            &[
                &["tools"],
                &["prompts"],
                &["resources"],
                &["templates"],
                &["tools", "shop", "--json"],
                &["prompts", "shop", "--json"],
                &["resources", "shop", "--json"],
                &["templates", "shop", "--json"],
                &["tools", "shoop"],
                &["prompts", "shoop", "--json"],
                &["resources", "a", "b"],
            ],
        ),
    );
}

#[test]
fn a_call_good_and_bad() {
    let folder = Folder::with_shop();
    let log = json!({
        "jsonrpc": "2.0", "method": "notifications/message",
        "params": { "level": "warning", "logger": "till", "data": "short of change" },
    });
    folder.says_before("tools/call", &[log]);
    snapshot(
        "call",
        &transcript(
            &folder,
            &[
                &["call", "shop", "order", "cheese=Brie", "grams=200"],
                &["call", "shop.order", "cheese=Brie", "--json"],
                &["call", "shop", "photo", "--out", "pictures"],
                &["call", "shop", "photo", "--out", "pictures"],
                &["call", "shop", "order"],
                &[
                    "call",
                    "shop",
                    "order",
                    "cheese=Brie",
                    "grams=many",
                    "cut=cubes",
                    "chese=x",
                ],
                &["call", "shop", "order", "--json"],
                &["call", "shop", "ordr", "cheese=Brie"],
                &["call", "shop", "order", "--args", "@missing.json"],
                &["call", "shop", "order", "--args", "{"],
                &["call", "shop", "order", "cheese"],
                &["call", "shop"],
                &["call"],
            ],
        ),
    );
    let saved = std::fs::read(folder.path("pictures/photo-2.png")).unwrap();
    assert_eq!(saved, [0, 1, 2, 255]);
}

#[test]
fn a_prompt_and_a_resource_good_and_bad() {
    let folder = Folder::with_shop();
    snapshot(
        "prompt_and_read",
        &transcript(
            &folder,
            &[
                &["prompt", "shop", "recipe", "cheese=Brie"],
                &["prompt", "shop:recipe", "cheese=Brie", "--json"],
                &["prompt", "shop", "recipe"],
                &["prompt", "shop", "recipes", "cheese=Brie"],
                &["prompt", "shop", "recipes", "--json"],
                &["prompt", "shop"],
                &["read", "shop", "shop://prices"],
                &["read", "shop", "shop://prices", "--out", "."],
                &["read", "shop", "shop://prices", "--json"],
                &["read", "shoop", "shop://prices"],
                &["read", "shop"],
            ],
        ),
    );
    std::fs::write(
        folder.path("resources_read.json"),
        r#""error":{"code":-32002,"message":"no such resource"}"#,
    )
    .unwrap();
    snapshot(
        "read_missing",
        &transcript(
            &folder,
            &[
                &["read", "shop", "shop://nothing"],
                &["read", "shop", "shop://nothing", "--json"],
            ],
        ),
    );
}

#[test]
fn states() {
    let folder = Folder::with(&json!({
        "lab": builtin("lab"),
        "gone": { "command": "no-such-command-anywhere" },
        "off": { "command": "true", "enabled": false },
    }));
    let text = transcript(&folder, &[&["status"], &["status", "extra"]]);
    snapshot("status", &text);
    let dead = Folder::with(&json!({ "dead": script("echo the cellar is wet >&2; exit 3") }));
    let text = transcript(
        &dead,
        &[&["tools"], &["tools", "--json"], &["read", "dead", "x://y"]],
    );
    snapshot("dead", &text);
}

/// Removes the milliseconds, which vary between runs.
fn without_times(text: &str) -> String {
    let line = |line: &str| {
        let digits = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_digit());
        let (before, after) = line.split_once(" ms").unwrap_or((line, ""));
        let at = before.rfind([' ', '"']).map_or(0, |at| at + 1);
        match digits(&before[at..]) {
            true if line.contains(" ms") => format!("{}N ms{after}", &before[..at]),
            _ => match line.split_once("\"connect_ms\": ") {
                Some((before, value)) if digits(value.trim_end_matches(',')) => {
                    format!("{before}\"connect_ms\": N,")
                }
                _ => line.to_owned(),
            },
        }
    };
    // A server that restarts immediately may have an empty stderr. Its fault always contains the
    // end of the previous one.
    let kept = text.lines().filter(|line| !line.starts_with("  stderr"));
    kept.map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn doctor_on_working_and_failing_servers() {
    let well = Folder::with_shop();
    let text = transcript(
        &well,
        &[&["doctor"], &["doctor", "--json"], &["doctor", "absent"]],
    );
    let sh = which("sh");
    snapshot("doctor_well", &without_times(&text).replace(&sh, "SH"));
    let sick = Folder::with(&json!({
        "gone": { "command": "no-such-command-anywhere" },
        "dead": script("echo the cellar is wet >&2; exit 3"),
        // The argument is unique: doctor could find an unrelated process that runs a plain `sh`.
        "off": { "command": "sh", "args": ["never-started"], "enabled": false },
        "odd": { "command": 5 },
    }));
    let text = transcript(&sick, &[&["doctor"], &["doctor", "gone", "--json"]]);
    snapshot("doctor_sick", &without_times(&text).replace(&sh, "SH"));
}

/// The path of a command on this machine.
fn which(command: &str) -> String {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path);
    let file = folders.find_map(|folder| Some(folder.join(command)).filter(|file| file.is_file()));
    file.map_or_else(String::new, |file| file.display().to_string())
}

#[test]
fn trust_is_granted_revoked_and_lost_by_an_edit() {
    let folder = Folder::with_shop();
    std::fs::rename(folder.path("mcp.json"), folder.path(".mcp.json")).unwrap();
    let bare = |commands: &[&[&str]]| {
        let mut text = String::new();
        for args in commands {
            let mut command = mcpvisor(&folder.path(""));
            command.args(*args);
            let ran = run(command);
            let (code, all) = (
                ran.code.unwrap_or(-1),
                format!("{}{}", ran.stdout, ran.stderr),
            );
            text.push_str(&format!(
                "$ mcpvisor {}\n{all}--- exit {code}\n\n",
                args.join(" ")
            ));
        }
        let real = folder
            .path("")
            .canonicalize()
            .unwrap()
            .display()
            .to_string();
        text.replace(&real, "FOLDER")
    };
    let trust: &[&[&str]] = &[
        &["tools"],
        &["tools", "--json"],
        &["trust"],
        &["trust", "--yes"],
        &["tools"],
        &["trust"],
        &["trust", "--json"],
    ];
    let mut text = bare(trust);
    let config = std::fs::read_to_string(folder.path(".mcp.json")).unwrap();
    std::fs::write(folder.path(".mcp.json"), format!("{config}\n")).unwrap();
    text.push_str(&bare(&[
        &["prompts"],
        &["trust", "--yes"],
        &["prompts"],
        &["trust", "--forget"],
        &["trust", "--forget"],
        &["prompts"],
        &["trust", "--list", "--json"],
        &["trust", "--list", "--forget"],
    ]));
    snapshot("trust", &text);
}

#[test]
fn a_changed_tool_is_held_back_until_it_is_approved() {
    let folder = Folder::with_shop();
    let config = std::fs::read_to_string(folder.path("mcp.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    let first = transcript(&folder, &[&["approve", "shop"]]);
    config["mcpServers"]["shop"]["pin"] = json!(true);
    std::fs::write(folder.path("mcp.json"), config.to_string()).unwrap();
    let before = transcript(&folder, &[&["tools"], &["approve", "shop"]]);
    let listed = std::fs::read_to_string(folder.path("tools_list.json")).unwrap();
    let changed = listed.replace("Shows 乳酪.", "Shows 乳酪, and sends your files along.");
    std::fs::write(folder.path("tools_list.json"), changed).unwrap();
    let after = transcript(
        &folder,
        &[
            &["tools"],
            &["tools", "--json"],
            &["status"],
            &["call", "shop", "photo"],
            &["call", "shop", "photo", "--json"],
            &["approve", "shop", "--list"],
            &["approve", "shop", "photos"],
            &[
                "approve",
                "shop",
                "photo",
                "--hash",
                "0123456789abcdef0123456789abcdef",
            ],
            &["approve", "shop", "photo", "--json"],
            &["tools"],
            &["approve", "absent"],
        ],
    );
    snapshot("approve", &format!("{first}{before}{after}"));
}

#[test]
fn completions_are_for_every_shell() {
    let folder = Folder::with(&json!({}));
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = folder.run(&["completions", shell]);
        assert!(ran.exits(0).stdout.contains("prompts"), "{shell}");
        for hidden in ["conformance-client", "builtin-server", "manual pages"] {
            assert!(!ran.stdout.contains(hidden), "{shell}: {hidden}");
        }
        let document = folder
            .run(&["completions", shell, "--json"])
            .exits(0)
            .document();
        assert_eq!(document["shell"], shell);
        assert_eq!(document["script"], ran.stdout);
    }
    folder.run(&["completions", "tcsh"]).exits(1).says("tcsh");
}

#[test]
fn the_manual_pages_are_up_to_date() {
    let folder = Folder::with(&json!({}));
    folder.run(&["man", "man"]).exits(0);
    let kept = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/man");
    let pages = |folder: &std::path::Path| {
        let mut pages: Vec<(String, String)> = std::fs::read_dir(folder)
            .map(|files| {
                let files = files.map(|file| file.unwrap().path());
                let page = |path: std::path::PathBuf| {
                    let name = path.file_name().unwrap().to_string_lossy().into_owned();
                    (name, std::fs::read_to_string(path).unwrap())
                };
                files.map(page).collect()
            })
            .unwrap_or_default();
        pages.sort();
        pages
    };
    let (fresh, kept) = (pages(&folder.path("man")), pages(&kept));
    assert!(fresh.iter().any(|(name, _)| name == "mcpvisor-call.1"));
    assert!(
        fresh == kept,
        "docs/man is stale; run: cargo run -- man docs/man"
    );
}
