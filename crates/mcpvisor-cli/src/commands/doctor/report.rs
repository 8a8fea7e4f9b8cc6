//! The report of `doctor`, as text and as JSON.

use mcpvisor::config::{ConfigProblem, Severity};
use serde::Serialize;

use crate::exit::Exit;
use crate::output::{ColorMode, Diagnostic, counted, paint, printable};

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Check {
    pub(super) check: &'static str,
    pub(super) ok: bool,
    pub(super) detail: String,
    /// It works, but deserves attention.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(super) warning: bool,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) action: Option<String>,
    /// The line of the config, for text output.
    #[serde(skip)]
    pub(super) diagnostic: Option<Diagnostic>,
}

/// One server of the config.
#[derive(Debug, Default, Serialize)]
pub(super) struct ServerReport {
    pub(super) name: String,
    /// The file of its entry.
    pub(super) config: String,
    pub(super) transport: String,
    /// Its state; `None` if it was not started.
    pub(super) state: Option<String>,
    pub(super) protocol: Option<String>,
    pub(super) connect_ms: Option<u64>,
    pub(super) tools: Option<usize>,
    pub(super) checks: Vec<Check>,
    /// The end of its stderr, if it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stderr: Option<String>,
    #[serde(skip)]
    pub(super) needs_authorization: bool,
    /// It did not settle in time.
    #[serde(skip)]
    pub(super) late: bool,
}

/// All results.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) ok: bool,
    pub(super) problems: usize,
    pub(super) machine: Vec<Check>,
    pub(super) servers: Vec<ServerReport>,
    /// Whether `--timeout` was given.
    #[serde(skip)]
    pub(super) has_deadline: bool,
}

impl Check {
    pub(super) fn good(check: &'static str, detail: impl Into<String>) -> Self {
        Self {
            ok: true,
            ..Self::bad(check, detail, "")
        }
    }

    /// Something that works, but deserves attention.
    pub(super) fn warning(
        check: &'static str,
        detail: impl Into<String>,
        action: impl Into<String>,
    ) -> Self {
        Self {
            ok: true,
            warning: true,
            ..Self::bad(check, detail, action)
        }
    }

    pub(super) fn bad(
        check: &'static str,
        detail: impl Into<String>,
        action: impl Into<String>,
    ) -> Self {
        Self {
            check,
            ok: false,
            detail: detail.into(),
            warning: false,
            action: Some(action.into()).filter(|action: &String| !action.is_empty()),
            diagnostic: None,
        }
    }

    /// A problem of the config at this path. Only an unusable entry of an enabled server is a failure.
    pub(super) fn problem(check: &'static str, problem: &ConfigProblem, path: &str) -> Self {
        let place = problem.location.as_ref().map(ToString::to_string);
        let place = place.unwrap_or_else(|| path.to_owned());
        let (detail, action) = (problem.message.clone(), format!("Fix it at {place}."));
        let found = match problem.severity {
            Severity::Excluded => Self::bad(check, detail, action),
            _ => Self::warning(check, detail, action),
        };
        Self {
            diagnostic: Some(Diagnostic::from(problem)),
            ..found
        }
    }
}

impl ServerReport {
    fn problems(&self) -> usize {
        self.checks.iter().filter(|check| !check.ok).count()
    }
}

impl Report {
    pub(super) fn new(machine: Vec<Check>, servers: Vec<ServerReport>) -> Self {
        let problems = machine.iter().filter(|check| !check.ok).count();
        let problems = problems + servers.iter().map(ServerReport::problems).sum::<usize>();
        Self {
            ok: problems == 0,
            problems,
            machine,
            servers,
            has_deadline: false,
        }
    }

    /// Authorization and the deadline have their own exit codes, if nothing else is wrong.
    pub(super) fn exit(&self) -> Exit {
        let failed = || self.servers.iter().filter(|server| server.problems() > 0);
        let machine_ok = self.machine.iter().all(|check| check.ok);
        if self.ok {
            Exit::Ok
        } else if machine_ok && failed().all(|server| server.needs_authorization) {
            Exit::Authorization
        } else if self.has_deadline && machine_ok && failed().all(|server| server.late) {
            Exit::Deadline
        } else {
            Exit::Unreachable
        }
    }

    pub(super) fn render(&self, color: ColorMode) -> String {
        let mut text = format!("{}\n", paint(color, "1", "this machine"));
        text.extend(self.machine.iter().map(|check| lines(check, color)));
        for server in &self.servers {
            let title = paint(color, "1", &printable(&server.name));
            let title = format!("{title}  {}", server.transport);
            text.push_str(&format!("\n{}\n", title.trim_end()));
            text.extend(server.checks.iter().map(|check| lines(check, color)));
            for line in server.stderr.iter().flat_map(|stderr| stderr.lines()) {
                let line = paint(color, "2", &printable(line));
                text.push_str(&format!("  stderr   {line}\n"));
            }
        }
        let end = match self.problems {
            0 => paint(color, "32", "no problems"),
            count => paint(color, "31", &counted(count, "problem")),
        };
        let of_servers = self.servers.iter().flat_map(|server| &server.checks);
        let all = self.machine.iter().chain(of_servers);
        let warnings = match all.filter(|check| check.warning).count() {
            0 => String::new(),
            count => paint(color, "33", &format!(", {}", counted(count, "warning"))),
        };
        text.push_str(&format!("\n{end}{warnings}\n"));
        text
    }
}

/// A check, what it is about, and what to do.
fn lines(check: &Check, color: ColorMode) -> String {
    let mark = if check.warning {
        paint(color, "33", "WARNING")
    } else if check.ok {
        paint(color, "32", "ok     ")
    } else {
        paint(color, "31", "PROBLEM")
    };
    let (name, detail) = (check.check, printable(&check.detail));
    let mut text = format!("  {mark}  {name}: {detail}\n");
    let diagnostic = check.diagnostic.iter();
    for source in diagnostic.flat_map(|diagnostic| diagnostic.source(color)) {
        text.push_str(&format!("           {source}\n"));
    }
    if let Some(action) = &check.action {
        text.push_str(&format!("           {}\n", printable(action)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(checks: Vec<Check>, needs_authorization: bool) -> ServerReport {
        ServerReport {
            checks,
            needs_authorization,
            ..ServerReport::default()
        }
    }

    #[test]
    fn the_exit_code_is_that_of_the_worst_problem() {
        let bad = || vec![Check::bad("connection", "no", "Fix it.")];
        let good = || vec![Check::good("connection", "yes")];
        let exit = |machine, servers| Report::new(machine, servers).exit();
        assert_eq!(exit(good(), vec![server(good(), false)]), Exit::Ok);
        assert_eq!(exit(good(), vec![server(bad(), true)]), Exit::Authorization);
        let both = vec![server(bad(), true), server(bad(), false)];
        assert_eq!(exit(good(), both), Exit::Unreachable);
        assert_eq!(exit(bad(), vec![server(bad(), true)]), Exit::Unreachable);
        let warned = || vec![Check::warning("entry", "no unit", "Add one.")];
        assert_eq!(exit(warned(), vec![server(warned(), false)]), Exit::Ok);
    }
}
