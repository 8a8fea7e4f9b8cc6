//! Entries of a config that cannot be used: they are servers too, in need of a person.

use mcpvisor::Config;
use mcpvisor::config::{ConfigProblem, Severity};
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::failure::Failure;

/// An entry that cannot be used.
#[derive(Debug)]
pub(crate) struct LeftOut<'c> {
    pub(crate) name: &'c str,
    problem: &'c ConfigProblem,
}

/// What is wrong, in the shape that the status of a server has it.
#[derive(Debug, Serialize)]
pub(crate) struct Fault<'c> {
    class: &'static str,
    message: &'c str,
}

/// Those of a config, each once and in its order; an entry that a later one of its name mends is
/// none of them.
pub(crate) fn of(config: &Config) -> Vec<LeftOut<'_>> {
    let mut found: Vec<LeftOut<'_>> = Vec::new();
    for problem in &config.problems {
        let Some(name) = problem
            .server
            .as_deref()
            .filter(|_| costs_its_server(problem))
        else {
            continue;
        };
        let known = config.servers.iter().any(|s| s.name.as_str() == name);
        if !known && !found.iter().any(|earlier| earlier.name == name) {
            found.push(LeftOut { name, problem });
        }
    }
    found
}

/// Whether the server of a problem is not in the fleet because of it.
pub(crate) fn costs_its_server(problem: &ConfigProblem) -> bool {
    matches!(problem.severity, Severity::LeftOut | Severity::Off)
}

impl<'c> LeftOut<'c> {
    /// Whether its entry switches it off, so that nobody misses it.
    pub(crate) fn is_off(&self) -> bool {
        self.problem.severity == Severity::Off
    }

    /// Its state, in the words that the status of other servers has.
    pub(crate) fn state(&self) -> &'static str {
        match self.is_off() {
            true => "disabled",
            false => "permanently_failed",
        }
    }

    pub(crate) fn message(&self) -> &'c str {
        &self.problem.message
    }

    pub(crate) fn fault(&self) -> Fault<'c> {
        Fault {
            class: "config",
            message: &self.problem.message,
        }
    }

    /// What to do about it.
    pub(crate) fn action(&self) -> String {
        match &self.problem.location {
            Some(place) => format!("mend it at {place}"),
            None => "mend its entry".to_owned(),
        }
    }

    /// What is wrong and what to do, as one line.
    pub(crate) fn note(&self) -> String {
        format!("{}; {}", self.problem.message, self.action())
    }

    /// As a failure of a command that is about it.
    pub(crate) fn failure(&self) -> Failure {
        match self.is_off() {
            true => Failure::disabled(self.name),
            false => Failure::unusable(self.problem).at(self.name),
        }
    }
}

/// As the status of a server, with every field that the others have: nobody knows how it is reached,
/// and it was never anything else.
impl Serialize for LeftOut<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        const NOTHING: Option<()> = None;
        let mut status = serializer.serialize_struct("LeftOut", 17)?;
        status.serialize_field("name", self.name)?;
        status.serialize_field("instance", &0)?;
        status.serialize_field("state", self.state())?;
        status.serialize_field("generation", &0)?;
        status.serialize_field("since", &NOTHING)?;
        status.serialize_field("attempt", &0)?;
        for unknown in ["retry_in_ms", "protocol", "server", "transport"] {
            status.serialize_field(unknown, &NOTHING)?;
        }
        for count in ["tools", "prompts", "resources"] {
            status.serialize_field(count, &0)?;
        }
        status.serialize_field("stale", &true)?;
        status.serialize_field("in_flight", &0)?;
        status.serialize_field("last_error", &self.fault())?;
        status.serialize_field("action", &self.action())?;
        status.end()
    }
}
