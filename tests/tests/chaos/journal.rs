//! What the servers recorded: effects and connections.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use mcpvisor_testkit::http_server::HttpServer;
use mcpvisor_testkit::scripted::{EntryKind, ScriptedServer};

use crate::history::{Connection, Effect, Link};
use crate::servers::{EFFECT, Fleet, Peer, Server};

/// All effects that ran.
pub(crate) fn effects(fleet: &Fleet) -> Vec<Effect> {
    let of_server = |server: &Server| {
        let ids = match &server.peer {
            Peer::InProcess(scripted) => called(scripted),
            Peer::Child | Peer::BadChild | Peer::Http(_) => lines(&server.effects),
        };
        let server = server.name.clone();
        ids.into_iter().map(move |id| Effect {
            id: id.parse().unwrap(),
            server: server.clone(),
        })
    };
    fleet.servers.iter().flat_map(of_server).collect()
}

/// All connections that servers saw.
pub(crate) fn connections(fleet: &Fleet) -> Vec<Connection> {
    let of_server = |server: &Server| {
        let links = match &server.peer {
            Peer::Child | Peer::BadChild => processes(&server.journal),
            Peer::Http(http) => sessions(http),
            Peer::InProcess(scripted) => served(scripted),
        };
        let server = server.name.clone();
        links.into_iter().map(move |what| Connection {
            server: server.clone(),
            what,
        })
    };
    fleet.servers.iter().flat_map(of_server).collect()
}

fn lines(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

fn called(scripted: &ScriptedServer) -> Vec<String> {
    let calls = scripted.record().calls(EFFECT);
    calls
        .iter()
        .map(|call| call.arguments["text"].as_str().unwrap().to_owned())
        .collect()
}

fn processes(journal: &Path) -> Vec<Link> {
    let link = |line: String| {
        let (word, pid) = line.split_once(' ').unwrap();
        let pid = pid.parse().unwrap();
        match word {
            "opened" => Link::Started { pid },
            "beside" => Link::StartedBeside { pid },
            other => panic!("{other} in the journal of a child"),
        }
    };
    lines(journal).into_iter().map(link).collect()
}

fn served(scripted: &ScriptedServer) -> Vec<Link> {
    let link = |entry: mcpvisor_testkit::scripted::Entry| {
        let generation = entry.generation;
        match entry.what {
            EntryKind::Opened => Some(Link::Opened { generation }),
            EntryKind::Ended(_) => Some(Link::Closed { generation }),
            EntryKind::Received(_) | EntryKind::Answered { .. } | EntryKind::Refused { .. } => None,
        }
    };
    let entries = scripted.record().entries();
    entries.into_iter().filter_map(link).collect()
}

/// Handshakes and sessions. The modern era has neither: the same request opens a connection and
/// checks it.
fn sessions(http: &HttpServer) -> Vec<Link> {
    let mut links = Vec::new();
    let received = http.received();
    let mut sessions = BTreeMap::<&str, (u64, u64)>::new();
    for one in &received {
        if one.method == "initialize" {
            links.push(Link::Handshake);
        }
        // Over HTTP+SSE, the address names the session.
        let of_endpoint = one.path.strip_prefix("/messages?session_id=");
        if let Some(id) = one.header("mcp-session-id").or(of_endpoint) {
            sessions.entry(id).or_insert((one.at_ms, one.at_ms)).1 = one.at_ms;
        }
    }
    let session = |(id, (first, last)): (&str, (u64, u64))| Link::Session {
        id: id.to_owned(),
        first: Duration::from_millis(first),
        last: Duration::from_millis(last),
    };
    links.extend(sessions.into_iter().map(session));
    links
}
