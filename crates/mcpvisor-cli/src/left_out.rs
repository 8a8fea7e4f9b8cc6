//! Entries of a config that cannot be used: they are servers too, in need of a person.

use mcpvisor::Config;
use mcpvisor::config::{ConfigProblem, Severity};
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use crate::failure::Failure;

/// The state that the status of other servers calls so.
pub(crate) const STATE: &str = "permanently_failed";

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
        let (Severity::LeftOut, Some(name)) = (problem.severity, problem.server.as_deref()) else {
            continue;
        };
        let known = config.servers.iter().any(|s| s.name.as_str() == name);
        if !known && !found.iter().any(|earlier| earlier.name == name) {
            found.push(LeftOut { name, problem });
        }
    }
    found
}

impl<'c> LeftOut<'c> {
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
        Failure::unusable(self.problem).at(self.name)
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
        status.serialize_field("state", STATE)?;
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
