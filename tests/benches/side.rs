//! What is compared: the client, and its transport to the bench server.
//!
//! Helper processes get both as words on their command line.

use std::str::FromStr;

use crate::caller::Load;
use crate::{Outcome, bare, http, ours};

/// One side of the comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Side {
    /// The runtime.
    Ours,
    /// rmcp's own client.
    Bare,
}

/// The transport to the bench server.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Way {
    /// A child process over its pipes.
    Stdio,
    /// In-process: typed channels on our side, a duplex stream on the other.
    InProcess,
    /// Streamable HTTP on loopback.
    Http,
}

impl Side {
    /// The word on the command line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::Bare => "bare",
        }
    }
}

impl Way {
    /// The word on the command line and in the table.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Stdio => "stdio",
            Self::InProcess => "in-process",
            Self::Http => "http",
        }
    }
}

impl FromStr for Side {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        [Self::Ours, Self::Bare]
            .into_iter()
            .find(|side| side.word() == word)
            .ok_or_else(|| format!("no side {word}"))
    }
}

impl FromStr for Way {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        [Self::Stdio, Self::InProcess, Self::Http]
            .into_iter()
            .find(|way| way.word() == word)
            .ok_or_else(|| format!("no way {word}"))
    }
}

/// The main function of a client process: connect, call, close.
pub(crate) async fn client(side: Side, way: Way, load: Load) -> Outcome<()> {
    match (side, way) {
        (Side::Bare, Way::Stdio) => {
            let client = bare::stdio().await?;
            load.run(client.peer()).await?;
            client.cancel().await?;
        }
        (Side::Bare, Way::InProcess) => {
            let both = bare::InProcess::connect().await?;
            load.run(both.client.peer()).await?;
            both.close().await?;
        }
        (Side::Ours, Way::Stdio) => {
            let ours = ours::stdio().await?;
            load.run(&ours.caller()?).await?;
            ours.close().await;
        }
        (side, Way::Http) => http::client(side, load).await?,
        (Side::Ours, Way::InProcess) => {
            let ours = ours::in_process().await?;
            load.run(&ours.caller()?).await?;
            ours.close().await;
        }
    }
    Ok(())
}
