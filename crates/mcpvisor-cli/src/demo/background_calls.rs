//! Background load: every agent calls every server in a loop.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::{RwLock, watch};
use tokio::task::JoinSet;

use super::agents::Agent;
use super::sandbox::{CLOCK, NOTES, WEATHER};

/// The pause of an agent between two calls.
const THINK_TIME: Duration = Duration::from_millis(15);

/// The agents' background tasks.
#[derive(Debug)]
pub(super) struct BackgroundCalls {
    stop: watch::Sender<bool>,
    weather: Arc<RwLock<bool>>,
    agents: JoinSet<()>,
}

impl BackgroundCalls {
    pub(super) fn start(agents: &[Agent]) -> Self {
        let (stop, stopped) = watch::channel(false);
        let weather = Arc::new(RwLock::new(true));
        let mut tasks = JoinSet::new();
        for agent in agents {
            tasks.spawn(work(agent.clone(), Arc::clone(&weather), stopped.clone()));
        }
        Self {
            stop,
            weather,
            agents: tasks,
        }
    }

    /// Allows or forbids calls to `weather`. When this returns, no such call is in flight.
    pub(super) async fn weather(&self, allowed: bool) {
        *self.weather.write().await = allowed;
    }

    /// Waits until every agent finished its call. Returns whether no task panicked.
    pub(super) async fn stop(mut self) -> bool {
        let _ = self.stop.send(true);
        let mut all_ended = true;
        while let Some(ended) = self.agents.join_next().await {
            all_ended &= ended.is_ok();
        }
        all_ended
    }
}

async fn work(agent: Agent, weather: Arc<RwLock<bool>>, stopped: watch::Receiver<bool>) {
    let mut round = 0_u32;
    while !*stopped.borrow() {
        round += 1;
        match round % 5 {
            0 => {
                agent
                    .append(&format!("{} {round}", agent.name), false)
                    .await;
            }
            1 => {
                agent
                    .call(NOTES, "search", json!({ "text": agent.name }))
                    .await;
            }
            2 => {
                agent.order(&format!("{} {round}", agent.name)).await;
            }
            3 => {
                agent.call(CLOCK, "now", json!({})).await;
            }
            _ => {
                let allowed = weather.read().await;
                if *allowed {
                    agent
                        .call(WEATHER, "forecast", json!({ "city": "Lisbon" }))
                        .await;
                }
            }
        }
        tokio::time::sleep(THINK_TIME).await;
    }
}
