//! `trust`: lets the commands of a found config run, until it is edited.
//!
//! It first shows every command with its arguments, and the changes since the config was last trusted.

use std::io::{self, IsTerminal, Write};

use mcpvisor::config::{Fact, Review, ReviewedServer, Trust, Trusted};
use serde_json::json;

use crate::args::TrustArgs;
use crate::config::source;
use crate::config::state_dir;
use crate::elicit::discard_typed_ahead;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::fleet;
use crate::invocation::Invocation;
use crate::output::{Output, Table, TextFormat, printable, suggest_command};

pub(super) fn run(args: &TrustArgs, invocation: &Invocation<'_>) -> Result<Exit, Failure> {
    let output = &invocation.output;
    let store = state_dir::trust_store()
        .ok_or_else(|| Failure::config("no state folder. Set HOME or MCPVISOR_STATE_DIR."))?;
    let failed = |error: io::Error| {
        Failure::unexpected(format!(
            "cannot access the list of trusted configs: {error}"
        ))
    };
    if args.list {
        return list(&store.list().map_err(failed)?, output);
    }
    let source = invocation.source()?;
    let path = source.path();
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let path = path.display().to_string();
    if args.forget {
        let known = store.distrust(source.path()).map_err(failed)?;
        let message = match known {
            true => format!("{path} is no longer trusted."),
            false => format!("{path} was not trusted."),
        };
        let document = json!({ "path": path, "trusted": false });
        return output.result(&document, || printable(&message));
    }
    let text = source.text()?;
    fleet::warn(&source::parse(&text)?, output);
    let review = Review::of(&text).map_err(Failure::unreadable)?;
    let standing = store.check(&text);
    if !output.json() {
        let before = store.reviewed(source.path());
        let before = before.filter(|_| standing == Trust::Changed);
        output.text(&shown(&path, standing, &review, before.as_ref()))?;
    }
    if standing != Trust::Trusted {
        confirm(args.yes, output)?;
        store.trust(&text).map_err(failed)?;
    }
    let servers = review.servers.iter().map(|server| {
        let (name, facts, fingerprint) = (&server.name, &server.facts, &server.fingerprint);
        json!({ "name": name, "facts": facts, "fingerprint": fingerprint })
    });
    let servers: Vec<_> = servers.collect();
    let document = json!({ "path": path, "trusted": true, "servers": servers });
    let message = match standing {
        Trust::Trusted => format!("{path} is already trusted."),
        _ => format!("Trusted {path}. Editing it revokes trust."),
    };
    output.result(&document, || printable(&message))
}

/// Asks for confirmation at the terminal, unless `--yes` was given.
fn confirm(yes: bool, output: &Output) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    let terminal = io::stdin().is_terminal() && io::stderr().is_terminal() && !output.json();
    if !terminal {
        let command = suggest_command(&["trust", "--yes"]);
        return Err(Failure::untrusted(format!(
            "not trusted: no terminal to confirm on. Review the config, then run `{command}`."
        )));
    }
    discard_typed_ahead();
    let mut stderr = io::stderr();
    let _ = write!(stderr, "Trust this config? [y/N] ");
    let _ = stderr.flush();
    let mut answer = String::new();
    let _ = io::stdin().read_line(&mut answer);
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::untrusted("not trusted")),
    }
}

/// What the config runs, and how that differs from what was trusted.
fn shown(path: &str, standing: Trust, now: &Review, before: Option<&Review>) -> String {
    let title = match (standing, before) {
        (Trust::Changed, Some(_)) => {
            format!("{path} changed since it was trusted (+ new, - removed, ~ changed):")
        }
        (Trust::Changed, None) => format!("{path} changed since it was trusted. It runs:"),
        _ => format!("{path} runs:"),
    };
    let mut lines = vec![printable(&title)];
    for server in &now.servers {
        match before.map(|before| before.server(&server.name)) {
            None => whole(&mut lines, ' ', server),
            Some(None) => whole(&mut lines, '+', server),
            Some(Some(old)) => changed(&mut lines, old, server),
        }
    }
    let gone = before.into_iter().flat_map(|before| &before.servers);
    for server in gone.filter(|old| now.server(&old.name).is_none()) {
        whole(&mut lines, '-', server);
    }
    let folder = |review: &Review| review.state_dir.clone();
    let (old, new) = (before.and_then(folder), folder(now));
    let same = before.is_none() || old == new;
    let mark = |mark| if same { ' ' } else { mark };
    if !same && let Some(old) = old {
        lines.extend(shown_fact(mark('-'), "", "state folder", &old));
    }
    if let Some(new) = new {
        lines.extend(shown_fact(mark('+'), "", "state folder", &new));
    }
    if now.servers.is_empty() {
        lines.push("  nothing".to_owned());
    }
    lines.join("\n")
}

fn whole(lines: &mut Vec<String>, mark: char, server: &ReviewedServer) {
    lines.push(format!("{mark} {}", printable(&server.name)));
    let facts = server.facts.iter();
    lines.extend(facts.flat_map(|fact| shown_fact(mark, "  ", &fact.label, &fact.value)));
}

/// A server that existed before, fact by fact. A line is also marked if a hidden value of it changed.
fn changed(lines: &mut Vec<String>, old: &ReviewedServer, new: &ReviewedServer) {
    lines.push(format!("  {}", printable(&new.name)));
    let of = |mark, fact: &Fact| shown_fact(mark, "  ", &fact.label, &fact.value);
    for fact in old.facts.iter().filter(|fact| !new.facts.contains(fact)) {
        lines.extend(of('-', fact));
    }
    let unseen: Vec<&str> = new.changed_unseen(old).collect();
    let mut marked = old.facts != new.facts && !old.hidden.is_empty();
    for fact in &new.facts {
        let label = fact.label.as_str();
        let values = unseen
            .iter()
            .filter_map(|key| key.strip_prefix(label)?.strip_prefix(' '));
        let values: Vec<&str> = values.collect();
        let mark = match old.facts.contains(fact) {
            false => '+',
            true if unseen.contains(&label) || !values.is_empty() => '~',
            true => ' ',
        };
        marked |= mark == '~';
        lines.extend(of(mark, fact));
        if !values.is_empty() {
            lines.extend(shown_fact('~', "  ", "new value", &values.join(" ")));
        }
    }
    let settings = unseen.contains(&"settings");
    if settings || (!marked && old.fingerprint != new.fingerprint) {
        let what = if settings {
            "settings"
        } else {
            "settings or values"
        };
        lines.push(format!("~   {what} that are not shown"));
    }
}

/// A fact as printable lines. Further lines of a script start with a bar, so that none looks like a
/// line of ours.
fn shown_fact(mark: char, indent: &str, label: &str, value: &str) -> Vec<String> {
    let lines = value.split('\n').enumerate().map(|(number, text)| {
        let (label, bar) = match number {
            0 => (printable(label), ""),
            _ => (String::new(), "| "),
        };
        let line = format!("{mark} {indent}{label:<10} {bar}{}", printable(text));
        line.trim_end().to_owned()
    });
    lines.collect()
}

fn list(trusted: &[Trusted], output: &Output) -> Result<Exit, Failure> {
    let mut document = Vec::new();
    let mut table = Table::new(["CONFIG", "SHA-256"]);
    for one in trusted {
        let (path, sha256) = (one.path.display().to_string(), &one.fingerprint);
        document.push(json!({ "path": path, "sha256": sha256 }));
        table.row([path, sha256.chars().take(12).collect()]);
    }
    output.result(&document, || table.render(TextFormat::of_stdout()))
}
