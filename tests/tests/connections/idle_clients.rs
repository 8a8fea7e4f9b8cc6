//! What clients cost that do nothing.

use std::time::Duration;

use mcpvisor::{Client, ConnectionScope};
use mcpvisor_testkit::in_own_process;
use mcpvisor_testkit::leaks::Snapshot;
use mcpvisor_testkit::scripted::{Behaviour, Script};

use crate::fleet::{DEADLINE, fleet, server};
use crate::stations::Stations;

const CLIENTS: usize = 10_000;

/// Each has a quota and a rate, and may have a connection of its own.
#[test]
fn ten_thousand_idle_clients_cost_less_than_a_kilobyte_each() {
    let name = "idle_clients::ten_thousand_idle_clients_cost_less_than_a_kilobyte_each";
    in_own_process(name, Duration::from_secs(120), async || {
        let stations = Stations::new(Script::new().tool("t", Behaviour::answer()));
        let scoped = server("own", stations.transport()).scope(ConnectionScope::Client);
        let shared = server("shared", stations.transport());
        let runtime = fleet([scoped, shared]).await;
        runtime.settled(DEADLINE).await;
        let client = |n: usize| {
            let client = runtime.client(format!("agent-{n}")).quota(4).waiting(16);
            client.rate(60, Duration::from_secs(60)).build()
        };
        // The allocator has what the first ones need.
        let mut clients: Vec<Client> = Vec::with_capacity(2 * CLIENTS);
        clients.extend((0..100).map(client));
        let before = Snapshot::take().memory;
        clients.extend((0..CLIENTS).map(client));
        let each = Snapshot::take().memory.saturating_sub(before) / CLIENTS as u64;
        println!("{each} bytes per client");
        assert!(each < 1_024, "{each} bytes per client");
        assert_eq!(stations.live(), 2);
    });
}
