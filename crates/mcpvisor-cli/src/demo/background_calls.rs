//! What the agents do all the time: call every server, again and again.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::{RwLock, watch};
use tokio::task::JoinSet;

use super::agents::Agent;
use super::sandbox::{CLOCK, NOTES, WEATHER};

/// An agent thinks this long between two calls.
const THINK: Duration = Duration::from_millis(15);

/// The agents at work, until they are report to stop.
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

    /// Lets the agents call `weather` or not. When this returns, none of their calls to it runs.
    pub(super) async fn weather(&self, wanted: bool) {
        *self.weather.write().await = wanted;
    }

    /// Lets every agent finish its call. Says whether all of them could.
    pub(super) async fn stop(mut self) -> bool {
        let _ = self.stop.send(true);
        let mut well = true;
        while let Some(ended) = self.agents.join_next().await {
            well &= ended.is_ok();
        }
        well
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
                let wanted = weather.read().await;
                if *wanted {
                    agent
                        .call(WEATHER, "forecast", json!({ "city": "Lisbon" }))
                        .await;
                }
            }
        }
        tokio::time::sleep(THINK).await;
    }
}
