//! The library in a program that enables `ractor/async-trait` and has its own actor.

#[path = "../../fleet.rs"]
mod fleet;

use std::process::ExitCode;

use ractor::{Actor, ActorProcessingErr, ActorRef};

/// An actor of the host, written as this feature requires.
struct Own;

/// Requests one fleet life cycle.
struct Live(tokio::sync::oneshot::Sender<Result<(), String>>);

#[ractor::async_trait]
impl Actor for Own {
    type Msg = Live;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<Live>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(
        &self,
        _: ActorRef<Live>,
        Live(reply): Live,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        let lived = fleet::live().await.map_err(|error| error.to_string());
        let _ = reply.send(lived);
        Ok(())
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    if fleet::served() {
        return ExitCode::SUCCESS;
    }
    fleet::verdict("async-trait", run().await)
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let (own, ended) = Actor::spawn(None, Own, ()).await?;
    let (reply, lived) = tokio::sync::oneshot::channel();
    own.send_message(Live(reply))
        .map_err(|error| error.to_string())?;
    lived.await??;
    own.stop(None);
    ended.await?;
    Ok(())
}
