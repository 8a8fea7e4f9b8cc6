//! A reload from one config to another is equivalent to a fresh start with the other.

use super::*;

/// Generates small random configs over the same few servers.
struct Dice {
    dice: fastrand::Rng,
    transports: Vec<Transport>,
}

impl Dice {
    fn config(&mut self) -> Config {
        let mut servers = Vec::new();
        for name in ["a", "b", "c", "d"] {
            if self.dice.u8(0..10) < 3 {
                continue;
            }
            let transport = self.dice.choice(&self.transports).unwrap().clone();
            let mut server = server(name, transport);
            server.enabled = self.dice.u8(0..10) < 8;
            server.required = self.dice.bool();
            server.settings.budget.attempts = self.dice.u32(1..4);
            server.settings.admission.in_flight = self.dice.usize(1..4);
            let filters: [&[&str]; 4] = [&[], &["x*"], &["?"], &["*"]];
            server.tools = deny(self.dice.choice(filters).unwrap());
            if self.dice.u8(0..10) < 3 {
                server.settings.rest.lazy = true;
            }
            if self.dice.bool() {
                server.settings.rest.sleep_after = Some(secs(600));
            }
            servers.push(server);
        }
        config(servers)
    }
}

type Seen = (Vec<(String, StateName, u32, bool, usize)>, Vec<String>);

/// Everything that a reload decides, as visible to callers.
fn seen(runtime: &Runtime) -> Seen {
    let of = |it: &mcpvisor::ServerStatus| {
        let name = it.name.to_string();
        (name, it.state, it.attempts_limit, it.required, it.tools)
    };
    let tools = runtime.catalog();
    let tools = tools.tools().map(|it| it.exposed().to_owned()).collect();
    (runtime.status().iter().map(of).collect(), tools)
}

async fn settled(runtime: &Runtime) {
    for name in runtime.servers() {
        let handle = runtime.server(name.as_str()).unwrap();
        let what = format!("{name} has settled");
        let done = |it: &mcpvisor::ServerStatus| it.is_ready() || it.state == StateName::Disabled;
        mcpvisor_testkit::eventually::eventually_in(DEADLINE, what, &mut handle.watch(), done)
            .await;
    }
}

/// A lazy server that is awake may stay awake, so those are compared awake.
async fn roused(runtime: &Runtime, config: &Config) {
    let lazy = |it: &&ServerConfig| it.enabled && it.settings.rest.lazy;
    for server in config.servers.iter().filter(lazy) {
        runtime.enable(server.name.as_str()).await.unwrap();
        let handle = runtime.server(server.name.as_str()).unwrap();
        in_state(&handle, StateName::Connected).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_reload_from_one_config_to_another_equals_a_fresh_start_with_the_other() {
    let scripts: [&[&str]; 3] = [&["x", "y"], &["x1", "z"], &[]];
    let transports = scripts.map(|tools| {
        let script = tools.iter().fold(Script::bare(), |script, name| {
            script.tool(name, Behaviour::answer())
        });
        scripted(&ScriptedServer::new(script))
    });
    for seed in 0..size(60, 2_000) {
        let mut dice = Dice {
            dice: fastrand::Rng::with_seed(seed as u64),
            transports: transports.to_vec(),
        };
        let reloaded = Runtime::builder()
            .config(dice.config())
            .start()
            .await
            .unwrap();
        if dice.dice.bool() {
            settled(&reloaded).await;
        }
        for _ in 0..3 {
            let next = dice.config();
            reloaded.reload(next.clone()).await.unwrap();
            let again = reloaded.reload(next.clone()).await.unwrap();
            assert!(again.is_unchanged(), "seed {seed}: {again:?}");
            if dice.dice.bool() {
                continue;
            }
            let fresh = Runtime::builder()
                .config(next.clone())
                .start()
                .await
                .unwrap();
            for runtime in [&reloaded, &fresh] {
                settled(runtime).await;
                roused(runtime, &next).await;
                settled(runtime).await;
            }
            assert_eq!(seen(&reloaded), seen(&fresh), "seed {seed}");
            fresh.shutdown(DEADLINE).await;
        }
        reloaded.shutdown(DEADLINE).await;
    }
}
