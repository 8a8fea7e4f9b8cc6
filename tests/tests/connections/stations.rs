//! A scripted server for every connection, so that a test sees which connection got what.

use std::sync::{Arc, Mutex};

use mcpvisor::Transport;
use mcpvisor_testkit::eventually;
use mcpvisor_testkit::scripted::{Script, ScriptedServer};

use crate::fleet::DEADLINE;

/// One scripted server per connection, in the order in which they were opened.
#[derive(Clone)]
pub(crate) struct Stations {
    opened: Arc<Mutex<Vec<ScriptedServer>>>,
    script: Arc<dyn Fn(usize) -> Script + Send + Sync>,
}

impl Stations {
    /// The same script on every connection.
    pub(crate) fn new(script: Script) -> Self {
        Self::each(move |_| script.clone())
    }

    /// A script for each connection, by its number.
    pub(crate) fn each(script: impl Fn(usize) -> Script + Send + Sync + 'static) -> Self {
        Self {
            opened: Arc::default(),
            script: Arc::new(script),
        }
    }

    pub(crate) fn transport(&self) -> Transport {
        let stations = self.clone();
        Transport::channel(move |end| {
            let server = {
                let mut opened = stations.opened.lock().unwrap();
                let server = ScriptedServer::new((stations.script)(opened.len()));
                opened.push(server.clone());
                server
            };
            server.serve(end.incoming, end.outgoing, end.generation.get())
        })
    }

    /// All connections so far.
    pub(crate) fn all(&self) -> Vec<ScriptedServer> {
        self.opened.lock().unwrap().clone()
    }

    pub(crate) fn nth(&self, number: usize) -> ScriptedServer {
        self.all()[number].clone()
    }

    /// How many connections are open.
    pub(crate) fn live(&self) -> usize {
        let all = self.all();
        all.iter().map(|it| it.control().live().len()).sum()
    }

    /// How many calls of a tool each connection received.
    pub(crate) fn calls(&self, tool: &str) -> Vec<usize> {
        let all = self.all();
        all.iter().map(|it| it.record().calls(tool).len()).collect()
    }

    /// Waits until all connections together received this many calls.
    pub(crate) async fn received(&self, tool: &str, calls: usize) {
        eventually(DEADLINE, format!("{calls} calls of {tool}"), || {
            let now = self.calls(tool);
            if now.iter().sum::<usize>() == calls {
                Ok(())
            } else {
                Err(now)
            }
        })
        .await;
    }

    /// Lets every held call of a tool end.
    pub(crate) fn release(&self, tool: &str) {
        for station in self.all() {
            station.control().release(tool, 1_000);
        }
    }
}
